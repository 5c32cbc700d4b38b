"""The sweeps that give space back, each on record: in one go, in steps, and once for all.

A vacuum takes nothing from a store; it blocks the store's writers, and it needs disk. The steps
do neither. Enabling them changes the vendor's file, which is why nothing here does so by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils import timezone

from . import recording
from .boxes import Pace
from .facts import Ending, Space
from .models import Sweep
from .outcomes import Outcome, Removed, VacuumResult
from .stepping import Freed, free_in_steps
from .stores import open_store
from .stores.base import KEPT_LOG, Progress, StepwiseStore, Store
from .vacuuming import VacuumForecast, forecast, not_vacuumed, step_refusals

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What became of the work on a store."""

    vacuum: VacuumResult
    ending: Ending
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweeper:
    """Who asks for a sweep of which store, and when."""

    database: str
    now: datetime
    trigger: Sweep.Trigger
    actor: User | None
    clock: Clock

    def sweep(
        self, work: Callable[[Store, Space, Callable[[], bool]], _Done], **bounds: object
    ) -> Outcome:
        """Do the work on the store, alone on this machine, between two lines of the ledger.

        It is given the store, what that takes now, and what tells whether it is cancelled.
        """
        with open_store(self.database) as store, store.only_one("sweep"):
            before = store.space()
            record = recording.SweepRecord(
                kind=Sweep.Kind.VACUUM,
                database=self.database,
                layout=store.layout,
                as_of=self.now,
                trigger=self.trigger,
                actor=self.actor,
                started_at=self.clock(),
                space=before,
                bounds=bounds,
            )
            with record.closing_on_error(self.clock):
                done = work(store, before, record.is_cancelled)
                after = store.space()
            unrecorded = record.finish(
                done.ending,
                error=done.error,
                finished_at=self.clock(),
                space=after,
                vacuum=done.vacuum,
            )
        is_told = not unrecorded or done.ending is not Ending.DONE
        return Outcome(
            ending=done.ending if is_told else Ending.PARTIAL,
            removed=Removed(),
            skipped=(),
            space_before=before,
            space_after=after,
            vacuum=done.vacuum,
            error=done.error or unrecorded,
        )


def vacuum_forecast(database: str) -> VacuumForecast:
    """Tell what a vacuum of the store would need and cost, and why it could or should not run."""
    with open_store(database) as store:
        return forecast(store)


def vacuum(
    database: str,
    *,
    now: datetime,
    trigger: Sweep.Trigger,
    actor: User | None = None,
    force: bool = False,
    clock: Clock = timezone.now,
) -> Outcome:
    """Give the store's free pages back to the file system; blocks its writers while it runs.

    Without ``force`` it only says so when less is free than VACUUM_FREE_RATIO of the file or
    VACUUM_FREE_BYTES, unless nobody would notice the wait.
    """

    def work(store: Store, before: Space, _is_cancelled: Callable[[], bool]) -> _Done:
        if not (before.free_bytes or store.vacuums_beside_writers):
            return _idle(f"{database}: nothing is free inside the file; not vacuumed.")
        unworthy = "" if force else forecast(store).unworthy
        return _idle(unworthy) if unworthy else _ended(store.vacuum())

    return _Sweeper(database=database, now=now, trigger=trigger, actor=actor, clock=clock).sweep(
        work
    )


def vacuum_incrementally(
    database: str,
    *,
    now: datetime,
    trigger: Sweep.Trigger,
    stop: Callable[[], bool],
    progress: Progress,
    actor: User | None = None,
    clock: Clock = timezone.now,
) -> Outcome:
    """Give the store's free pages back in boxes, which no writer notices.

    ``stop`` is asked between boxes. Fails when the vendor's file does not allow it.
    """
    pace = Pace.configured()

    def work(store: Store, before: Space, is_cancelled: Callable[[], bool]) -> _Done:
        refusal, _ = step_refusals(store)
        if refusal or not isinstance(store, StepwiseStore):
            return _ended(not_vacuumed(refusal))
        if not before.free_bytes:
            return _idle(f"{database}: nothing is free inside the file; not vacuumed.")
        freed = Freed()
        free_in_steps(
            store,
            before.free_bytes,
            freed,
            pace=pace,
            stop=lambda: stop() or is_cancelled(),
            committed=lambda: progress("freeing bytes", freed.byte_count, before.free_bytes),
        )
        return _stepped(store, freed)

    return _Sweeper(database=database, now=now, trigger=trigger, actor=actor, clock=clock).sweep(
        work, incremental=True
    )


def enable_incremental(
    database: str,
    *,
    now: datetime,
    trigger: Sweep.Trigger,
    actor: User | None = None,
    clock: Clock = timezone.now,
) -> Outcome:
    """Vacuum the vendor's file into one that can give space back in steps from then on.

    This changes what the file's header says, for good, and blocks its writers while it runs: for
    a person who agreed to both.
    """

    def work(store: Store, _before: Space, _is_cancelled: Callable[[], bool]) -> _Done:
        _, refusal = step_refusals(store)
        if refusal or not isinstance(store, StepwiseStore):
            return _idle(refusal)
        return _ended(store.enable_steps())

    return _Sweeper(database=database, now=now, trigger=trigger, actor=actor, clock=clock).sweep(
        work, enable_incremental=True
    )


def _idle(reason: str) -> _Done:
    """There was nothing to do, and that is no failure."""
    return _Done(vacuum=not_vacuumed(reason), ending=Ending.DONE)


def _ended(result: VacuumResult) -> _Done:
    if result.ran:
        return _Done(vacuum=result, ending=Ending.DONE)
    return _Done(vacuum=result, ending=Ending.FAILED, error=result.reason)


def _stepped(store: StepwiseStore, freed: Freed) -> _Done:
    """Give back what the steps wrote beside, and say what they did."""
    busy = None if freed.error else store.truncate_log()
    words = f"{freed.byte_count:,} bytes back in {freed.steps:,} step{'s' * (freed.steps != 1)}"
    reason = f"{store.alias}: gave {words}{KEPT_LOG if busy else ''}."
    if freed.ending is Ending.INTERRUPTED:
        reason += " Interrupted: run the same command again to go on."
    result = VacuumResult(ran=freed.steps > 0, reason=reason, needed_bytes=0, wal_busy=busy)
    return _Done(vacuum=result, ending=freed.ending, error=freed.error)
