"""Measuring an agent's store against a disk budget, and carrying out what the budget asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from django.utils import timezone

from ...services import Clock, Trigger, silent
from ...stores.base import Progress
from .archives.files import Archive
from .archives.inventory import Holding
from .archives.names import REASONS
from .budget import BudgetPlan, Tier, Victim, plan_budget
from .layout import OpenClawStore
from .listing import Listing
from .maintenance import RECENT, Rules, decide
from .operations import Deleted, delete, in_a_box, opened, plan_delete, recorded_work

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CAP = "active-session-cap"
"""Why OpenClaw archived an entry in place that the last tier may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """What a budget took: names of archives, archives of sessions, and deleted entries."""

    archives: tuple[str, ...] = ()
    sessions: tuple[Archive, ...] = ()
    deleted: Deleted | None = None


def budget_of(
    database: str, rules: Rules, *, now: datetime, progress: Progress = silent
) -> BudgetPlan:
    """Plan what a budget asks for.

    Reads every transcript to tell its size, but for a store that takes no more on disk.
    """
    planned = partial(
        plan_budget, max_bytes=rules.max_disk_bytes, high_water_bytes=rules.high_water_bytes
    )
    with opened(database) as store:
        on_disk = _bytes_on_disk(store)
        if rules.max_disk_bytes is None or on_disk <= rules.max_disk_bytes:
            return planned(on_disk, ())
        listing = store.listing(progress)
        if store.age.has_nodes:
            return planned(on_disk, _tiers(store, listing))
        stored = sum(each.size.byte_count + each.entry.byte_count for each in listing.entries)
        return planned(stored, _idle_entries(store, rules, now))


def keep_budget(
    database: str,
    plan: BudgetPlan,
    *,
    now: datetime,
    trigger: Trigger,
    actor: User | None = None,
    clock: Clock = timezone.now,
) -> Budgeted:
    """Remove what a budget asks for, on record; raises as ``operations.delete`` does."""
    gone: list[str] = []
    archived: list[Archive] = []
    bounds: dict[str, object] = {"max_disk_bytes": plan.max_bytes}
    with recorded_work(database, bounds, trigger, actor, clock) as (store, boxes):
        held = {holding.name.name: holding for holding in store.archives.all()}
        names = [name for name in plan.of(Tier.ARCHIVE) if name in held]
        gone += [name for name in names if store.archives.remove(held[name])]
        for session_id in plan.of(Tier.SESSION):
            made = in_a_box(boxes, partial(store.remover.remove_unneeded, session_id, clock()))
            archived += made
            boxes.rest(0)
    deleted = None
    if keys := plan.of(Tier.ENTRY):
        entries = plan_delete(database, keys, now=now)
        deleted = delete(entries, trigger=trigger, actor=actor, clock=clock)
    return Budgeted(archives=tuple(gone), sessions=tuple(archived), deleted=deleted)


def _tiers(store: OpenClawStore, listing: Listing) -> Iterator[Victim]:
    """Give what age B lets go: archives, sessions that no entry needs, entries of the cap."""
    for holding in reversed(store.archives.all()):
        if holding.path is not None and holding.name.reason in REASONS:
            yield Victim(tier=Tier.ARCHIVE, name=holding.name.name, byte_count=_bytes_of(holding))
    for window in store.remover.unneeded():
        size = store.sizes.of([window.session_id])
        yield Victim(tier=Tier.SESSION, name=window.session_id, byte_count=size.byte_count)
    capped = [each for each in listing.entries if each.entry.told.get("archiveReason") == CAP]
    capped.sort(key=lambda each: (each.entry.archived_at or 0, each.entry.key))
    for each in capped:
        if each.entry.archived_at is not None:
            yield Victim(tier=Tier.ENTRY, name=each.entry.key, byte_count=each.size.byte_count)


def _idle_entries(store: OpenClawStore, rules: Rules, now: datetime) -> Iterator[Victim]:
    """Give the entries of age A that nothing protects, the longest idle first."""
    decisions = decide(store.entries(), store.age, rules, now)
    free = [each.entry for each in decisions if each.reason == RECENT]
    free.sort(key=lambda entry: (entry.updated_at, entry.key))
    texts = {entry.key: entry.byte_count for entry in free}
    for removal in store.removals(list(texts)):
        freed = store.sizes.of(removal.session_ids).byte_count + texts[removal.key]
        yield Victim(tier=Tier.ENTRY, name=removal.key, byte_count=freed)


def _bytes_on_disk(store: OpenClawStore) -> int:
    """Return the file with its log, and the archives beside it."""
    space = store.space()
    archives = (holding for holding in store.archives.all() if holding.path is not None)
    return space.file_bytes + space.wal_bytes + sum(each.byte_count for each in archives)


def _bytes_of(holding: Holding) -> int:
    """Return what an archive takes: its file, and its row of the same size."""
    return holding.byte_count * (2 if holding.has_row else 1)
