"""Doing what maintenance decided: archiving entries in place, and deleting others.

Every entry is compared with what was decided about before it is changed: one that somebody wrote
to meanwhile stays as it is. Deletions are a sweep like any other, with archives and on record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from django.utils import timezone

from ...facts import KeptThread
from ...services import Clock, Trigger, silent
from ...stores.base import Progress
from .maintenance import Decision, Rules, decide, defaults_of
from .operations import Deleted, delete, in_a_box, opened, plan_delete, recorded_work

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """What a cleanup did.

    ``archived`` are the keys of entries that were archived in place, ``changed`` of those that
    somebody wrote to before their turn, ``kept`` those that a hold or an agent keeps.
    """

    archived: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[KeptThread, ...]
    deleted: Deleted | None


def rules_of(database: str, change: Callable[[Rules], Rules] = lambda rules: rules) -> Rules:
    """Return the vendor's defaults for the file, as a person changed them."""
    with opened(database) as store:
        return change(defaults_of(store.age, store.version))


def decisions_of(database: str, rules: Rules, *, now: datetime) -> list[Decision]:
    """Decide every entry of a store, newest activity first; changes nothing."""
    with opened(database) as store:
        return decide(store.entries(), store.age, rules, now)


def clean_up(
    database: str,
    decisions: Sequence[Decision],
    *,
    now: datetime,
    trigger: Trigger,
    actor: User | None = None,
    progress: Progress = silent,
    clock: Clock = timezone.now,
) -> CleanedUp:
    """Archive and delete as decided; raises as ``operations.delete`` does."""
    in_place = [each for each in decisions if each.action.archive_reason]
    archived, changed = _archived_in_place(database, in_place, trigger, actor, clock)
    wanted = {each.entry.key: each.entry for each in decisions if each.action.deletes}
    with opened(database) as store:
        there = {entry.key: entry for entry in store.entries()}
        same = [key for key, entry in wanted.items() if there.get(key) == entry]
    changed += [key for key in wanted if key not in same]
    deleted = None
    kept: tuple[KeptThread, ...] = ()
    if same:
        plan = plan_delete(database, same, now=now, progress=progress)
        kept = plan.kept
        deleted = delete(plan, trigger=trigger, actor=actor, progress=progress, clock=clock)
    return CleanedUp(archived=tuple(archived), changed=tuple(changed), kept=kept, deleted=deleted)


def _archived_in_place(
    database: str,
    decisions: Sequence[Decision],
    trigger: Trigger,
    actor: User | None,
    clock: Clock,
) -> tuple[list[str], list[str]]:
    """Archive entries one transaction each; return the keys of those, and of the changed ones."""
    archived: list[str] = []
    changed: list[str] = []
    if not decisions:
        return archived, changed
    bounds: dict[str, object] = {"archived_in_place": [each.entry.key for each in decisions]}
    with recorded_work(database, bounds, trigger, actor, clock) as (store, boxes):
        for decision in decisions:
            entry, reason = decision.entry, decision.action.archive_reason
            is_done = in_a_box(boxes, partial(store.archive_in_place, entry, reason, clock()))
            (archived if is_done else changed).append(entry.key)
            boxes.rest(0, is_last=decision is decisions[-1])
    return archived, changed
