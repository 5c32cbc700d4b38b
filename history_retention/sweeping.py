"""Removing planned threads in boxes, so that a live agent never notices.

Inside its box, before it is deleted, every thread is compared with what the plan saw; one that
changed is left alone and reported. The ledger is asked for holds and leases right before the lock
is taken, so that a slow ledger never keeps an agent waiting.

A box that takes too long is tried again with fewer threads, until one alone is to blame; that one
is left whole, and so are those to which somebody's open transaction may be writing. The others go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .boxes import Boxes, Pace
from .exceptions import HistoryRetentionError, LedgerMissing, StoreTimedOut, WriterAtWork
from .facts import Ending, KeepReason, PlannedThread, SkipReason
from .outcomes import Removed, SkippedThread
from .stores.base import Store, parts
from .words import shortened, spelled_out

FIRST_THREADS = 200
"""Threads in reach of the first box; of later ones, twice as many as the last one dealt with."""

FEWER = 10
"""How many times fewer threads are tried after a box that took too long."""

MOST_TIMED_OUT = 20
"""Threads in a row that are too much alone: after so many, it is the store that is too slow."""

MOST_NAMED = 3
"""Threads that the sentence about those left whole names."""

_SKIP_REASONS = {KeepReason.HELD: SkipReason.HELD, KeepReason.LEASED: SkipReason.LEASED}


@dataclass(slots=True, kw_only=True)
class Swept:
    """What the boxes have done so far; grows by a commit at a time.

    ``refusal`` is the sentence about threads that were left whole though they had not changed;
    at the end it is the ``error``. ``ledger_refused`` tells that ``error`` is the ledger's and
    says nothing of the store.
    """

    removed: Removed = field(default_factory=Removed)
    thread_ids: list[str] = field(default_factory=list)
    skipped: list[SkippedThread] = field(default_factory=list)
    ending: Ending = Ending.RUNNING
    error: str = ""
    refusal: str = ""
    ledger_refused: bool = False

    @property
    def has_begun(self) -> bool:
        """Tell whether a thread was dealt with."""
        return bool(self.thread_ids or self.skipped)


def sweep(
    store: Store,
    threads: Sequence[PlannedThread],
    swept: Swept,
    *,
    naming_mark: int,
    pace: Pace,
    protections: Callable[[Sequence[str]], Mapping[str, KeepReason]],
    stop: Callable[[], bool],
    committed: Callable[[], None],
) -> None:
    """Remove the threads that are still as planned, counting in ``swept`` what was committed.

    Every commit is told to ``committed``. ``protections`` is asked about the threads in reach of
    each box, right before it. Does not raise for what the store or the ledger
    refuses: ``swept.error`` is the sentence.
    """
    boxes = Boxes(store, pace, stop)
    reach = _Reach(threads)
    refused = _Refused()
    try:
        boxes.wait_for_turn()
        while reach.is_left:
            if stop():
                swept.ending = Ending.INTERRUPTED
                return
            near = reach.threads()
            held = protections([thread.thread_id for thread in near])
            box = _Box(store, naming_mark, near, held)
            if not _is_done(box, boxes, reach, refused):
                continue
            swept.refusal = refused.sentence()
            reach.advance(len(box.removed), len(box.skipped))
            _count(swept, box)
            committed()
            byte_count = sum(thread.byte_count for thread in box.removed)
            boxes.rest(byte_count, is_last=not reach.is_left)
    except HistoryRetentionError as error:
        _fail(swept, str(error))
        swept.ledger_refused = isinstance(error, LedgerMissing)
    else:
        swept.ending = Ending.DONE
        if swept.refusal:
            _fail(swept, swept.refusal)


def _is_done(box: _Box, boxes: Boxes, reach: _Reach, refused: _Refused) -> bool:
    """Run the box; False when its threads are to be looked at anew."""
    try:
        return boxes.run(box.run)
    except StoreTimedOut as slow:
        if reach.shorten(box.tried):
            return False
        if not box.tried or reach.is_slow_throughout():
            raise
        refused.note(slow, box.leave(SkipReason.TIMED_OUT))
    except WriterAtWork as busy:
        refused.note(busy, box.leave(SkipReason.BUSY))
    return True


class _Reach:
    """How far the sweep has come, and how many threads the next box gets to see."""

    def __init__(self, threads: Sequence[PlannedThread]) -> None:
        self._all = threads
        self._done = 0
        self._most = FIRST_THREADS
        self._slow_until = 0
        self._timed_out = 0

    @property
    def is_left(self) -> bool:
        return self._done < len(self._all)

    def threads(self) -> Sequence[PlannedThread]:
        return self._all[self._done : self._done + self._most]

    def advance(self, removed: int, skipped: int) -> None:
        """Go past what a box dealt with; past all that was too slow together, at full speed."""
        self._done += removed + skipped
        if removed:
            self._timed_out = 0
        if self._done >= self._slow_until:
            self._most = max(FIRST_THREADS, 2 * (removed + skipped))

    def shorten(self, tried: int) -> bool:
        """Let the next boxes have fewer threads than took too long; False when that is just one."""
        if tried > 1:
            self._slow_until = max(self._slow_until, self._done + tried)
            self._most = max(1, tried // FEWER)
        return tried > 1

    def is_slow_throughout(self) -> bool:
        """Count a thread that took too long alone; tell whether there are too many in a row."""
        self._timed_out += 1
        return self._timed_out > MOST_TIMED_OUT


class _Refused:
    """The threads that were left whole though they had not changed, and why."""

    def __init__(self) -> None:
        self._left: dict[str, list[str]] = {}

    def note(self, error: HistoryRetentionError, thread_ids: Sequence[str]) -> None:
        self._left.setdefault(str(error), []).extend(thread_ids)

    def sentence(self) -> str:
        """Say why, and name the first few; empty when there are none."""
        return " ".join(
            f"{error} Left whole for that: {self._named(thread_ids)}."
            for error, thread_ids in self._left.items()
        )

    @staticmethod
    def _named(thread_ids: Sequence[str]) -> str:
        first = ", ".join(shortened(spelled_out(each)) for each in thread_ids[:MOST_NAMED])
        more = len(thread_ids) - MOST_NAMED
        return f"{first} and {more:,} more" if more > 0 else first


class _Box:
    """The work of one transaction; its results count once that is committed."""

    def __init__(
        self,
        store: Store,
        naming_mark: int,
        threads: Sequence[PlannedThread],
        held: Mapping[str, KeepReason],
    ) -> None:
        self.removed: list[PlannedThread] = []
        self.skipped: list[SkippedThread] = []
        self.tried = 0
        self._store = store
        self._naming_mark = naming_mark
        self._threads = threads
        self._held = held

    def run(self, deadline: float) -> None:
        """Go on with whole threads until the time is up; at least one is dealt with."""
        for part in parts(self._threads, lambda thread: thread, self._store.rows_a_check):
            self._try(part)
            changed = dict(self._store.rechecked(part, self._naming_mark))
            for thread in part:
                if thread.thread_id in self._held:
                    reason = _SKIP_REASONS[self._held[thread.thread_id]]
                    changed.setdefault(thread.thread_id, reason)
            for some in _removable_at_once(part, self._store):
                self._deal_with(some, changed)
                is_full = len(self.removed) >= self._store.threads_a_box
                if is_full or time.monotonic() >= deadline:
                    return

    def _deal_with(
        self, threads: Sequence[PlannedThread], changed: Mapping[str, SkipReason]
    ) -> None:
        self._try(threads)
        self.skipped += [
            SkippedThread(thread_id=thread.thread_id, reason=changed[thread.thread_id])
            for thread in threads
            if thread.thread_id in changed
        ]
        same = [thread for thread in threads if thread.thread_id not in changed]
        if same:
            self._store.remove(same)
        self.removed += same

    def _try(self, threads: Sequence[PlannedThread]) -> None:
        self.tried = len(self.removed) + len(self.skipped) + len(threads)

    def leave(self, reason: SkipReason) -> list[str]:
        """Skip what was tried and is undone; return the threads that would have been removed."""
        unchanged = {thread.thread_id for thread in self._threads[: self.tried]}
        unchanged -= {skipped.thread_id for skipped in self.skipped}
        left = sorted(unchanged)
        self.removed = []
        self.skipped += [SkippedThread(thread_id=each, reason=reason) for each in left]
        return left


def _removable_at_once(
    threads: Sequence[PlannedThread], store: Store
) -> Iterator[Sequence[PlannedThread]]:
    """Cut threads into what the store's one ``remove`` takes."""
    start = size = 0
    for position, thread in enumerate(threads):
        is_many = position - start == store.threads_a_removal
        if position > start and (is_many or size + thread.byte_count > store.bytes_a_removal):
            yield threads[start:position]
            start, size = position, 0
        size += thread.byte_count
    yield threads[start:]


def _fail(swept: Swept, error: str) -> None:
    swept.ending = Ending.PARTIAL if swept.removed.thread_count else Ending.FAILED
    swept.error = error


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
