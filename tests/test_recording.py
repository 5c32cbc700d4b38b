from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from history_retention import recording
from history_retention.facts import Ending, KeepReason, ReadThread, SkipReason, Space, State
from history_retention.models import Hold, Sweep, Thread
from history_retention.outcomes import Removed, SkippedThread, VacuumResult
from history_retention.sweeping import Swept

from .store_files import NOW

pytestmark = pytest.mark.django_db

SKIPPED = SkippedThread(thread_id="t", reason=SkipReason.ACTIVE)
SPACE = Space(file_bytes=4_096, wal_bytes=0, free_bytes=0)


def thread(thread_id: str, **about: Any) -> ReadThread:
    values: dict[str, Any] = {
        "byte_count": 10,
        "checkpoint_count": 1,
        "write_count": 2,
        "first_activity": NOW,
        "last_activity": NOW,
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


def record(store: str = "history", started_at: datetime = NOW) -> recording.SweepRecord:
    return recording.SweepRecord(
        kind=Sweep.Kind.VACUUM,
        database=store,
        layout="gaunt_sloth",
        as_of=NOW,
        trigger=Sweep.Trigger.CODE,
        actor=None,
        started_at=started_at,
        space=SPACE,
    )


def test_a_measuring_replaces_the_rows_of_its_store_and_of_no_other() -> None:
    recording.save_threads("history", [thread("a"), thread("b")], NOW)
    recording.save_threads("another", [thread("a"), thread("x")], NOW)

    recording.save_threads("history", [thread("b", byte_count=99), thread("c")], NOW)

    assert (saved("history"), saved("another")) == (["b", "c"], ["a", "x"])
    assert Thread.objects.get(store="history", thread_id="b").byte_count == 99


def test_an_empty_store_has_no_rows_left() -> None:
    recording.save_threads("history", [thread("a")], NOW)

    recording.save_threads("history", [], NOW)

    assert saved() == []


def test_a_measuring_that_breaks_off_leaves_the_rows_it_did_not_reach() -> None:
    recording.save_threads("history", [thread("a"), thread("b")], NOW)

    def broken() -> Any:
        yield thread("b", byte_count=99)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        recording.save_threads("history", broken(), NOW)

    assert saved() == ["a", "b"]


def test_every_field_of_a_thread_is_brought_up_to_date() -> None:
    recording.save_threads("history", [thread("a")], NOW - timedelta(days=1))
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

    recording.save_threads("history", [changed], NOW)

    row = Thread.objects.get()
    assert {name: getattr(row, name) for name in ReadThread.__slots__} == {
        name: getattr(changed, name) for name in ReadThread.__slots__
    } | {"conversation_ids": []}
    assert row.measured_at == NOW


@pytest.mark.parametrize(
    ("thread_id", "text"),
    [
        ("", ""),
        (" a ", " a "),
        ("日本語🧵", "日本語🧵"),
        ("x" * 10_000, "x" * 10_000),
        ("a\udcffb", "a\\udcffb"),
        ("a\x00b", "a\\x00b"),
    ],
)
def test_an_id_that_no_database_can_hold_is_kept_escaped(thread_id: str, text: str) -> None:
    recording.save_threads("history", [thread(thread_id)], NOW)

    assert Thread.objects.get().thread_id == text
    recording.forget_threads("history", [thread_id])
    assert saved() == []


def test_words_too_long_for_their_columns_are_cut() -> None:
    long = thread("a", command="c" * 300, project="p" * 2_000, label="l" * 3_000)

    recording.save_threads("history", [long], NOW)

    row = Thread.objects.get()
    assert (len(row.command), len(row.project), len(row.label)) == (255, 1_024, 3_000)


def test_only_the_forgotten_threads_of_the_store_are_forgotten() -> None:
    for store in ("history", "another"):
        recording.save_threads(store, [thread(name) for name in "abc"], NOW)

    recording.forget_threads("history", ["a", "c", "zz"])

    assert (saved("history"), saved("another")) == (["b"], ["a", "b", "c"])


def test_threads_are_saved_and_forgotten_by_the_hundred() -> None:
    threads = [thread(f"{number}") for number in range(1_001)]

    with CaptureQueriesContext(connection) as saving:
        recording.save_threads("history", threads, NOW)
    with CaptureQueriesContext(connection) as forgetting:
        recording.forget_threads("history", [each.thread_id for each in threads])

    deletes = [query["sql"] for query in forgetting if query["sql"].startswith("DELETE")]
    inserts = [query["sql"] for query in saving if query["sql"].startswith("INSERT")]
    assert len(deletes) == 3
    assert 3 <= len(inserts) <= 20
    assert saved() == []


def test_holds_count_by_store_and_by_their_end() -> None:
    for thread_id, store, until in (
        ("a", "history", None),
        ("b", "history", NOW + timedelta(seconds=1)),
        ("c", "history", NOW),
        ("d", "another", None),
    ):
        Hold.objects.create(store=store, thread_id=thread_id, reason="x", until=until)

    assert recording.protections("history", NOW) == {"a": KeepReason.HELD, "b": KeepReason.HELD}


def test_a_record_is_there_before_the_first_delete_and_says_running() -> None:
    record()

    row = Sweep.objects.get()
    assert (row.ending, row.finished_at, row.file_bytes_before) == (Ending.RUNNING, None, 4_096)
    assert (row.kind, row.trigger, row.bounds, row.planned_threads) == ("vacuum", "code", {}, 0)


def test_a_record_counts_with_every_commit_and_ends() -> None:
    sweep = record()
    removed = Removed(thread_count=1, checkpoint_count=2, write_count=3, byte_count=4)
    vacuum = VacuumResult(ran=True, reason="history: vacuumed.", needed_bytes=0)

    sweep.note(Swept(removed=removed, skipped=[SKIPPED] * 5))
    noted = Sweep.objects.get()
    told = sweep.finish(
        Ending.PARTIAL,
        error="It stopped.",
        finished_at=NOW,
        space=Space(file_bytes=2_048, wal_bytes=0, free_bytes=0),
        vacuum=vacuum,
    )

    assert (noted.removed_threads, noted.removed_checkpoints) == (1, 2)
    assert (noted.removed_writes, noted.removed_bytes, noted.skipped_threads) == (3, 4, 5)
    assert noted.ending == Ending.RUNNING
    row = Sweep.objects.get()
    assert told == ""
    assert (row.ending, row.error, row.finished_at) == (Ending.PARTIAL, "It stopped.", NOW)
    assert (row.file_bytes_after, row.vacuumed, row.vacuum_reason) == (2_048, True, vacuum.reason)


def test_a_record_of_a_process_that_ended_is_closed_by_the_next_of_its_store_alone(
    ended_process: str,
) -> None:
    record("history")
    record("another")
    Sweep.objects.update(process=ended_process)

    record("history", started_at=NOW + timedelta(hours=1))

    first, other, second = Sweep.objects.order_by("pk")
    assert (first.ending, first.finished_at) == (Ending.INTERRUPTED, NOW + timedelta(hours=1))
    assert "The process ended before the sweep did" in first.error
    assert (other.ending, second.ending) == (Ending.RUNNING, Ending.RUNNING)


@pytest.mark.parametrize(
    ("process", "silent", "ending"),
    [
        (None, timedelta(minutes=1), Ending.RUNNING),
        (None, timedelta(hours=7), Ending.INTERRUPTED),
        ("7 1 - another.host", timedelta(hours=5), Ending.RUNNING),
        ("7 1 - another.host", timedelta(hours=7), Ending.INTERRUPTED),
        ("", timedelta(hours=5), Ending.RUNNING),
        ("", timedelta(hours=7), Ending.INTERRUPTED),
    ],
)
def test_a_record_whose_process_may_live_is_closed_only_after_hours_of_silence(
    process: str | None, silent: timedelta, ending: Ending
) -> None:
    record()
    first = Sweep.objects.all()
    first.update(noted_at=NOW - silent, **({} if process is None else {"process": process}))

    record()

    assert Sweep.objects.earliest("pk").ending == ending


def test_a_record_closed_by_mistake_is_put_right_by_its_next_note() -> None:
    mistaken = record()
    Sweep.objects.update(noted_at=NOW - timedelta(days=1))
    record()
    closed = Sweep.objects.earliest("pk")

    mistaken.note(Swept(removed=Removed(thread_count=1)))

    noted = Sweep.objects.earliest("pk")
    assert (closed.ending, closed.finished_at) == (Ending.INTERRUPTED, NOW)
    assert (noted.ending, noted.finished_at, noted.error) == (Ending.RUNNING, None, "")
    assert noted.noted_at > closed.noted_at
