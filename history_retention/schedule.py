"""What runs by itself: tasks and the daily job say when, this says what.

Only two things ever happen without a person: reclaim, which takes threads that no one can
resume, and the prunes that somebody wrote down as bounds, in POLICIES or in a schedule's own
arguments. A store that fails does not stop the others; the failure is told at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from django.core.exceptions import ImproperlyConfigured

from . import services, workers
from .conf import default_store, get_settings
from .exceptions import HistoryRetentionError, NoNamingTable, SweepRunning
from .facts import Ending, Plan
from .models import Sweep
from .policy import Bounds

logger = logging.getLogger(__name__)

Counts = dict[str, int | bool | str]
"""What was done to one store, under the names of the ledger's fields; or why it was skipped."""

Report = dict[str, Counts]
"""The counts of each store by its alias."""


@dataclass
class Round:
    """A pass over stores. A refusal that the rules ask for is a skip, anything else a failure."""

    report: Report = field(default_factory=dict)
    failures: dict[str, HistoryRetentionError] = field(default_factory=dict)

    def attempt(self, verb: str, alias: str, work: Callable[[str], Counts]) -> None:
        """Do the work on one store and note what came of it."""
        try:
            self.report[alias] = work(alias)
        except (SweepRunning, NoNamingTable) as refusal:
            logger.warning("%s of %s skipped: %s", verb, alias, refusal)
            self.report[alias] = {"skipped": str(refusal)}
        except HistoryRetentionError as error:
            self.failures.setdefault(alias, error)
        except ImproperlyConfigured as error:
            self.failures.setdefault(alias, HistoryRetentionError(f"{alias}: {error}"))
        else:
            logger.info("%s of %s: %s", verb, alias, self.report[alias])

    def finish(self) -> Report:
        """Return the report; raise HistoryRetentionError that names every store that failed."""
        if len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        if self.failures:
            sentences = dict.fromkeys(map(str, self.failures.values()))
            raise HistoryRetentionError(
                f"{len(self.failures)} stores failed ({', '.join(self.failures)}): "
                f"{' '.join(sentences)}"
            )
        return self.report


def measure(database: str | None, *, now: datetime) -> Report:
    """Measure one store, or all of them, and keep the measurements."""
    return _each(database, "measure", partial(_measure, now=now))


def reclaim(database: str | None, *, now: datetime, parallel: bool = False) -> Report:
    """Reclaim one store, or all of them; with ``parallel``, by as many workers as there are."""
    return _each(database, "reclaim", partial(_reclaim, now=now, parallel=parallel))


def prune(database: str | None, bounds: Bounds, *, now: datetime, parallel: bool = False) -> Report:
    """Prune one store, or all of them, inside the bounds."""
    return _each(database, "prune", partial(_prune, bounds=bounds, now=now, parallel=parallel))


def daily(*, now: datetime) -> None:
    """Measure and reclaim every store, then apply POLICIES."""
    pass_ = Round()
    for alias in _stores():
        pass_.attempt("measure", alias, partial(_measure, now=now))
        pass_.attempt("reclaim", alias, partial(_reclaim, now=now))
    for policy in get_settings().policies:
        pass_.attempt("prune", policy.store, partial(_prune, bounds=policy.bounds, now=now))
    pass_.finish()


def _each(database: str | None, verb: str, work: Callable[[str], Counts]) -> Report:
    pass_ = Round()
    for alias in _stores() if database is None else [database]:
        pass_.attempt(verb, alias, work)
    return pass_.finish()


def _stores() -> list[str]:
    """List the configured stores; UsageError when there is none."""
    return list(get_settings().stores) or [default_store()]


def _measure(alias: str, *, now: datetime) -> Counts:
    readout = services.measure(alias, now=now)
    return {
        "thread_count": readout.thread_count,
        "checkpoint_bytes": readout.checkpoint_bytes,
        "file_bytes": readout.space.file_bytes,
        "free_bytes": readout.space.free_bytes,
        "unresumable_count": readout.unresumable.thread_count,
        "unresumable_bytes": readout.unresumable.byte_count,
        "reclaimable_count": readout.reclaimable.thread_count,
        "reclaimable_bytes": readout.reclaimable.byte_count,
    }


def _reclaim(alias: str, *, now: datetime, parallel: bool = False) -> Counts:
    if resumed := _resumed(alias, now):
        return resumed
    return _remove(services.plan_reclaim(alias, now=now), parallel=parallel)


def _prune(alias: str, *, bounds: Bounds, now: datetime, parallel: bool = False) -> Counts:
    if resumed := _resumed(alias, now):
        return resumed
    return _remove(services.plan_prune(alias, bounds, now=now), parallel=parallel)


def _resumed(alias: str, now: datetime) -> Counts:
    """Resume a sweep whose messages were lost, before another one of the store is thought of."""
    sweep = workers.resume_silent(alias, now=now)
    if sweep is None:
        return {}
    logger.warning(
        "%s: nobody was at sweep %s for an hour, so its workers were told of it again; nothing "
        "else was begun",
        alias,
        sweep.pk,
    )
    return {"resumed_sweep_id": sweep.pk}


def _remove(plan: Plan, *, parallel: bool) -> Counts:
    """Execute the plan, or hand it to workers; HistoryRetentionError when it did not end well."""
    if parallel and plan.threads:
        sweep = workers.hand_over(plan, trigger=Sweep.Trigger.SCHEDULE)
        return {
            "planned_threads": plan.planned.thread_count,
            "kept_threads": len(plan.kept),
            "sweep_id": sweep.pk,
            "batch_count": sweep.batch_count,
        }
    outcome = services.execute(plan, trigger=Sweep.Trigger.SCHEDULE)
    if outcome.ending is not Ending.DONE:
        raise HistoryRetentionError(outcome.error)
    return {
        "planned_threads": plan.planned.thread_count,
        "kept_threads": len(plan.kept),
        "removed_threads": outcome.removed.thread_count,
        "removed_checkpoints": outcome.removed.checkpoint_count,
        "removed_writes": outcome.removed.write_count,
        "removed_bytes": outcome.removed.byte_count,
        "skipped_threads": len(outcome.skipped),
        "vacuumed": outcome.vacuum.ran,
    }
