"""A shared sweep in which something breaks: each time it ends, and its report is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import Error, OperationalError
from django.utils import timezone

from history_retention import batching, recording, workers
from history_retention.exceptions import LedgerMissing, StoreUnreadable, UsageError
from history_retention.models import Batch, Sweep
from history_retention.stores.checkpoints import CheckpointStore

from ..store_files import threads_in
from .sharing import handed, work_on

pytestmark = [pytest.mark.django_db(databases=["default", "history"]), pytest.mark.endurance]


def fail_once(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: BaseException
) -> None:
    """Let the second call of a method fail."""
    real = getattr(owner, name)
    calls = []

    def failing(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == 2:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("nobody knows why"), SoftTimeLimitExceeded(), ValueError("stray \udcff \0")],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_expected_fails_its_batch_and_the_others_are_still_done(
    store: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(workers.logger, "disabled", True)  # no report can carry stray bytes
    sweep = handed()
    fail_once(monkeypatch, CheckpointStore, "remove", error)

    done = work_on(sweep)

    assert threads_in(store) == {"t1", "t2"}
    assert [worked.removed.thread_count for worked in done] == [1, 3]
    assert (sweep.ending, sweep.removed_threads) == ("partial", 4)
    assert sweep.error.startswith(f"{type(error).__name__}: ")
    assert sweep.finished_at is not None


def test_a_worker_that_is_told_to_stop_leaves_its_batch_to_the_next(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = handed()
    fail_once(monkeypatch, CheckpointStore, "remove", SystemExit())

    with pytest.raises(SystemExit):
        workers.work(sweep.pk)
    work_on(sweep)

    assert (sweep.ending, sweep.removed_threads, sweep.skipped_threads) == ("done", 6, 0)
    assert threads_in(store) == set()


def test_a_ledger_that_is_away_for_a_moment_costs_neither_the_batch_nor_a_count(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = handed()
    fail_once(monkeypatch, batching.Progress, "note", LedgerMissing("The ledger is away."))

    with pytest.raises(LedgerMissing, match="The ledger is away"):
        workers.work(sweep.pk)
    counted = Sweep.objects.get().removed_threads
    done = work_on(sweep)

    assert (counted, [worked.removed.thread_count for worked in done]) == (2, [1, 3])
    assert (sweep.ending, sweep.removed_threads, sweep.skipped_threads) == ("done", 6, 0)
    assert threads_in(store) == set()


def test_a_batch_is_let_go_of_even_when_the_readout_cannot_be_kept_up(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = handed()

    def refuse(*args: object) -> None:
        raise LedgerMissing("The ledger is locked.")

    monkeypatch.setattr(recording, "forget_threads", refuse)

    workers.work(sweep.pk)

    assert not Batch.objects.exclude(owner="")
    assert threads_in(store) == {"t3", "t4", "t5"}


def test_a_sweep_that_is_deleted_in_the_middle_ends_there_and_says_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0, MAX_BYTES_PER_SECOND=10**9)
    monkeypatch.setattr(batching, "SIGN_OF_LIFE_SECONDS", 0)
    sweep = handed()
    real = batching.Progress.note

    def delete_after_the_first(progress: batching.Progress, swept: object) -> None:
        real(progress, swept)  # type: ignore[arg-type]
        Sweep.objects.all().delete()

    monkeypatch.setattr(batching.Progress, "note", delete_after_the_first)

    worked = workers.work(sweep.pk)

    assert (worked.removed.thread_count, worked.error, worked.again_seconds) == (1, "", None)
    assert len(threads_in(store)) == 5
    assert batching.ended(sweep, timezone.now()) is None


def test_a_ledger_that_refuses_the_end_is_a_sentence_that_celery_tries_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = handed()

    def refuse(*args: object, **kwargs: object) -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as away:
        away.setattr(Sweep.objects, "filter", refuse)
        with pytest.raises(LedgerMissing, match="database is locked"):
            workers._end(sweep.pk, timezone.now)

    work_on(sweep)
    assert (sweep.ending, sweep.removed_threads) == ("done", 6)


@pytest.mark.parametrize("kind", [Error, StoreUnreadable])
def test_a_vacuum_that_is_refused_does_not_change_what_the_sweep_did(
    store: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    sweep = handed()

    def refuse(*args: object) -> None:
        raise kind("the server is gone")

    monkeypatch.setattr(workers, "vacuum_after", refuse)

    work_on(sweep)

    assert (sweep.ending, sweep.removed_threads) == ("done", 6)
    assert (sweep.vacuumed, sweep.vacuum_reason) == (
        False, "history: not vacuumed (the server is gone).",
    )  # fmt: skip


def test_the_vacuum_of_a_shared_sweep_tells_the_next_one_how_fast_it_is(store: Path) -> None:
    sweep = handed()

    work_on(sweep)

    assert sweep.vacuumed
    assert sweep.vacuum_seconds is not None


def test_a_message_for_a_store_that_is_in_the_settings_no_more_waits_until_it_is_cancelled(
    store: Path, retention: Callable[..., None]
) -> None:
    sweep = handed()
    Sweep.objects.update(store="gone")

    for refused in (lambda: workers.work(sweep.pk), lambda: workers.resume(sweep.pk)):
        with pytest.raises(UsageError, match="gone"):
            refused()
    cancelled = workers.cancel(sweep.pk, now=timezone.now())

    assert (cancelled.ending, workers.work(sweep.pk)) == ("interrupted", workers.Worked())
    assert len(threads_in(store)) == 6
