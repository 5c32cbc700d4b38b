"""Short write transactions with gaps between them, so that a live agent never notices.

A box holds a store's write lock for about ``BOX_SECONDS``; then the lock is free for
``GAP_SECONDS``, or for as long as it was held if that was longer: a writer asks again every
100 ms at worst, and one that misses every gap starves as surely as behind one long transaction.
Where removals lock nobody out, or the setting says that nobody is there, there is no gap;
``MAX_BYTES_PER_SECOND`` slows them down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from .conf import get_settings
from .exceptions import StoreBusy
from .stores.base import Store

LONG_HOLD_SECONDS = 0.1
"""A lock held longer than this halves the next box."""

LONGEST_SLEEP_SECONDS = 0.5
"""How long a throttled sweep waits at a time before it asks whether to go on."""


def unthrottled(_byte_count: int) -> float:
    """Wait for nothing."""
    return 0.0


class Throttle:
    """Holds removals to so many bytes a second, counted from the first of them."""

    def __init__(self, bytes_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._free_at = clock()

    def __call__(self, byte_count: int) -> float:
        """Return the seconds until the bytes that were removed so far are allowed for."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + byte_count / self._bytes_per_second
        return self._free_at - now


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a box may hold the write lock and how long the next one waits, in seconds.

    ``throttled`` is told the bytes that a box removed and returns how long to wait for them.
    """

    box_seconds: float
    gap_seconds: float
    throttled: Callable[[int], float] = unthrottled

    @classmethod
    def configured(cls, throttle: Callable[[int], Callable[[int], float]] | None = None) -> Self:
        """Return what the settings say; ``throttle`` makes of bytes a second what waits."""
        settings = get_settings()
        most = settings.max_bytes_per_second
        return cls(
            box_seconds=settings.box_seconds,
            gap_seconds=settings.gap_seconds,
            throttled=throttle(most) if throttle and most else unthrottled,
        )


class Boxes:
    """The boxes of one sweep, one after the other."""

    def __init__(self, store: Store, pace: Pace, stop: Callable[[], bool]) -> None:
        self._store = store
        self._pace = pace
        self._stop = stop
        self._box_seconds = pace.box_seconds
        self._held_seconds = 0.0
        self._refused_since: dict[type[StoreBusy], float] = {}

    def run(self, work: Callable[[float], None]) -> bool:
        """Do the work in a write transaction; it gets the ``time.monotonic()`` to end at.

        False, after a gap, when somebody else has the lock. A locked store is asked again for as
        long as its connection would wait, and then raises StoreBusy; it is not waited for with
        the lock of a half-done commit in hand. After that, the same refusal is raised at once.
        """
        started = time.monotonic()
        try:
            with self._store.removing():
                started = time.monotonic()
                work(started + self._box_seconds)
        except StoreBusy as busy:
            since = self._refused_since.setdefault(type(busy), started)
            if time.monotonic() - since >= self._store.patience_seconds:
                raise
            time.sleep(self._pace.gap_seconds)
            return False
        self._refused_since.clear()
        self._held_seconds = time.monotonic() - started
        is_long = self._held_seconds > LONG_HOLD_SECONDS
        self._box_seconds = self._box_seconds / 2 if is_long else self._pace.box_seconds
        return True

    def wait_for_turn(self) -> None:
        """Wait for what others have removed under the same limit."""
        _rest(self._pace.throttled(0), self._stop)

    def rest(self, byte_count: int, *, is_last: bool = False) -> None:
        """Leave the lock to others, and wait for what a throttled box removed.

        What the last one removed is left for others to wait for.
        """
        throttled = self._pace.throttled(byte_count)
        if is_last:
            return
        gap = self._pace.gap_seconds
        is_alone = self._store.sweeps_side_by_side or not gap
        _rest(throttled if is_alone else max(gap, self._held_seconds, throttled), self._stop)


def _rest(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, but no longer than until somebody wants an end."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_SLEEP_SECONDS))
        if left > LONGEST_SLEEP_SECONDS and stop():
            return
