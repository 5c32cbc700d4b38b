from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from history_retention import recording
from history_retention.facts import State
from history_retention.models import Thread
from history_retention.readouts import ReadThread
from history_retention.remembering import Memory

from .store_files import NOW

pytestmark = pytest.mark.django_db


def thread(thread_id: str, **about: Any) -> ReadThread:
    values: dict[str, Any] = {
        "byte_count": 10,
        "checkpoint_count": 1,
        "write_count": 2,
        "first_activity": NOW,
        "last_activity": NOW,
        "stored_activity": NOW,
        "state": State.RESUMABLE,
        "conversation_ids": (1, "c-2"),
        "turn_count": 3,
        "command": "chat",
        "project": "/srv/app",
        "label": "",
    }
    return ReadThread(thread_id=thread_id, **values | about)


def saved(store: str = "history") -> list[str]:
    return sorted(Thread.objects.filter(store=store).values_list("thread_id", flat=True))


def test_a_measuring_replaces_the_rows_of_its_store_and_of_no_other() -> None:
    Memory("history").save([thread("a"), thread("b")])
    Memory("another").save([thread("a"), thread("x")])

    Memory("history").save([thread("b", byte_count=99), thread("c")])

    assert (saved("history"), saved("another")) == (["b", "c"], ["a", "x"])
    assert Thread.objects.get(store="history", thread_id="b").byte_count == 99


def test_an_empty_store_has_no_rows_left() -> None:
    Memory("history").save([thread("a")])

    Memory("history").save([])

    assert saved() == []


def test_a_measuring_that_breaks_off_leaves_the_rows_it_did_not_reach() -> None:
    Memory("history").save([thread("a"), thread("b")])

    def broken() -> Any:
        yield thread("b", byte_count=99)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        Memory("history").save(broken())

    assert saved() == ["a", "b"]


def test_every_field_of_a_thread_is_brought_up_to_date() -> None:
    Memory("history").save([thread("a")])
    changed = thread(
        "a",
        byte_count=20,
        checkpoint_count=30,
        write_count=40,
        first_activity=None,
        last_activity=None,
        state=State.UNKNOWN_AGE,
        conversation_ids=(),
        turn_count=50,
        command="code",
        project="/srv/other",
        label="größe",
    )

    Memory("history").save([changed])

    row = Thread.objects.get()
    assert {name: getattr(row, name) for name in ReadThread.__slots__} == {
        name: getattr(changed, name) for name in ReadThread.__slots__
    } | {"conversation_ids": []}


@pytest.mark.parametrize(
    "thread_id", ["", " a ", "日本語🧵", "x" * 10_000, "a\udcffb", "a\x00b"], ids=ascii
)
def test_an_id_that_no_database_can_hold_is_kept_all_the_same(thread_id: str) -> None:
    Memory("history").save([thread(thread_id)])

    assert Thread.objects.get().thread_id == thread_id
    recording.forget_threads("history", [thread_id])
    assert saved() == []


def test_words_too_long_for_their_columns_are_cut() -> None:
    long = thread("a", command="c" * 300, project="p" * 2_000, label="l" * 3_000)

    Memory("history").save([long])

    row = Thread.objects.get()
    assert (len(row.command), len(row.project), len(row.label)) == (255, 1_024, 3_000)


def test_only_the_forgotten_threads_of_the_store_are_forgotten() -> None:
    for store in ("history", "another"):
        Memory(store).save([thread(name) for name in "abc"])

    recording.forget_threads("history", ["a", "c", "zz"])

    assert (saved("history"), saved("another")) == (["b"], ["a", "b", "c"])


def test_threads_are_saved_and_forgotten_by_the_hundred() -> None:
    threads = [thread(f"{number}") for number in range(1_001)]

    with CaptureQueriesContext(connection) as saving:
        Memory("history").save(threads)
    with CaptureQueriesContext(connection) as forgetting:
        recording.forget_threads("history", [each.thread_id for each in threads])

    deletes = [query["sql"] for query in forgetting if query["sql"].startswith("DELETE")]
    inserts = [query["sql"] for query in saving if query["sql"].startswith("INSERT")]
    assert len(deletes) == 3
    assert 3 <= len(inserts) <= 20
    assert saved() == []


def statements(captured: CaptureQueriesContext, verb: str) -> list[str]:
    return [query["sql"] for query in captured if query["sql"].startswith(verb)]


def test_what_has_not_changed_is_not_written_again() -> None:
    threads = [
        thread(
            f"{number}\udcff\0",
            command="c" * 300,
            project="p" * 2_000,
            label="\0",
            first_activity=None,
            conversation_ids=(),
        )
        for number in range(1_200)
    ]
    Memory("history").save(threads)

    with CaptureQueriesContext(connection) as unchanged:
        Memory("history").save(threads)
    with CaptureQueriesContext(connection) as changed:
        Memory("history").save([*threads[:-1], replace(threads[-1], byte_count=11)])

    written = [statements(captured, "INSERT") for captured in (unchanged, changed)]
    assert [len(each) for each in written] == [0, 1]
    assert [statements(unchanged, verb) for verb in ("UPDATE", "DELETE")] == [[], []]
    row = Thread.objects.get(digest=Thread.digest_of("history", threads[-1].thread_id))
    assert row.byte_count == 11


def test_threads_that_are_gone_are_forgotten_wherever_their_keys_lie() -> None:
    threads = [thread(f"{number}") for number in range(1_300)]
    Memory("history").save(threads)
    Memory("another").save(threads[:3])

    Memory("history").save(each for n, each in enumerate(threads) if n % 3 and 40 < n < 1_250)

    kept = sorted(f"{n}" for n in range(1_300) if n % 3 and 40 < n < 1_250)
    assert (saved(), saved("another")) == (kept, ["0", "1", "2"])


def test_a_thread_is_remembered_as_it_was_stored_without_its_conversations() -> None:
    Memory("history").save(
        [thread("a\udcff", stored_activity=None), thread("b", last_activity=None)]
    )

    memory = Memory("history")
    known = memory.stored(["a\udcff", "b", "c"])

    assert (memory.count(), set(known)) == (2, {"a\udcff", "b"})
    assert (known["a\udcff"].last_activity, known["b"].last_activity) == (None, NOW)
    b = known["b"]
    assert (b.checkpoint_count, b.write_count, b.byte_count) == (1, 2, 10)


def test_a_store_has_no_marks_before_it_is_measured() -> None:
    assert Memory("history").marks() == {}
