"""Which threads are the most recently active, in a stream of them: by activity, then by id."""

from __future__ import annotations

from datetime import datetime
from heapq import heappush, heappushpop

from .facts import FOREVER, NamedThread

Rank = tuple[datetime, str]
"""How threads are ordered: by activity, then by id."""


def rank(thread: NamedThread) -> Rank:
    """Order threads by activity; an unknown one counts as the newest of all."""
    return (thread.last_activity or FOREVER, thread.stored.thread_id)


def offer(newest: list[Rank], rank: Rank, size: int) -> None:
    """Keep the ``size`` highest ranks in the heap, the lowest of them first."""
    if len(newest) < size:
        heappush(newest, rank)
    else:
        heappushpop(newest, rank)


def is_below_floor(floor: Rank | None, activity: datetime | None, thread_id: str) -> bool:
    """Tell whether the activity ranks under all the threads that ``keep_last`` keeps."""
    return floor is None or (activity or FOREVER, thread_id) < floor
