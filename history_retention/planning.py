"""Turning a choice into a plan: the chosen threads weighed, dated once more, and listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from .facts import KeepReason, KeptThread, NamedThread, Plan, PlannedThread
from .policy import Rules, choose, is_still, leading, rank
from .stores.base import Progress, Store

Allows = Callable[[datetime], bool]


def plan_with(store: Store, rules: Rules, limit: int | None, progress: Progress) -> Plan:
    """Plan what the rules allow; with ``limit``, those longest idle, prunable ones first.

    The age that chose a thread is that of its ids. Its newest row may say of itself that it is
    younger by one node's run, so the chosen threads are asked again once that row is read.
    """
    mark = store.naming_mark()
    choice = choose(store.indexed_threads(progress), rules)
    kept = list(choice.kept)

    def confirmed(chosen: list[NamedThread], allows: Allows) -> Iterator[PlannedThread]:
        for thread in store.weighed(chosen):
            if thread.last_activity is None:
                thread_id = thread.stored.thread_id
                kept.append(KeptThread(thread_id=thread_id, reason=KeepReason.UNKNOWN_AGE))
            elif allows(thread.last_activity):
                yield _planned(thread, thread.last_activity, rules)

    def in_bounds(activity: datetime) -> bool:
        return rules.bounds is not None and rules.bounds.old_enough(activity, rules.now)

    prunable = list(confirmed(_limited(choice.prunable, limit), in_bounds))
    left = None if limit is None else limit - len(prunable)
    reclaimable = list(
        confirmed(_limited(choice.reclaimable, left), lambda active: is_still(active, rules))
    )
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
    )


def recorded_bounds(plan: Plan) -> dict[str, object]:
    """Return the bounds as the ledger keeps them; a selection by its size, not by its ids."""
    if plan.bounds is None:
        return {"grace_hours": plan.grace.total_seconds() / 3600}
    bounds = plan.bounds
    given: dict[str, object] = {
        "older_than_days": bounds.older_than_days,
        "keep_last": bounds.keep_last,
        "all": bounds.everything,
        "command": bounds.command,
        "project": bounds.project,
        "selected": None if bounds.thread_ids is None else len(bounds.thread_ids),
    }
    return {name: value for name, value in given.items() if value}


def _limited(threads: list[NamedThread], limit: int | None) -> list[NamedThread]:
    """Return at most ``limit`` threads, those longest idle."""
    if limit is None:
        return threads
    return sorted(threads, key=rank)[: max(limit, 0)]


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
        fingerprint=stored.fingerprint,
    )
