"""Removing planned threads in short boxes, so that a live agent never notices.

A box is one write transaction of about ``BOX_SECONDS`` that removes whole threads; between two
boxes the lock is free for ``GAP_SECONDS``, or for as long as it was held if that was longer: a
writer asks again every 100 ms at worst, and one that misses every gap starves as surely as behind
one long transaction. Inside the box, before it is deleted, every thread is compared with what the
plan saw; one that changed is left alone and reported. The ledger is asked for holds right before
the lock is taken, so that a slow ledger never keeps an agent waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .exceptions import HistoryRetentionError, StoreBusy
from .facts import Ending, KeepReason, PlannedThread, Removed, SkippedThread, SkipReason
from .stores.base import Store, parts

LONG_HOLD_SECONDS = 0.1
"""A lock held longer than this halves the next box."""

LONGEST_SLEEP_SECONDS = 0.5
"""How long a throttled sweep waits at a time before it asks whether to go on."""

_SKIP_REASONS = {KeepReason.HELD: SkipReason.HELD, KeepReason.LEASED: SkipReason.LEASED}


@dataclass(slots=True, kw_only=True)
class Swept:
    """What the boxes have done so far; grows by a commit at a time."""

    removed: Removed = field(default_factory=Removed)
    thread_ids: list[str] = field(default_factory=list)
    skipped: list[SkippedThread] = field(default_factory=list)
    ending: Ending = Ending.RUNNING
    error: str = ""


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


def sweep(
    store: Store,
    threads: Sequence[PlannedThread],
    swept: Swept,
    *,
    naming_mark: int,
    pace: Pace,
    protections: Callable[[], Mapping[str, KeepReason]],
    stop: Callable[[], bool],
    committed: Callable[[], None],
) -> None:
    """Remove the threads that are still as planned, counting in ``swept`` what was committed.

    Every commit is told to ``committed``. Does not raise for what the store or the ledger
    refuses: ``swept.error`` is the sentence. A locked store is asked again for as long as its
    connection would wait; it is not waited for with the lock of a half-done commit in hand.
    """
    box_seconds = pace.box_seconds
    done = 0
    unlocked_at = time.monotonic()
    try:
        while done < len(threads):
            if stop():
                swept.ending = Ending.INTERRUPTED
                return
            box = _Box(store, naming_mark)
            held_threads = protections()
            started = time.monotonic()
            try:
                with store.removing():
                    started = time.monotonic()
                    box.run(threads[done:], held_threads, started + box_seconds)
            except StoreBusy:
                if time.monotonic() - unlocked_at >= store.patience_seconds:
                    raise
                time.sleep(pace.gap_seconds)
                continue
            unlocked_at = time.monotonic()
            seconds = unlocked_at - started
            box_seconds = box_seconds / 2 if seconds > LONG_HOLD_SECONDS else pace.box_seconds
            done += len(box.removed) + len(box.skipped)
            _count(swept, box)
            committed()
            if done < len(threads):
                throttled = pace.throttled(sum(thread.byte_count for thread in box.removed))
                _rest(max(pace.gap_seconds, seconds, throttled), stop)
    except HistoryRetentionError as error:
        swept.ending = Ending.PARTIAL if swept.removed.thread_count else Ending.FAILED
        swept.error = str(error)
    else:
        swept.ending = Ending.DONE


def _rest(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, but no longer than until somebody wants an end."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_SLEEP_SECONDS))
        if left > LONGEST_SLEEP_SECONDS and stop():
            return


class _Box:
    """The work of one transaction; its results count once that is committed."""

    def __init__(self, store: Store, naming_mark: int) -> None:
        self.removed: list[PlannedThread] = []
        self.skipped: list[SkippedThread] = []
        self._store = store
        self._naming_mark = naming_mark

    def run(
        self, threads: Sequence[PlannedThread], held: Mapping[str, KeepReason], deadline: float
    ) -> None:
        """Go on with whole threads until the time is up; at least one is dealt with."""
        for part in parts(threads, lambda thread: thread, self._store.rows_a_check):
            changed = dict(self._store.rechecked(part, self._naming_mark))
            for thread in part:
                if thread.thread_id in held:
                    reason = _SKIP_REASONS[held[thread.thread_id]]
                    changed.setdefault(thread.thread_id, reason)
            size = self._store.threads_a_removal
            for start in range(0, len(part), size):
                self._deal_with(part[start : start + size], changed)
                if time.monotonic() >= deadline:
                    return

    def _deal_with(
        self, threads: Sequence[PlannedThread], changed: Mapping[str, SkipReason]
    ) -> None:
        same = [thread for thread in threads if thread.thread_id not in changed]
        if same:
            self._store.remove(same)
        self.removed += same
        self.skipped += [
            SkippedThread(thread_id=thread.thread_id, reason=changed[thread.thread_id])
            for thread in threads
            if thread.thread_id in changed
        ]


def _count(swept: Swept, box: _Box) -> None:
    swept.skipped += box.skipped
    swept.thread_ids += [thread.thread_id for thread in box.removed]
    total = swept.removed
    swept.removed = replace(
        total,
        thread_count=total.thread_count + len(box.removed),
        checkpoint_count=total.checkpoint_count + sum(t.checkpoint_count for t in box.removed),
        write_count=total.write_count + sum(t.write_count for t in box.removed),
        byte_count=total.byte_count + sum(t.byte_count for t in box.removed),
    )
