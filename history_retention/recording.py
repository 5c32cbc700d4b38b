"""Writing the ledger: measured threads, measurements, sweeps; and reading what protects threads.

Every write is short and outside the store's own transactions, so that a ledger in the same
SQLite file as a store can never wait for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db import Error, connections, router
from django.db.models import QuerySet, Sum

from . import witnesses
from .admission import left_behind, outermost, require_no_shared_sweep_beside
from .exceptions import LedgerMissing
from .facts import Ending, KeepReason, Plan, PlannedThread, Space
from .guard.in_use import in_use
from .models import Batch, Hold, Lease, Measurement, Sweep, Thread
from .outcomes import VacuumResult
from .packing import packed
from .processes import this_process
from .readouts import Readout
from .sweeping import Swept

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ROWS_A_WRITE = 500
MOST_VALUES = 20
"""Commands and projects that a measurement notes, those with the most bytes first."""

SIGN_OF_LIFE_SECONDS = 1.0
"""How often a sweep asks the ledger whether to go on."""

_OWN_FIELDS = [
    field.name
    for field in Sweep._meta.concrete_fields
    if not field.primary_key and field.name != "cancelled_at"
]


@contextmanager
def ledger() -> Iterator[None]:
    """Turn a database error of the ledger into LedgerMissing, which says to migrate.

    A connection that its server has ended is let go of, so that the next use makes a new one.
    """
    try:
        yield
    except Error as error:
        connections[router.db_for_write(Sweep)].close_if_unusable_or_obsolete()
        raise LedgerMissing(
            f"The ledger in database 'default' cannot be used ({error}); run `python manage.py "
            "migrate`, or let this user read and write that database, then run this again."
        ) from error


def protections(database: str, now: datetime) -> dict[str, KeepReason]:
    """Return the thread ids that somebody holds at ``now``, or that a running agent has open."""
    with ledger():
        return _reasons(
            Lease.objects.active(now).thread_ids(database).iterator(),
            in_use.thread_ids(database),
            Hold.objects.active(now).thread_ids(database).iterator(),
        )


def protections_among(
    database: str, now: datetime, thread_ids: Sequence[str]
) -> dict[str, KeepReason]:
    """Return what ``protections`` would, of these threads at least, at a bounded cost for each."""
    with ledger():
        return _reasons(
            _among(Lease.objects.active(now).thread_ids(database), thread_ids),
            in_use.among(database, thread_ids),
            _among(Hold.objects.active(now).thread_ids(database), thread_ids),
        )


def _among(protected: QuerySet[Any, str], thread_ids: Sequence[str]) -> list[str]:
    """Look the threads up, unless so few are protected at all that those are asked for sooner."""
    few = list(protected[:ROWS_A_WRITE])
    if len(few) < ROWS_A_WRITE:
        return few
    starts = range(0, len(thread_ids), ROWS_A_WRITE)
    parts = (thread_ids[start : start + ROWS_A_WRITE] for start in starts)
    return [found for part in parts for found in protected.filter(thread_id__in=part)]


def _reasons(
    leased: Iterable[str], opened: Iterable[str], held: Iterable[str]
) -> dict[str, KeepReason]:
    """Return why each of the threads is kept; a person's word comes first."""
    return (
        dict.fromkeys(leased, KeepReason.LEASED)
        | dict.fromkeys(opened, KeepReason.LEASED)
        | dict.fromkeys(held, KeepReason.HELD)
    )


def forget_threads(database: str, thread_ids: Collection[str]) -> None:
    """Drop the ledger's rows of threads that are gone from the store."""
    digests = (Thread.digest_of(database, thread_id) for thread_id in thread_ids)
    with ledger():
        while batch := list(islice(digests, ROWS_A_WRITE)):
            Thread.objects.filter(digest__in=batch).delete()


def save_measurement(readout: Readout, marks: dict[str, Any]) -> None:
    """Add the totals of a measuring, with what the next one and the lists need to know of it.

    Forgets leases that ran out along with it.
    """
    with ledger():
        Lease.objects.forget_expired()
        Measurement.objects.create(
            store=readout.database,
            layout=readout.layout,
            measured_at=readout.as_of,
            file_bytes=readout.space.file_bytes,
            free_bytes=readout.space.free_bytes,
            wal_bytes=readout.space.wal_bytes,
            checkpoint_bytes=readout.checkpoint_bytes,
            transcript_bytes=readout.transcript_bytes,
            thread_count=readout.thread_count,
            checkpoint_count=readout.checkpoint_count,
            write_count=readout.write_count,
            conversation_count=readout.conversation_count,
            turn_count=readout.turn_count,
            unresumable_count=readout.unresumable.thread_count,
            unresumable_bytes=readout.unresumable.byte_count,
            reclaimable_count=readout.reclaimable.thread_count,
            reclaimable_bytes=readout.reclaimable.byte_count,
            marks=marks,
            largest_values={
                name: _largest(readout.database, name) for name in ("command", "project")
            },
        )


def _largest(database: str, name: str) -> list[tuple[str, int]]:
    """Return the values of a field of the store's threads with the most bytes, and how many."""
    return list(
        Thread.objects.filter(store=database)
        .order_by()
        .values_list(name)
        .annotate(total=Sum("byte_count"))
        .order_by("-total", name)[:MOST_VALUES]
    )


class SweepRecord:
    """The ledger's row of one sweep, from before its first delete to its end.

    A row of the store that still says "running" while its process is gone is closed as
    interrupted. Others are let be: where the lock does not reach (another folder for temporary
    files, another host) that sweep may be at work.
    """

    def __init__(
        self,
        *,
        kind: Sweep.Kind,
        database: str,
        layout: str,
        as_of: datetime,
        trigger: Sweep.Trigger,
        actor: User | None,
        started_at: datetime,
        space: Space,
        bounds: dict[str, object] | None = None,
        plan: Plan | None = None,
        batches: Sequence[Sequence[PlannedThread]] = (),
    ) -> None:
        """Write the row, and the batches of a sweep that workers share along with it.

        Raises SweepRunning while workers are at another sweep of the store.
        """
        self._asked_at = -SIGN_OF_LIFE_SECONDS
        self._is_cancelled = False
        with ledger():  # before the transaction: SQLite lets none go from reading to writing
            ended = left_behind(database, started_at)
        with ledger(), outermost():
            Sweep.objects.filter(pk__in=ended, ending=Ending.RUNNING).update(
                ending=Ending.INTERRUPTED,
                error="The process ended before the sweep did; counts are those of its last note.",
                finished_at=started_at,
            )
            self._sweep = Sweep.objects.create(
                kind=kind,
                store=database,
                layout=layout,
                as_of=as_of,
                trigger=trigger,
                actor=actor,
                started_at=started_at,
                bounds=bounds or {},
                planned_threads=plan.planned.thread_count if plan else 0,
                planned_bytes=plan.planned.byte_count if plan else 0,
                file_bytes_before=space.file_bytes,
                batch_count=len(batches),
                naming_mark=plan.naming_mark if plan else 0,
                process=this_process(),
                witnesses=witnesses.of(plan) if plan else {},
            )
            require_no_shared_sweep_beside(self._sweep)
            Batch.objects.bulk_create(
                (
                    Batch(
                        sweep=self._sweep,
                        position=position,
                        threads=packed(threads),
                        thread_count=len(threads),
                    )
                    for position, threads in enumerate(batches)
                ),
                batch_size=ROWS_A_WRITE,
            )

    @property
    def sweep_id(self) -> int:
        """Return the row's number, by which people and workers name the sweep."""
        return self._sweep.pk

    def is_cancelled(self) -> bool:
        """Tell whether somebody asked for an end, looking once a second."""
        if time.monotonic() - self._asked_at >= SIGN_OF_LIFE_SECONDS:
            self._asked_at = time.monotonic()
            with ledger():
                cancelled = Sweep.objects.filter(pk=self._sweep.pk).exclude(cancelled_at=None)
                self._is_cancelled = cancelled.exists()
        return self._is_cancelled

    @contextmanager
    def closing_on_error(self, clock: Callable[[], datetime]) -> Iterator[None]:
        """Close the row when the work is cut short or fails in a way nobody expected."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self.finish(Ending.INTERRUPTED, error="Stopped by force.", finished_at=clock())
            raise
        except BaseException as error:
            self.finish(Ending.FAILED, error=str(error), finished_at=clock())
            raise

    def note(self, swept: Swept) -> None:
        """Bring the counts up to date after a commit."""
        sweep, removed = self._sweep, swept.removed
        sweep.removed_threads = removed.thread_count
        sweep.removed_checkpoints = removed.checkpoint_count
        sweep.removed_writes = removed.write_count
        sweep.removed_bytes = removed.byte_count
        sweep.skipped_threads = len(swept.skipped)
        self._save()

    def finish(
        self,
        ending: Ending,
        *,
        error: str,
        finished_at: datetime,
        space: Space | None = None,
        vacuum: VacuumResult | None = None,
    ) -> str:
        """Close the row; return why the ledger refused it, or an empty string.

        A ledger that is gone by now does not undo what was done, so the report must go on.
        """
        sweep = self._sweep
        sweep.ending = ending
        sweep.error = storable(error)
        sweep.finished_at = finished_at
        if space is not None:
            sweep.file_bytes_after = space.file_bytes
        if vacuum is not None:
            sweep.vacuumed = vacuum.ran
            sweep.vacuum_reason = vacuum.reason
            sweep.vacuum_seconds = vacuum.seconds
        try:
            self._save()
        except LedgerMissing as missing:
            return str(missing)
        return ""

    def _save(self) -> None:
        """Write what this process knows; whether it is cancelled, somebody else does."""
        with ledger():
            self._sweep.save(update_fields=_OWN_FIELDS)


def storable(text: str) -> str:
    """Return the text with what no database text can hold (stray bytes, NUL) escaped."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
