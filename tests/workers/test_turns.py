"""Whose turn a batch is, for how long, and what becomes of it then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from history_retention import batching, workers
from history_retention.models import Batch
from history_retention.outcomes import Removed
from history_retention.services import Trigger
from history_retention.stores.checkpoints import CheckpointStore
from history_retention.sweeping import Swept

from ..store_files import threads_in
from .sharing import ELSEWHERE, handed, reclaim, work_on

pytestmark = pytest.mark.django_db(databases=["default", "history"])


def test_a_message_is_worked_on_for_a_bounded_time_and_another_goes_on_with_its_batch(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0.3)
    monkeypatch.setattr(workers, "MESSAGE_SECONDS", 0.2)
    sweep = handed()

    done = work_on(sweep)

    assert {worked.removed.thread_count for worked in done} <= {0, 1}
    assert (sweep.ending, sweep.removed_threads, sweep.skipped_threads) == ("done", 6, 0)
    assert sweep.error == ""


def test_a_batch_let_go_of_is_gone_on_with_at_once_where_workers_are_side_by_side_too(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention(BOX_SECONDS=0, MAX_BYTES_PER_SECOND=3_000)
    monkeypatch.setattr(CheckpointStore, "sweeps_side_by_side", True)
    sweep = handed()

    with monkeypatch.context() as brief:
        brief.setattr(workers, "MESSAGE_SECONDS", 0.2)
        assert workers.work(sweep.pk).again_seconds == 0

    assert workers.work(sweep.pk).again_seconds is None


def test_the_last_threads_of_a_batch_count_towards_the_bytes_allowed_too(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    plan = reclaim()
    retention(BOX_SECONDS=10, GAP_SECONDS=0, MAX_BYTES_PER_SECOND=1)
    monkeypatch.setattr("history_retention.boxes._rest", lambda seconds, _s: waited.append(seconds))
    sweep = workers.hand_over(plan, trigger=Trigger.CODE)

    work_on(sweep)

    half = sum(thread.byte_count for thread in plan.threads[:3])
    assert sweep.removed_bytes == 2 * half
    assert [round(seconds, -1) for seconds in waited] == [0, round(half, -1)]


def test_a_batch_never_goes_backward_when_two_workers_had_it(store: Path) -> None:
    sweep = handed()
    batch = batching.take(sweep, timezone.now())
    assert batch is not None
    slow = batching.Progress(batch, timezone.now)
    Batch.objects.filter(pk=batch.pk).update(dealt_with=3, owner=ELSEWHERE)
    slow.note(Swept(removed=Removed(thread_count=1)))

    batch.refresh_from_db()
    assert (batch.dealt_with, batch.owner) == (3, ELSEWHERE)


def test_a_thread_of_this_process_keeps_its_batch_however_long_it_is_silent(store: Path) -> None:
    sweep = handed()
    sweep.batches.exclude(position=0).delete()
    batch = batching.take(sweep, timezone.now())
    assert batch is not None
    later = timezone.now() + batching.SILENCE * 2

    assert batching.take(sweep, later) is None
    batching.release(batch)
    assert batching.take(sweep, later) == batch
    batching.release(batch)


def test_a_sign_of_life_from_the_future_is_of_another_clock_and_keeps_no_batch_for_ever(
    store: Path,
) -> None:
    sweep = handed()
    Batch.objects.update(owner=ELSEWHERE, noted_at=timezone.now() + timedelta(hours=1))

    work_on(sweep)

    assert (sweep.ending, sweep.removed_threads) == ("done", 6)


def test_a_cancelled_sweep_whose_last_worker_is_lost_is_asked_about_until_it_is_closed(
    store: Path,
) -> None:
    sweep = handed()
    Batch.objects.filter(position=0).update(owner=ELSEWHERE, noted_at=timezone.now())
    workers.cancel(sweep.pk, now=timezone.now())

    first = workers.work(sweep.pk)
    Batch.objects.update(noted_at=timezone.now() - batching.SILENCE * 2)
    second = workers.work(sweep.pk)

    sweep.refresh_from_db()
    assert (first.again_seconds, second.again_seconds) == (workers.AGAIN_SECONDS, None)
    assert (sweep.ending, len(threads_in(store))) == ("interrupted", 6)
