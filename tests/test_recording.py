from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from history_retention import recording
from history_retention.facts import Ending, KeepReason, SkipReason, Space
from history_retention.guard import lease
from history_retention.models import Hold, Lease, Sweep
from history_retention.outcomes import Removed, SkippedThread, VacuumResult
from history_retention.sweeping import Swept

from .store_files import NOW

pytestmark = pytest.mark.django_db

SKIPPED = SkippedThread(thread_id="t", reason=SkipReason.ACTIVE)
SPACE = Space(file_bytes=4_096, wal_bytes=0, free_bytes=0)


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


def test_holds_count_by_store_and_by_their_end() -> None:
    for thread_id, store, until in (
        ("a", "history", None),
        ("b", "history", NOW + timedelta(seconds=1)),
        ("c", "history", NOW),
        ("d", "another", None),
    ):
        Hold.objects.create(store=store, thread_id=thread_id, reason="x", until=until)

    assert recording.protections("history", NOW) == {"a": KeepReason.HELD, "b": KeepReason.HELD}


@pytest.mark.parametrize("holds", [20, 2_000])
def test_of_a_boxs_own_threads_the_same_is_told_as_of_all(holds: int) -> None:
    Lease.objects.take("7 1 - another-host", [("history", "leased"), ("history", "other")])
    Hold.objects.bulk_create(
        Hold(store="history", thread_id=f"held {number}", reason="x") for number in range(holds)
    )
    ids = [f"t{number}" for number in range(1_500)]
    ids[0], ids[700], ids[1_400], ids[1_499] = "held 1", "leased", "open", "held 1\0"
    Hold.objects.create(store="history", thread_id="held 1\0", reason="x")

    with lease("open"), lease("open elsewhere"):
        found = recording.protections_among("history", NOW, ids)
        everything = recording.protections("history", NOW)

    assert {key: why for key, why in found.items() if key in set(ids)} == {
        "held 1": KeepReason.HELD,
        "leased": KeepReason.LEASED,
        "open": KeepReason.LEASED,
        "held 1\0": KeepReason.HELD,
    }
    assert len(everything) == holds + 5
    assert len(found) < 30


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
