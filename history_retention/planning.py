"""Turning a choice into a plan: the chosen threads weighed, dated once more, and listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from . import recording, witnesses
from .exceptions import NoNamingTable
from .facts import KeepReason, KeptThread, NamedThread, Plan, PlannedThread, Space, State
from .models import Sweep
from .policy import (
    Bounds,
    Choice,
    Rules,
    choose,
    is_still,
    leading,
    settled_activity,
    state_of,
)
from .ranking import rank
from .stores.base import Progress, Store

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Allows = Callable[[NamedThread, datetime], bool]


def plan_with(
    store: Store, rules: Rules, progress: Progress, *, limit: int | None = None, force: bool = False
) -> Plan:
    """Plan what the rules allow; with ``limit``, those longest idle, prunable ones first.

    The age that chose a thread is that of its ids. Its newest row may say of itself that it is
    younger by one node's run, so the chosen threads are asked again once that row is read.
    """
    mark = store.naming_mark()
    settled_before = None if limit is not None else settled_activity(rules)
    choice = choose(store.indexed_threads(progress, settled_before), rules)
    if not force:
        _require_a_named_thread(store, choice)
    kept = list(choice.kept)
    left = len(choice.prunable) + len(choice.reclaimable)

    def confirmed(chosen: Sequence[NamedThread], allows: Allows) -> Iterator[PlannedThread]:
        nonlocal left
        in_turn = chosen if limit is None else sorted(chosen, key=rank)
        behind, waiting = left - len(in_turn), iter(in_turn)
        for thread in store.weighed(in_turn):
            left -= _passed(waiting, thread)
            if thread.last_activity is None:
                thread_id = thread.stored.thread_id
                kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.UNKNOWN_AGE))
            elif allows(thread, thread.last_activity):
                yield _planned(thread, thread.last_activity, rules)
        left = behind

    def in_bounds(thread: NamedThread, activity: datetime) -> bool:
        if rules.bounds is None or not rules.bounds.old_enough(activity, rules.now):
            return False
        reason = _reason_to_keep(thread, rules, rules.bounds)
        if reason is not None:
            kept.append(KeptThread(thread_id=thread.stored.thread_id, reason=reason))
        return reason is None

    def in_grace_no_more(_thread: NamedThread, activity: datetime) -> bool:
        return is_still(activity, rules)

    prunable = list(islice(confirmed(store.completed(choice.prunable), in_bounds), limit))
    rest = None if limit is None else limit - len(prunable)
    reclaimable = list(islice(confirmed(choice.reclaimable, in_grace_no_more), rest))
    prunable.sort(key=lambda thread: (thread.last_activity, thread.thread_id), reverse=True)
    return Plan(
        database=store.alias,
        layout=store.layout,
        as_of=rules.now,
        grace=rules.grace,
        bounds=rules.bounds,
        prunable=tuple(prunable),
        reclaimable=tuple(reclaimable),
        kept=tuple(kept),
        naming_mark=mark,
        notes=store.notes,
        transcripts=store.transcripts,
        named_by=store.named_by,
        witnesses=choice.witnesses,
        limit=limit,
        left_by_limit=0 if limit is None else left,
        reclaims=rules.reclaim,
        orphan_writes=rules.orphan_writes,
        excluded=rules.excluded,
        unmatched_exclusions=tuple(sorted(choice.unmatched_exclusions)),
    )


def _passed(waiting: Iterator[NamedThread], thread: NamedThread) -> int:
    """Go on to the thread; count it, and those before it that are gone since they were chosen."""
    for count, chosen in enumerate(waiting, 1):
        if chosen.stored.thread_id == thread.stored.thread_id:
            return count
    return 0


def _reason_to_keep(thread: NamedThread, rules: Rules, bounds: Bounds) -> KeepReason | None:
    """Say why a thread that is old enough stays, by what only its newest rows could tell."""
    if state_of(thread, rules) is State.GRACE:
        return KeepReason.LIVE
    if bounds.skip_unfinished and thread.stored.awaiting:
        return KeepReason.UNFINISHED
    return None


def _require_a_named_thread(store: Store, choice: Choice) -> None:
    """Refuse to call every thread unresumable because of a setting that looks wrong.

    A wrong THREAD_FIELD, or another copy of the host's database, names nothing here. Nor does the
    right one once only orphans are left; but that one still holds a conversation of those that
    named a thread of this store when an earlier sweep took note of it.
    """
    if not store.named_by or not choice.reclaimable or choice.witnesses:
        return
    with recording.ledger():
        named_before = witnesses.on_record(store.alias, store.named_by)
    if not store.names_any(named_before):
        raise NoNamingTable(
            f"{store.alias}: not one of the {choice.thread_count:,} threads here is named by "
            f"{store.named_by}, nor is one that an earlier sweep saw it name; that looks like a "
            "wrong field or another database, so none was removed. Check CONVERSATIONS of "
            f"{store.alias!r}; if nothing is wrong, pass --force to history_reclaim."
        )


def record_of(
    plan: Plan,
    *,
    trigger: Sweep.Trigger,
    actor: User | None,
    started_at: datetime,
    space: Space,
    batches: Sequence[Sequence[PlannedThread]] = (),
) -> recording.SweepRecord:
    """Put the sweep of a plan on record, before its first delete; see ``SweepRecord``."""
    return recording.SweepRecord(
        kind=Sweep.Kind.PRUNE if plan.bounds else Sweep.Kind.RECLAIM,
        database=plan.database,
        layout=plan.layout,
        as_of=plan.as_of,
        trigger=trigger,
        actor=actor,
        started_at=started_at,
        space=space,
        bounds=recorded_bounds(plan),
        plan=plan,
        batches=batches,
    )


def recorded_bounds(plan: Plan) -> dict[str, object]:
    """Return the bounds as the ledger keeps them; a selection by its size, not by its ids."""
    bounds = plan.bounds or Bounds(thread_ids=frozenset())
    given: dict[str, object] = {
        "grace_hours": plan.grace.total_seconds() / 3600 if plan.reclaims else None,
        "limit": plan.limit,
        "orphan_writes": plan.orphan_writes,
        "excluded": sorted(plan.excluded),
        "older_than_days": bounds.older_than_days,
        "keep_last": bounds.keep_last,
        "all": bounds.everything,
        "command": bounds.command,
        "project": bounds.project,
        "skip_unfinished": bounds.skip_unfinished,
        "selected": len(bounds.thread_ids or ()),
    }
    return {name: value for name, value in given.items() if value}


def _planned(thread: NamedThread, activity: datetime, rules: Rules) -> PlannedThread:
    stored = thread.stored
    first = leading(thread)
    return PlannedThread(
        thread_id=stored.thread_id,
        conversation_ids=tuple(c.conversation_id for c in thread.conversations),
        command=first.command if first else "",
        project=first.project if first else "",
        last_activity=activity,
        turn_count=sum(c.turn_count for c in thread.conversations),
        checkpoint_count=stored.checkpoint_count,
        write_count=stored.write_count,
        byte_count=stored.byte_count or 0,
        recently_active=not is_still(activity, rules),
        awaiting=stored.awaiting,
        fingerprint=stored.fingerprint,
    )
