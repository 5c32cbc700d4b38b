"""What a confirmation page shows of a plan, row by row, ready for its template."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.utils.functional import Promise

from ..facts import KeepReason, Plan, PlannedThread
from ..words import AWAITED, KEPT_BECAUSE, shortened
from .words import readable

MOST_ROWS = 100
"""Threads listed on a page for each store; the totals count all of them."""

MOST_KEPT = 20
"""Kept threads listed for each reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """A thread that would go."""

    whole_id: str
    short_id: str
    conversation_ids: str
    command: str
    project: str
    last_activity: datetime
    turn_count: int
    checkpoint_count: int
    write_count: int
    byte_count: int
    recently_active: bool
    awaiting: str | Promise
    has_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftThreads:
    """Threads that stay for one reason: how many, and the first of them."""

    reason: str | Promise
    count: int
    thread_ids: Sequence[str]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePage:
    """One store's part of a confirmation page, or the sentence that says why it has none."""

    store: str
    error: str = ""
    rows: Sequence[ThreadRow] = ()
    more: int = 0
    thread_count: int = 0
    byte_count: int = 0
    checkpoint_count: int = 0
    write_count: int = 0
    turn_count: int = 0
    recently_active: int = 0
    left: Sequence[LeftThreads] = ()
    notes: Sequence[str] = field(default=())


def store_page(
    plan: Plan,
    *,
    measured: Mapping[str, tuple[int, int, int]] | None = None,
    left_alone: Mapping[str | Promise, Collection[str]] | None = None,
) -> StorePage:
    """Return what a page says about one store's plan.

    ``measured`` has checkpoints, writes and bytes of a thread as last measured: a thread that
    has others now is marked as changed. ``left_alone`` has threads that stay for a reason of
    the page's own.
    """
    threads = plan.threads
    return StorePage(
        store=plan.database,
        rows=[_row(thread, measured or {}) for thread in threads[:MOST_ROWS]],
        more=max(0, len(threads) - MOST_ROWS),
        thread_count=len(threads),
        byte_count=plan.planned.byte_count,
        checkpoint_count=sum(thread.checkpoint_count for thread in threads),
        write_count=sum(thread.write_count for thread in threads),
        turn_count=sum(thread.turn_count for thread in threads),
        recently_active=sum(thread.recently_active for thread in threads),
        left=[*_kept(plan), *_left(left_alone or {})],
        notes=plan.notes,
    )


def _row(thread: PlannedThread, measured: Mapping[str, tuple[int, int, int]]) -> ThreadRow:
    whole = readable(thread.thread_id)
    now = (thread.checkpoint_count, thread.write_count, thread.byte_count)
    return ThreadRow(
        whole_id=whole,
        short_id=shortened(whole),
        conversation_ids=", ".join(map(str, thread.conversation_ids)),
        command=thread.command,
        project=thread.project,
        last_activity=thread.last_activity,
        turn_count=thread.turn_count,
        checkpoint_count=thread.checkpoint_count,
        write_count=thread.write_count,
        byte_count=thread.byte_count,
        recently_active=thread.recently_active,
        awaiting=AWAITED.get(thread.awaiting, ""),
        has_changed=measured.get(thread.thread_id, now) != now,
    )


def _kept(plan: Plan) -> Iterable[LeftThreads]:
    """Group the kept threads by reason, the most frequent first."""
    by_reason = Counter(thread.reason for thread in plan.kept)
    for reason, _count in by_reason.most_common():
        thread_ids = [kept.thread_id for kept in plan.kept if kept.reason is reason]
        yield _left_threads(KEPT_BECAUSE[KeepReason(reason)], thread_ids)


def _left(left_alone: Mapping[str | Promise, Collection[str]]) -> Iterable[LeftThreads]:
    for reason, thread_ids in left_alone.items():
        if thread_ids:
            yield _left_threads(reason, sorted(thread_ids))


def _left_threads(reason: str | Promise, thread_ids: Sequence[str]) -> LeftThreads:
    return LeftThreads(
        reason=reason,
        count=len(thread_ids),
        thread_ids=[readable(thread_id) for thread_id in thread_ids[:MOST_KEPT]],
        more=max(0, len(thread_ids) - MOST_KEPT),
    )
