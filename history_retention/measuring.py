"""Adding up a stream of threads into a readout, while somebody else stores them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from .exceptions import LedgerMissing
from .facts import NamedThread, Naming, State, Tally
from .policy import Rules, leading, state_of
from .readouts import Readout, ReadThread
from .remembering import Memory
from .stores.base import Progress, Store


def remeasured(store: Store, memory: Memory, progress: Progress) -> Iterator[NamedThread] | None:
    """Stream the store's threads from memory and what is new, or return None to read all rows."""
    try:
        marks = memory.marks()
        return store.remeasured_threads(progress, marks, memory) if marks else None
    except LedgerMissing:  # a readout that is not kept needs no ledger
        return None


def read(threads: Iterable[NamedThread], rules: Rules) -> Iterator[ReadThread]:
    """Say of each thread what it is now."""
    for thread in threads:
        stored = thread.stored
        first = leading(thread)
        yield ReadThread(
            thread_id=stored.thread_id,
            byte_count=stored.byte_count or 0,
            checkpoint_count=stored.checkpoint_count,
            write_count=stored.write_count,
            first_activity=stored.first_activity,
            last_activity=thread.last_activity,
            stored_activity=stored.last_activity,
            state=state_of(thread, rules),
            conversation_ids=tuple(c.conversation_id for c in thread.conversations),
            turn_count=sum(c.turn_count for c in thread.conversations),
            command=first.command if first else "",
            project=first.project if first else "",
            label=first.label if first else "",
        )


class Totals:
    """Sums over the threads that pass through, and the ``top`` largest of them."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._largest: list[tuple[int, str, ReadThread]] = []
        self._all = _Sum()
        self._unnamed = _Sum()
        self._reclaimable = _Sum()
        self._checkpoints = 0
        self._writes = 0

    def counted(self, threads: Iterable[ReadThread]) -> Iterator[ReadThread]:
        """Pass the threads on, counting them."""
        for thread in threads:
            self._all.add(thread)
            self._checkpoints += thread.checkpoint_count
            self._writes += thread.write_count
            if not thread.conversation_ids:
                self._unnamed.add(thread)
            if thread.state is State.UNRESUMABLE:
                self._reclaimable.add(thread)
            entry = (thread.byte_count, thread.thread_id, thread)
            if len(self._largest) < self._top:
                heapq.heappush(self._largest, entry)
            elif self._top:
                heapq.heappushpop(self._largest, entry)
            yield thread

    def readout(self, store: Store, rules: Rules, notes: tuple[str, ...]) -> Readout:
        """Return what passed through, with the store's own totals beside it."""
        conversations, turns, transcript_bytes = store.conversation_totals()
        return Readout(
            database=store.alias,
            layout=store.layout,
            as_of=rules.now,
            space=store.space(),
            naming=store.naming,
            checkpoint_bytes=self._all.byte_count,
            checkpoint_count=self._checkpoints,
            write_count=self._writes,
            thread_count=self._all.thread_count,
            conversation_count=conversations,
            turn_count=turns,
            transcript_bytes=transcript_bytes,
            unresumable=self._unnamed.tally if store.naming is Naming.KNOWN else Tally(),
            reclaimable=self._reclaimable.tally,
            largest_threads=tuple(thread for _, _, thread in sorted(self._largest, reverse=True)),
            notes=notes,
        )


class _Sum:
    """A tally that grows."""

    def __init__(self) -> None:
        self.thread_count = 0
        self.byte_count = 0

    def add(self, thread: ReadThread) -> None:
        self.thread_count += 1
        self.byte_count += thread.byte_count

    @property
    def tally(self) -> Tally:
        return Tally(thread_count=self.thread_count, byte_count=self.byte_count)
