"""Measure, plan, remove, vacuum: the only code that takes anything from a vendor's store.

Why it is safe to run:

* What may go is decided by ``policy`` from plain values, once, and written down as a ``Plan``.
  A dry run, a confirmation page, the JSON and the execution all show that same plan.
* ``execute`` removes nothing that is not in its plan. Each thread is looked at again inside the
  very transaction that would delete it: rows, conversations, holds and leases must be those of
  the plan, or the thread stays and is reported as skipped.
* A thread goes whole, from all of its tables in one transaction, or it stays whole. A crash, a
  kill or a full disk at any instant leaves it either way, and the report counts commits only.
* Locks are short and there are gaps between them, so that a live agent goes on writing; two
  sweeps of one store exclude each other, and would be harmless if they did not.
* What this cannot read it does not touch: unknown ages and unknown layouts are kept, and said.
* Every sweep is in the ledger before its first delete.

``workers`` does for a plan that many workers share what ``execute`` does for one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

from django.db import DatabaseError
from django.utils import timezone

from . import recording
from .boxes import Pace, Throttle
from .conf import get_settings
from .exceptions import HistoryRetentionError, LedgerMissing, NoNamingTable, UsageError
from .facts import Ending, KeepReason, Naming, Plan, Space
from .measuring import Totals, read, remeasured
from .models import Sweep
from .outcomes import Outcome, VacuumResult
from .planning import plan_with, record_of
from .policy import Bounds, Rules
from .readouts import Readout
from .remembering import Memory
from .stores import open_store
from .stores.base import Progress, Store
from .sweeping import Swept, sweep
from .vacuum_sweeps import enable_incremental, vacuum, vacuum_forecast, vacuum_incrementally
from .vacuuming import not_vacuumed, vacuum_after

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = [
    "Clock",
    "Trigger",
    "enable_incremental",
    "execute",
    "measure",
    "never",
    "plan_prune",
    "plan_reclaim",
    "silent",
    "vacuum",
    "vacuum_forecast",
    "vacuum_incrementally",
]

Trigger = Sweep.Trigger
Clock = Callable[[], datetime]


def silent(verb: str, done: int, total: int) -> None:
    """Show no progress."""


def never() -> bool:
    """Ask nobody to stop."""
    return False


def measure(
    database: str,
    *,
    now: datetime,
    top: int = 5,
    save: bool = True,
    exact: bool = False,
    progress: Progress = silent,
) -> Readout:
    """Measure a store as of ``now``; with ``save``, keep its threads and totals in the ledger.

    ``top`` is how many of the largest threads the readout names. Where the last measuring that
    was kept tells which threads have no new row, those are not read again, unless ``exact`` asks
    for every row. One as of an earlier instant than the last that was kept is not kept itself, as
    a note says: it would replace what threads are now by what they were. Raises
    HistoryRetentionError when the store cannot be read, or when another measuring of it is being
    saved.
    """
    with open_store(database) as store, ExitStack() as stack:
        memory, notes = Memory(database), store.notes
        if save:
            stack.enter_context(store.only_one("measuring"))
            if memory.holds_later(now):
                save, notes = False, (*notes, _not_kept(database))
        rules = Rules(
            now=now,
            grace=get_settings().grace,
            naming=store.naming,
            protected=store.protections() | _holds(database, now, needed=save),
        )
        marks = store.row_marks()
        stored = None if exact else remeasured(store, memory, progress)
        totals = Totals(top)
        threads = totals.counted(read(stored or store.measured_threads(progress), rules))
        if save:
            memory.save(threads)
        else:
            deque(threads, maxlen=0)
        readout = totals.readout(store, rules, notes)
        if save:
            recording.save_measurement(readout, marks)
        return readout


def _not_kept(database: str) -> str:
    return (
        f"{database}: this readout is not kept, since a later one is: run history_readout without "
        "--as-of to keep what is there now."
    )


def _holds(database: str, now: datetime, *, needed: bool) -> dict[str, KeepReason]:
    """Return what is held; a readout that is not kept needs no ledger."""
    try:
        return recording.protections(database, now)
    except LedgerMissing:
        if needed:
            raise
        return {}


def plan_prune(
    database: str,
    bounds: Bounds,
    *,
    now: datetime,
    reclaim: bool = True,
    limit: int | None = None,
    progress: Progress = silent,
) -> Plan:
    """Plan a prune inside the bounds as of ``now``; with ``reclaim``, a reclaim along with it.

    ``limit`` is the most threads that may go, those longest idle first.
    """
    with open_store(database) as store:
        rules = Rules(
            now=now,
            grace=get_settings().grace,
            naming=store.naming,
            bounds=bounds,
            reclaim=reclaim,
            protected=store.protections() | recording.protections(database, now),
        )
        return plan_with(store, rules, progress, limit=limit)


def plan_reclaim(
    database: str,
    *,
    now: datetime,
    grace: timedelta | None = None,
    force: bool = False,
    exclude: Collection[str] = (),
    orphan_writes: bool = False,
    progress: Progress = silent,
) -> Plan:
    """Plan a reclaim: the unresumable threads that were still for the whole grace window.

    ``grace`` below the setting needs ``force``, and so does a store of which CONVERSATIONS names
    not a single thread. ``orphan_writes`` narrows to threads without a single checkpoint. Raises
    NoNamingTable when nothing tells which threads are named.
    """
    configured = get_settings().grace
    grace = configured if grace is None else grace
    if grace < configured and not force:
        raise UsageError(
            f"A grace of {grace} is shorter than the {configured} of the settings, which protects "
            "chats that are still running; nothing was removed. Pass --force if you mean it."
        )
    with open_store(database) as store:
        if store.naming is not Naming.KNOWN and not orphan_writes:
            raise NoNamingTable(
                f"{database}: nothing here tells which threads a conversation names, so no thread "
                f"can be called unresumable and none was removed. Set CONVERSATIONS of {database!r}"
                " in HISTORY_RETENTION, or pass --orphan-writes for threads without a checkpoint."
            )
        rules = Rules(
            now=now,
            grace=grace,
            naming=store.naming,
            orphan_writes=orphan_writes,
            excluded=frozenset(exclude),
            protected=store.protections() | recording.protections(database, now),
        )
        return plan_with(store, rules, progress, force=force or orphan_writes)


def execute(
    plan: Plan,
    *,
    trigger: Sweep.Trigger,
    actor: User | None = None,
    vacuum: bool | None = None,
    stop: Callable[[], bool] = never,
    progress: Progress = silent,
    clock: Clock = timezone.now,
) -> Outcome:
    """Remove what the plan lists and is still as it was planned, then give the space back.

    ``vacuum``: None runs one that takes well under a second, True asks for one, False for none.
    ``stop`` is asked between batches. What the database refuses in the middle is not raised: it
    is ``Outcome.error``. Raises SweepRunning, LedgerMissing or the store's own error before
    anything was removed.
    """
    with open_store(plan.database) as store, store.only_one("sweep"):
        before = store.space()
        record = record_of(plan, trigger=trigger, actor=actor, started_at=clock(), space=before)

        swept = Swept()

        def committed() -> None:
            record.note(swept)
            progress("removing", swept.removed.thread_count, len(plan.threads))

        with record.closing_on_error(clock):
            sweep(
                store,
                sorted(plan.threads, key=attrgetter("thread_id")),
                swept,
                naming_mark=plan.naming_mark,
                pace=Pace.configured(Throttle),
                protections=lambda ids: recording.protections_among(plan.database, clock(), ids),
                stop=lambda: stop() or record.is_cancelled(),
                committed=committed,
            )
            vacuumed, after = _settled(store, swept, vacuum, before)
        unrecorded = record.finish(
            swept.ending, error=swept.error, finished_at=clock(), space=after, vacuum=vacuumed
        )
    return Outcome(
        ending=Ending.PARTIAL if unrecorded and swept.ending is Ending.DONE else swept.ending,
        removed=swept.removed,
        removed_ids=tuple(swept.thread_ids),
        skipped=tuple(swept.skipped),
        space_before=before,
        space_after=after,
        vacuum=vacuumed,
        error=swept.error or unrecorded,
    )


def _settled(
    store: Store, swept: Swept, wanted: bool | None, before: Space
) -> tuple[VacuumResult, Space]:
    """Vacuum as wanted and look at the file again.

    What refuses either, or the ledger, must not cost the report of what is gone by now.
    """
    with suppress(LedgerMissing):  # it will refuse the end of the record too, and be told
        recording.forget_threads(store.alias, swept.thread_ids)
    try:
        return vacuum_after(store, swept, wanted), store.space()
    except (DatabaseError, HistoryRetentionError) as error:
        reason = f"{store.alias}: not vacuumed, and its sizes are those from before ({error})."
        return not_vacuumed(reason), before
