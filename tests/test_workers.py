"""A sweep that many workers share: its batches, its end, and what becomes of a lost worker."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from kombu.exceptions import OperationalError

from history_retention import batching, broker, recording, services, workers
from history_retention.exceptions import HistoryRetentionError, SweepRunning, UsageError
from history_retention.facts import Plan
from history_retention.models import Batch, Hold, Sweep, Thread
from history_retention.packing import packed, unpacked
from history_retention.policy import Bounds
from history_retention.processes import name_of, this_process
from history_retention.services import Trigger
from project.celery import app

from .conftest import WriteStore
from .store_files import NOW, ThreadRows, add_threads, threads_in

pytestmark = pytest.mark.django_db(databases=["default", "history"])

NOBODY = name_of(2**22 + 1)
"""A process of this host that cannot be: its number is beyond the highest."""


@pytest.fixture(autouse=True)
def messages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Keep what would go to the broker: the sweep of each message and when it is due."""
    sent: list[tuple[int, float]] = []

    def send_task(name: str, *, args: list[int], countdown: float, retry: bool) -> None:
        assert (name, retry) == (broker.TASK, False)
        sent.append((args[0], countdown))

    monkeypatch.setattr(app, "send_task", send_task)
    return sent


@pytest.fixture
def store(written_store: WriteStore, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten unresumable threads of two rows, which make five batches of two."""
    monkeypatch.setattr(workers, "ROWS_A_BATCH", 4)
    return written_store([ThreadRows(thread_id=f"t{number}") for number in range(10)])


def reclaim() -> Plan:
    return services.plan_reclaim("history", now=NOW)


def handed() -> Sweep:
    return workers.hand_over(reclaim(), trigger=Trigger.CODE)


def test_a_plan_is_cut_into_batches_that_together_are_the_plan(store: Path) -> None:
    plan = reclaim()

    sweep = workers.hand_over(plan, trigger=Trigger.CODE)

    kept = [unpacked(bytes(batch.threads)) for batch in sweep.batches.order_by("position")]
    assert [len(threads) for threads in kept] == [2, 2, 2, 2, 2]
    assert [thread for threads in kept for thread in threads] == sorted(
        plan.threads, key=lambda thread: thread.thread_id
    )
    assert (sweep.ending, sweep.planned_threads, sweep.batch_count) == ("running", 10, 5)
    assert len(threads_in(store)) == 10


def test_planned_threads_survive_the_ledger_with_any_id(written_store: WriteStore) -> None:
    names = ["", "a" * 300, "it's", "\N{PILE OF POO}", "%_", " 7"]
    written_store([ThreadRows(thread_id=name) for name in names], None, layout="langgraph_sqlite")
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert unpacked(packed(plan.threads)) == plan.threads
    assert {thread.thread_id for thread in plan.threads} == set(names)


def test_each_message_takes_one_batch_and_the_last_one_closes_the_sweep(
    store: Path, messages: list[tuple[int, float]]
) -> None:
    sweep = handed()
    left = []

    for _ in range(5):
        workers.work(sweep.pk)
        left.append(len(threads_in(store)))

    sweep.refresh_from_db()
    assert left == [8, 6, 4, 2, 0]
    assert (sweep.ending, sweep.removed_threads, sweep.skipped_threads) == ("done", 10, 0)
    assert (sweep.removed_checkpoints, sweep.removed_writes) == (10, 10)
    assert sweep.removed_bytes == sweep.planned_bytes
    assert (sweep.vacuumed, sweep.file_bytes_after) == (True, store.stat().st_size)
    assert sweep.finished_at is not None
    assert messages == [(sweep.pk, 0)]


def test_a_message_too_many_or_for_a_sweep_that_is_over_does_nothing(store: Path) -> None:
    sweep = handed()
    for _ in range(5):
        workers.work(sweep.pk)
    add_threads(store, [ThreadRows(thread_id="t0")])

    assert workers.work(sweep.pk) == workers.Worked()
    assert workers.work(10**9) == workers.Worked()
    assert threads_in(store) == {"t0"}


def test_on_a_file_each_batch_asks_for_the_next_since_one_writer_locks_out_the_others(
    store: Path,
) -> None:
    sweep = handed()

    asked = [workers.work(sweep.pk).again_seconds for _ in range(5)]

    assert asked == [0, 0, 0, 0, None]


def test_a_thread_that_changed_since_the_plan_is_skipped_by_whichever_worker_takes_it(
    store: Path,
) -> None:
    sweep = handed()
    workers.work(sweep.pk)
    add_threads(store, [ThreadRows(thread_id="t5", age=timedelta(0))])
    Hold.objects.create(store="history", thread_id="t8", reason="needed")

    worked = [workers.work(sweep.pk).skipped_threads for _ in range(4)]

    sweep.refresh_from_db()
    assert worked == [0, 1, 0, 1]
    assert threads_in(store) == {"t5", "t8"}
    assert (sweep.removed_threads, sweep.skipped_threads, sweep.ending) == (8, 2, "done")


def test_the_batch_of_a_killed_worker_is_taken_again_where_it_was_left(store: Path) -> None:
    sweep = handed()
    first = sweep.batches.order_by("position")[0]
    Batch.objects.filter(pk=first.pk).update(owner=NOBODY, noted_at=timezone.now(), dealt_with=1)

    removed = [workers.work(sweep.pk).removed.thread_count for _ in range(5)]

    sweep.refresh_from_db()
    assert removed == [2, 2, 2, 2, 1]
    assert threads_in(store) == {"t0"}
    assert sweep.ending == "done"


@pytest.mark.parametrize(
    ("owner", "silence", "taken"),
    [
        ("7 1 - another-host", timedelta(0), False),
        ("7 1 - another-host", batching.SILENCE + timedelta(seconds=1), True),
        (name_of(os.getppid()), timedelta(0), False),
        (name_of(1), timedelta(0), False),
        (NOBODY, timedelta(0), True),
        (this_process(), timedelta(0), True),
    ],
    ids=["elsewhere", "elsewhere and silent", "alive", "the first", "ended", "this one, idle"],
)
def test_a_batch_is_taken_from_its_owner_only_when_that_one_is_gone(
    store: Path, owner: str, silence: timedelta, taken: bool
) -> None:
    sweep = handed()
    sweep.batches.exclude(position=0).delete()
    Batch.objects.update(owner=owner, noted_at=timezone.now() - silence)

    worked = workers.work(sweep.pk)

    assert worked.removed.thread_count == (2 if taken else 0)
    assert worked.again_seconds == (None if taken else workers.AGAIN_SECONDS)
    assert len(threads_in(store)) == (8 if taken else 10)


def test_a_batch_that_this_process_is_at_work_on_is_nobody_elses(store: Path) -> None:
    sweep = handed()
    sweep.batches.exclude(position=0).delete()
    batch = batching.take(sweep, timezone.now())
    assert batch is not None

    assert batching.take(sweep, timezone.now()) is None
    batching.release(batch)

    assert batching.take(sweep, timezone.now()) == batch
    batching.release(batch)


def test_a_second_sweep_of_the_store_leaves_while_workers_are_at_the_first(store: Path) -> None:
    sweep = handed()
    plan = reclaim()

    for start in (
        lambda: workers.hand_over(plan, trigger=Trigger.CODE),
        lambda: services.execute(plan, trigger=Trigger.CODE),
        lambda: services.vacuum("history", now=NOW, trigger=Trigger.CODE),
    ):
        with pytest.raises(SweepRunning, match=f"workers are at sweep {sweep.pk} of this store"):
            start()

    assert Sweep.objects.count() == 1
    assert len(threads_in(store)) == 10


def test_a_cancelled_sweep_keeps_what_its_turn_did_not_come_for(store: Path) -> None:
    sweep = handed()
    workers.work(sweep.pk)

    cancelled = workers.cancel(sweep.pk, now=timezone.now())

    assert (cancelled.ending, cancelled.removed_threads) == ("interrupted", 2)
    assert workers.work(sweep.pk) == workers.Worked()
    assert len(threads_in(store)) == 8
    assert services.execute(reclaim(), trigger=Trigger.CODE).removed.thread_count == 8


def test_a_worker_in_the_middle_of_a_batch_hears_of_the_cancellation(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    monkeypatch.setattr(batching, "SIGN_OF_LIFE_SECONDS", 0)
    sweep = handed()
    real = batching.Progress.note

    def cancel_after_the_first(progress: batching.Progress, swept: object) -> None:
        real(progress, swept)  # type: ignore[arg-type]
        workers.cancel(sweep.pk, now=timezone.now())

    monkeypatch.setattr(batching.Progress, "note", cancel_after_the_first)

    worked = workers.work(sweep.pk)

    sweep.refresh_from_db()
    assert worked.removed.thread_count == 1
    assert (sweep.ending, sweep.removed_threads) == ("interrupted", 1)
    assert len(threads_in(store)) == 9


def test_a_sweep_by_one_process_is_cancelled_by_another(
    written_store: WriteStore, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_store([ThreadRows(thread_id=f"t{number}") for number in range(5)])
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    monkeypatch.setattr(recording, "SIGN_OF_LIFE_SECONDS", 0)

    def cancel(verb: str, done: int, total: int) -> None:
        if done == 2:
            workers.cancel(Sweep.objects.get().pk, now=timezone.now())

    outcome = services.execute(reclaim(), trigger=Trigger.CODE, progress=cancel)

    assert (outcome.ending, outcome.removed.thread_count) == ("interrupted", 2)
    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.removed_threads) == ("interrupted", 2)
    assert sweep.cancelled_at is not None
    assert threads_in(path) == {"t2", "t3", "t4"}


def test_a_batch_that_the_store_refuses_ends_with_its_sentence_and_the_others_go_on(
    store: Path,
) -> None:
    sweep = handed()
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE DELETE ON checkpoints WHEN OLD.thread_id = 't3'"
            " BEGIN SELECT RAISE(ABORT, 'mine'); END"
        )

    errors = [workers.work(sweep.pk).error for _ in range(5)]

    sweep.refresh_from_db()
    assert [bool(error) for error in errors] == [False, True, False, False, False]
    assert threads_in(store) == {"t2", "t3"}
    assert (sweep.ending, sweep.removed_threads) == ("partial", 8)
    assert "mine" in sweep.error


def test_what_a_worker_removed_is_forgotten_by_the_readout(store: Path) -> None:
    services.measure("history", now=NOW)
    sweep = handed()

    workers.work(sweep.pk)

    assert set(Thread.objects.values_list("thread_id", flat=True)) == threads_in(store)


def test_lost_messages_are_sent_again(store: Path, messages: list[tuple[int, float]]) -> None:
    sweep = handed()
    messages.clear()

    assert workers.resume(sweep.pk) == sweep
    assert messages == [(sweep.pk, 0)]
    with pytest.raises(UsageError, match="is not one that workers share and that goes on"):
        workers.resume(sweep.pk + 1)


def test_a_broker_that_is_not_there_leaves_nothing_behind_that_could_still_remove(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OperationalError("Connection refused")

    monkeypatch.setattr(app, "send_task", refuse)

    with pytest.raises(HistoryRetentionError, match=r"broker cannot be reached .*refused"):
        handed()

    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.removed_threads) == ("interrupted", 0)
    assert workers.work(sweep.pk) == workers.Worked()
    assert len(threads_in(store)) == 10


def test_workers_are_held_together_to_the_bytes_allowed(store: Path) -> None:
    sweep = handed()
    first, second = (batching.throttled(sweep, 1_000) for _ in range(2))

    waits = [first(2_000_000), second(3_000_000), first(0)]

    assert [round(seconds, -2) for seconds in waits] == [2_000, 5_000, 5_000]


def test_the_clock_of_a_host_does_not_count_for_the_bytes_allowed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = batching.throttled(handed(), 1_000)
    waits = [waiting(2_000_000)]
    tomorrow = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: tomorrow)

    waits.append(waiting(3_000_000))

    assert [round(seconds, -2) for seconds in waits] == [2_000, 5_000]
