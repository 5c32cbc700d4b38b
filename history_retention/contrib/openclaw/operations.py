"""Deleting and resetting entries that somebody names, on record and under the store's lock.

A delete is a sweep like any other: planned, compared with the plan under the lock, recorded. What
protects an entry's kind from bounds does not protect one that is named; a hold, a lease, a lock
of its model and an agent at work do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.utils import timezone

from ... import recording, services
from ...boxes import Boxes, Pace
from ...conf import get_settings
from ...exceptions import LayoutUnknown
from ...facts import Ending, Plan
from ...models import Sweep
from ...outcomes import Outcome
from ...planning import plan_with
from ...policy import Bounds, Rules
from ...services import Clock, Trigger, silent
from ...stores import open_store
from ...stores.base import Progress
from .layout import OpenClawStore
from .plans import Removal
from .removals import Deletion, EntryProtected, Errand, errand
from .resets import Reset

if TYPE_CHECKING:
    from django.contrib.auth.models import User


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What a delete did: the sweep's outcome, and each entry's own.

    ``pending`` are the names of archives that are rows and no files yet; a later removal, or
    OpenClaw itself, makes those.
    """

    outcome: Outcome
    deletions: tuple[Deletion, ...]
    pending: tuple[str, ...]


@contextmanager
def opened(database: str) -> Iterator[OpenClawStore]:
    """Open the store of an alias; LayoutUnknown when it is none of OpenClaw."""
    with open_store(database) as store:
        if not isinstance(store, OpenClawStore):
            raise LayoutUnknown(
                f"{database}: this is a store of layout {store.layout}, and not of OpenClaw; "
                "nothing was touched. Pass the alias of an OpenClaw store with --database."
            )
        yield store


def plan_delete(
    database: str, keys: Sequence[str], *, now: datetime, progress: Progress = silent
) -> Plan:
    """Plan the removal of the entries of these keys; a key without an entry is left out.

    Raises EntryProtected for one that may not go, and UnreadableFamily when nobody knows what is
    still needed.
    """
    with opened(database) as store:
        store.require_removable(keys)
        rules = Rules(
            now=now,
            grace=get_settings().grace,
            naming=store.naming,
            bounds=Bounds(thread_ids=frozenset(keys)),
            reclaim=False,
            protected=recording.protections(database, now),
        )
        return plan_with(store, rules, progress)


def removals_of(
    database: str, keys: Sequence[str], *, keeps_transcripts: bool = False
) -> list[Removal]:
    """Return what removing entries one after another would archive, remove and leave, and why."""
    with opened(database) as store:
        return list(store.removals(keys, keeps_transcripts=keeps_transcripts))


def delete(
    plan: Plan,
    *,
    trigger: Trigger,
    actor: User | None = None,
    keeps_transcripts: bool = False,
    vacuum: bool | None = None,
    progress: Progress = silent,
    clock: Clock = timezone.now,
) -> Deleted:
    """Remove the entries of a plan, and archive and remove the sessions that only they need.

    With ``keeps_transcripts`` no session is removed. Raises as ``services.execute`` does.
    """
    asked = Errand(keeps_transcripts=keeps_transcripts)
    token = errand.set(asked)
    try:
        outcome = services.execute(
            plan, trigger=trigger, actor=actor, vacuum=vacuum, progress=progress, clock=clock
        )
    finally:
        errand.reset(token)
    return Deleted(outcome=outcome, deletions=tuple(asked.deletions), pending=asked.pending)


def reset(
    database: str,
    key: str,
    *,
    trigger: Trigger,
    actor: User | None = None,
    changes: Mapping[str, Any] | None = None,
    clock: Clock = timezone.now,
) -> Reset:
    """Give a key an empty transcript; ``changes`` are the whole entry of age A afterwards.

    Raises EntryProtected, also for a key that is held or in use, and as ``delete`` does.
    """
    with recorded_work(database, {"reset": key}, trigger, actor, clock) as (store, boxes):
        _require_free(database, key, clock())
        return in_a_box(boxes, lambda: store.reset(key, clock(), changes))


def in_a_box(boxes: Boxes, work: Callable[[], T]) -> T:
    """Do a piece of work in one write transaction, once the lock is free; return its result."""
    done: list[T] = []
    while not boxes.run(lambda _deadline: done.append(work())):
        done.clear()
    return done[0]


@contextmanager
def recorded_work(
    database: str,
    bounds: dict[str, object],
    trigger: Trigger,
    actor: User | None,
    clock: Clock,
) -> Iterator[tuple[OpenClawStore, Boxes]]:
    """Hold the store for work that is no sweep of threads, and keep it on record like one."""
    with opened(database) as store, store.only_one("sweep"):
        now = clock()
        record = recording.SweepRecord(
            kind=Sweep.Kind.PRUNE,
            database=database,
            layout=store.layout,
            as_of=now,
            trigger=trigger,
            actor=actor,
            started_at=now,
            space=store.space(),
            bounds=bounds,
        )
        with record.closing_on_error(clock):
            yield store, Boxes(store, Pace.configured(), services.never)
        record.finish(Ending.DONE, error="", finished_at=clock(), space=store.space())


def _require_free(database: str, key: str, now: datetime) -> None:
    if key in recording.protections(database, now):
        raise EntryProtected(
            f"{database}: {key} is held, or an agent has it in use, so it was not reset. Look at "
            "its holds in the admin."
        )
