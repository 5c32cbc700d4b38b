"""Sweeps that many workers share: handed over by one, worked on by many, ended by the last.

The same safety as in ``services.execute``, batch by batch: what may go is in the plan that was
handed over, every thread is looked at again under the lock that would delete it, and each commit
is on record before the next. The broker carries no more than "take a batch of sweep 12": what
there is to do, and whose it is, stands in the ledger, so that a worker that is killed and a
message that comes twice or never cost nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from django.db import Error
from django.utils import timezone

from . import batching, recording
from .boxes import Pace
from .broker import require_celery, send
from .exceptions import HistoryRetentionError, LedgerMissing, SweepRunning, UsageError
from .facts import Ending, Plan
from .models import Batch, Sweep
from .outcomes import Removed
from .packing import unpacked
from .planning import record_of
from .stores import open_store
from .stores.base import Store, parts
from .sweeping import Swept, sweep
from .vacuuming import not_vacuumed, vacuum_after

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ROWS_A_BATCH = 20_000
AGAIN_SECONDS = 15.0
"""When to ask again for a batch whose owner cannot be told from a dead one yet."""

MESSAGE_SECONDS = 30.0
"""How long one message is worked on. Then another goes on with its batch, so that neither a time
limit of the host's tasks nor a broker that delivers again what took too long ever meets one. Each
deals with a thread at least: one that begins with too many at once must come to fewer."""

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What one message came to: the batch's counts, and whether to send another message.

    ``again_seconds`` is how long to wait before it, None for none.
    """

    removed: Removed = field(default_factory=Removed)
    skipped_threads: int = 0
    error: str = ""
    again_seconds: float | None = None


def hand_over(
    plan: Plan,
    *,
    trigger: Sweep.Trigger,
    actor: User | None = None,
    clock: Clock = timezone.now,
) -> Sweep:
    """Put the plan in the ledger, batch by batch, and tell the workers; return its sweep.

    Raises SweepRunning while another sweep of the store is at work, UsageError without Celery or
    without a thread, and HistoryRetentionError when the broker cannot be reached: then the sweep is
    cancelled. A worker that was told before the broker failed ends after the threads it is at;
    nothing else is removed, and what was is on record.
    """
    require_celery()
    if not plan.threads:
        raise UsageError(f"{plan.database}: this plan has no thread to hand to workers.")
    with open_store(plan.database) as store, store.only_one("sweep"):
        threads = sorted(plan.threads, key=attrgetter("thread_id"))
        record = record_of(
            plan,
            trigger=trigger,
            actor=actor,
            started_at=clock(),
            space=store.space(),
            batches=list(parts(threads, lambda thread: thread, ROWS_A_BATCH)),
        )
        at_once = store.sweeps_side_by_side
    try:
        with recording.ledger():
            handed = Sweep.objects.get(pk=record.sweep_id)
        send(handed.pk, message_count=handed.batch_count if at_once else 1)
    except BaseException:  # Ctrl-C too, while a broker does not answer
        cancel(record.sweep_id, now=clock())
        raise
    return handed


def work(sweep_id: int, *, clock: Clock = timezone.now) -> Worked:
    """Take one batch of the sweep and remove its threads; close the sweep after the last one.

    Raises the store's own error or LedgerMissing when either is away: then the batch is left for
    when they are back.
    """
    with recording.ledger():
        shared = batching.going_on().filter(pk=sweep_id).first()
    if shared is None:
        return Worked(again_seconds=None if _end(sweep_id, clock) else AGAIN_SECONDS)
    with open_store(shared.store) as store:
        try:
            with store.only_one("sweep", shared=store.sweeps_side_by_side):
                batch = batching.take(shared, clock())
                swept = _sweep_batch(store, shared, batch, clock) if batch else Swept()
        except SweepRunning:
            return Worked(again_seconds=AGAIN_SECONDS)
        finally:
            _end(sweep_id, clock, store)
        return Worked(
            removed=swept.removed,
            skipped_threads=len(swept.skipped),
            error=swept.error,
            again_seconds=_again(shared, store, batch),
        )


def _again(shared: Sweep, store: Store, batch: Batch | None) -> float | None:
    """Say when the next message is due: at once where batches go one by one, or never.

    At once as well for a batch that was let go of before its end.
    """
    with recording.ledger():
        left = shared.batches.open()
        if not (batching.going_on().filter(pk=shared.pk).exists() and left.exists()):
            return None
        if batch is None:
            return AGAIN_SECONDS
        is_unfinished = left.filter(pk=batch.pk, owner="").exists()
    return 0.0 if is_unfinished or not store.sweeps_side_by_side else None


def _sweep_batch(store: Store, shared: Sweep, batch: Batch, clock: Clock) -> Swept:
    """Remove the batch's threads, from where an earlier owner left off.

    What nobody expected fails this batch alone: the others of the sweep go on.
    """
    swept = Swept()
    progress = batching.Progress(batch, clock)
    watch = batching.Watch(batch, clock)
    until = time.monotonic() + MESSAGE_SECONDS
    try:
        sweep(
            store,
            unpacked(bytes(batch.threads))[batch.dealt_with :],
            swept,
            naming_mark=shared.naming_mark,
            pace=Pace.configured(partial(batching.throttled, shared)),
            protections=lambda ids: recording.protections_among(store.alias, clock(), ids),
            stop=lambda: watch.is_over() or (time.monotonic() >= until and swept.has_begun),
            committed=lambda: progress.note(swept),
        )
    except Exception as unexpected:
        logger.exception("%s: a batch of sweep %s failed", store.alias, shared.pk)
        swept.error = f"{type(unexpected).__name__}: {unexpected}"
    finally:
        _let_go(store, batch, progress, swept)
    if swept.ledger_refused:
        raise LedgerMissing(swept.error)
    return swept


def _let_go(store: Store, batch: Batch, progress: batching.Progress, swept: Swept) -> None:
    """Record what the ledger has missed, and leave the batch to whoever comes next."""
    with suppress(LedgerMissing):
        progress.note(swept)
    if swept.refusal:
        with suppress(LedgerMissing):
            batching.tell(batch, swept.refusal)
    with suppress(LedgerMissing):
        recording.forget_threads(store.alias, swept.thread_ids)
    with suppress(LedgerMissing):
        batching.release(batch, "" if swept.ledger_refused else swept.error)


def _end(sweep_id: int, clock: Clock, store: Store | None = None) -> bool:
    """Close the sweep once nothing of it is left, and tell whether it is over.

    Whoever closes it gives the space back.
    """
    with recording.ledger():
        running = Sweep.objects.filter(ending=Ending.RUNNING, batch_count__gt=0)
        shared = running.filter(pk=sweep_id).first()
    if shared is None:
        return True
    ending = batching.ended(shared, clock())
    if ending is not None and store is not None:
        _give_back(store, shared, ending)
    return ending is not None


def _give_back(store: Store, shared: Sweep, ending: Ending) -> None:
    """Vacuum as after any sweep; what refuses that does not change what the sweep did."""
    removed = Removed(thread_count=shared.removed_threads, byte_count=shared.removed_bytes)
    after = None
    try:
        vacuumed = vacuum_after(store, Swept(ending=ending, removed=removed), None)
        after = store.space().file_bytes
    except (Error, HistoryRetentionError) as error:
        vacuumed = not_vacuumed(f"{store.alias}: not vacuumed ({error}).")
    with recording.ledger():
        Sweep.objects.filter(pk=shared.pk).update(
            vacuumed=vacuumed.ran,
            vacuum_reason=vacuumed.reason,
            vacuum_seconds=vacuumed.seconds,
            file_bytes_after=after,
        )


def cancel(sweep_id: int, *, now: datetime) -> Sweep:
    """Ask a running sweep to end after its current batch; UsageError when it is not running.

    What was removed stays removed and on record; threads whose turn did not come are untouched.
    """
    with recording.ledger():
        asked = Sweep.objects.filter(pk=sweep_id, ending=Ending.RUNNING)
        if not asked.update(cancelled_at=now):
            raise UsageError(f"Sweep {sweep_id} is not running, so there is nothing to cancel.")
    _end(sweep_id, lambda: now)
    return Sweep.objects.get(pk=sweep_id)


def resume_silent(database: str, *, now: datetime) -> Sweep | None:
    """Tell the workers once again of a shared sweep of the store that nobody seems to be at.

    Returns it, or None: there is none, or it was told of again before and is still silent, which
    is for a person to look at.
    """
    with recording.ledger():
        silent = batching.silent(database, now).first()
        if silent is None or not batching.claim_resume(silent, now):
            return None
    try:
        return resume(silent.pk)
    except BaseException:
        batching.give_up_resume(silent)
        raise


def resume(sweep_id: int) -> Sweep:
    """Tell the workers again of a shared sweep whose messages were lost; return the sweep."""
    with recording.ledger():
        shared = batching.going_on().filter(pk=sweep_id).first()
        if shared is None:
            raise UsageError(f"Sweep {sweep_id} is not one that workers share and that goes on.")
    with open_store(shared.store) as store:
        at_once = store.sweeps_side_by_side
    send(shared.pk, message_count=shared.batches.open().count() if at_once else 1)
    return shared
