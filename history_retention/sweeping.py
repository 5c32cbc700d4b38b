"""Removing planned threads in boxes, so that a live agent never notices.

Inside its box, before it is deleted, every thread is compared with what the plan saw; one that
changed is left alone and reported. The ledger is asked for holds and leases right before the lock
is taken, so that a slow ledger never keeps an agent waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .boxes import Boxes, Pace
from .exceptions import HistoryRetentionError, LedgerMissing
from .facts import Ending, KeepReason, PlannedThread, SkipReason
from .outcomes import Removed, SkippedThread
from .stores.base import Store, parts

_SKIP_REASONS = {KeepReason.HELD: SkipReason.HELD, KeepReason.LEASED: SkipReason.LEASED}


@dataclass(slots=True, kw_only=True)
class Swept:
    """What the boxes have done so far; grows by a commit at a time.

    ``ledger_refused`` tells that ``error`` is the ledger's and says nothing of the store.
    """

    removed: Removed = field(default_factory=Removed)
    thread_ids: list[str] = field(default_factory=list)
    skipped: list[SkippedThread] = field(default_factory=list)
    ending: Ending = Ending.RUNNING
    error: str = ""
    ledger_refused: bool = False


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
    refuses: ``swept.error`` is the sentence.
    """
    boxes = Boxes(store, pace, stop)
    done = 0
    try:
        boxes.wait_for_turn()
        while done < len(threads):
            if stop():
                swept.ending = Ending.INTERRUPTED
                return
            box = _Box(store, naming_mark, threads[done:], protections())
            if not boxes.run(box.run):
                continue
            done += len(box.removed) + len(box.skipped)
            _count(swept, box)
            committed()
            byte_count = sum(thread.byte_count for thread in box.removed)
            boxes.rest(byte_count, is_last=done == len(threads))
    except HistoryRetentionError as error:
        swept.ending = Ending.PARTIAL if swept.removed.thread_count else Ending.FAILED
        swept.error = str(error)
        swept.ledger_refused = isinstance(error, LedgerMissing)
    else:
        swept.ending = Ending.DONE


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
        self._store = store
        self._naming_mark = naming_mark
        self._threads = threads
        self._held = held

    def run(self, deadline: float) -> None:
        """Go on with whole threads until the time is up; at least one is dealt with."""
        for part in parts(self._threads, lambda thread: thread, self._store.rows_a_check):
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
        same = [thread for thread in threads if thread.thread_id not in changed]
        if same:
            self._store.remove(same)
        self.removed += same
        self.skipped += [
            SkippedThread(thread_id=thread.thread_id, reason=changed[thread.thread_id])
            for thread in threads
            if thread.thread_id in changed
        ]


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
