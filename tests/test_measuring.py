from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from history_retention import services
from history_retention.facts import Conversation, NamedThread, Naming, State, StoredThread, Tally
from history_retention.measuring import Totals, read
from history_retention.policy import Rules
from history_retention.stores import open_store

from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows

DAY = timedelta(days=1)
RULES = Rules(now=NOW, grace=DAY, naming=Naming.KNOWN)


def thread(thread_id: str, size: int | None, *conversations: Conversation) -> NamedThread:
    return NamedThread(
        stored=StoredThread(
            thread_id=thread_id,
            checkpoint_count=2,
            write_count=3,
            byte_count=size,
            first_activity=NOW - 9 * DAY,
            last_activity=NOW - 2 * DAY,
            fingerprint=b"",
        ),
        conversations=conversations,
    )


def test_a_thread_is_read_with_its_most_recent_conversation_in_front() -> None:
    old = Conversation(
        conversation_id=1, last_activity=NOW - 5 * DAY, turn_count=2, command="chat", project="/a"
    )
    new = Conversation(
        conversation_id=2, last_activity=NOW - DAY, turn_count=3, command="code", label="x"
    )

    (found,) = read([thread("t", 10, old, new)], RULES)

    assert (found.thread_id, found.byte_count, found.state) == ("t", 10, State.RESUMABLE)
    assert (found.checkpoint_count, found.write_count, found.turn_count) == (2, 3, 5)
    assert (found.command, found.project, found.label) == ("code", "", "x")
    assert found.conversation_ids == (1, 2)
    assert (found.first_activity, found.last_activity) == (NOW - 9 * DAY, NOW - DAY)


def test_an_unnamed_thread_has_empty_words() -> None:
    (found,) = read([thread("t", None)], RULES)

    assert (found.byte_count, found.state) == (0, State.UNRESUMABLE)
    assert (found.command, found.project, found.label, found.conversation_ids) == ("", "", "", ())


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 9))
def test_the_largest_threads_are_the_largest_and_every_thread_passes(
    sizes: list[int], top: int
) -> None:
    totals = Totals(top)
    threads = list(read([thread(f"t{n:02}", size) for n, size in enumerate(sizes)], RULES))

    passed = list(totals.counted(threads))

    assert passed == threads
    largest = sorted(threads, key=lambda t: (t.byte_count, t.thread_id), reverse=True)[:top]
    assert [held for *_, held in sorted(totals._largest, reverse=True)] == largest


def test_the_readout_adds_up_what_passed(written_store: WriteStore) -> None:
    written_store(
        [
            ThreadRows(thread_id="named", size=900, writes=0),
            ThreadRows(thread_id="old", size=500, writes=0),
            ThreadRows(thread_id="young", size=400, writes=2, write_size=7, age=DAY / 2),
            ThreadRows(thread_id="unknown", size=300, writes=0, age=None),
        ],
        [ConversationRow(thread_id="named", turns=[DAY, 2 * DAY]), ConversationRow(thread_id=None)],
    )
    metadata = len('{"source": "loop", "step": 0, "parents": {}}')

    readout = services.measure("history", now=NOW, top=2, save=False)

    assert (readout.thread_count, readout.checkpoint_count, readout.write_count) == (4, 4, 2)
    assert readout.checkpoint_bytes == 900 + 500 + 400 + 300 + 4 * metadata + 2 * 7
    assert readout.unresumable == Tally(
        thread_count=3, byte_count=500 + 400 + 300 + 3 * metadata + 14
    )
    assert readout.reclaimable == Tally(thread_count=1, byte_count=500 + metadata)
    assert (readout.conversation_count, readout.turn_count) == (2, 2)
    assert [t.thread_id for t in readout.largest_threads] == ["named", "old"]
    assert (readout.as_of, readout.database, readout.layout) == (NOW, "history", "gaunt_sloth")


def test_the_largest_threads_may_be_none(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a")])

    assert services.measure("history", now=NOW, top=0, save=False).largest_threads == ()


def test_the_readout_tells_the_size_of_the_file_and_its_free_pages(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="a", size=50_000), ThreadRows(thread_id="b")])
    plan = services.plan_reclaim("history", now=NOW)
    services.execute(plan, trigger=services.Trigger.CODE, vacuum=False)

    space = services.measure("history", now=NOW, save=False).space

    assert (space.file_bytes, space.wal_bytes) == (path.stat().st_size, 0)
    assert space.file_bytes > space.free_bytes >= 40_960
    with open_store("history") as store:
        assert store.live_bytes() == space.file_bytes - space.free_bytes


def test_the_readout_is_of_the_instant_it_is_asked_for(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a", age=10 * DAY)])

    before = services.measure("history", now=NOW - 10 * DAY, save=False)
    after = services.measure("history", now=NOW - 9 * DAY, save=False)

    assert before.as_of == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert (before.reclaimable.thread_count, after.reclaimable.thread_count) == (0, 1)
