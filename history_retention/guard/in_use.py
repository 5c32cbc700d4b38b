"""The threads that agents of this process have open, kept without a database.

Everything here takes microseconds, under a lock that nobody keeps for longer: an agent calls it
between its steps, in any thread or event loop.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event, Lock

Key = tuple[str, str]
"""Store and thread id."""

MOST_THREADS = 100_000
"""How many threads one saver guards at a time: the memory of a process has an end."""


class InUse:
    """Counts who has which thread open, and remembers what changed since it was last asked."""

    def __init__(self) -> None:
        self.news = Event()
        self._lock = Lock()
        self._counts: dict[Key, int] = {}
        self._opened: set[Key] = set()  # and closed: since the ledger was last told of them
        self._closed: set[Key] = set()
        self._limited: weakref.WeakSet[OpenThreads] = weakref.WeakSet()
        self._collected: SimpleQueue[tuple[str, Iterable[str]]] = SimpleQueue()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork,
                after_in_child=self._in_child,
            )

    def begin(self, store: str, thread_id: str) -> None:
        """Count one more that has the thread open."""
        with self._lock:
            self._begin((store, thread_id))

    def end(self, store: str, thread_id: str) -> None:
        """Count one less."""
        with self._lock:
            self._end((store, thread_id))

    def opened(self, store: str, idle: timedelta | None) -> OpenThreads:
        """Return an empty set of threads that a saver is about to open; see ``OpenThreads``."""
        opened = OpenThreads(self, store, idle)
        if idle is not None:
            with self._lock:
                self._limited.add(opened)
        # A collector may run anywhere, even where the lock is held, so it only leaves a note.
        weakref.finalize(opened, self._collected.put, (store, opened.touched_at)).atexit = False
        return opened

    def touch(self, opened: OpenThreads, thread_id: str, now: float) -> bool:
        """Note that a saver works on the thread; False when another had to be let go for it."""
        with self._lock:
            if thread_id not in opened.touched_at:
                self._begin((opened.store, thread_id))
            opened.touched_at[thread_id] = now
            opened.touched_at.move_to_end(thread_id)
            self._drop_idle(opened, now)
            if len(opened.touched_at) <= MOST_THREADS:
                return True
            self._drop_oldest(opened)
            return False

    def close(self, opened: OpenThreads, thread_id: str | None) -> None:
        """Let a thread go that a saver no longer has open, or with None all of them."""
        with self._lock:
            for each in list(opened.touched_at) if thread_id is None else [thread_id]:
                if opened.touched_at.pop(each, None) is not None:
                    self._end((opened.store, each))

    def thread_ids(self, store: str) -> list[str]:
        """Return the ids of the store's threads that are open in this process."""
        with self._lock:
            self._settle()
            return [thread_id for in_store, thread_id in self._counts if in_store == store]

    def among(self, store: str, thread_ids: Iterable[str]) -> list[str]:
        """Return those of the store's threads that are open in this process."""
        with self._lock:
            self._settle()
            return [thread_id for thread_id in thread_ids if (store, thread_id) in self._counts]

    def changes(self) -> tuple[set[Key], set[Key], int]:
        """Return which threads were opened and closed since the last call, and how many are open.

        One that was opened and closed again in between is neither.
        """
        with self._lock:
            self._settle()
            opened, self._opened = self._opened, set()
            closed, self._closed = self._closed, set()
            return opened, closed, len(self._counts)

    def start_over(self) -> None:
        """Have the next ``changes`` name everything that is open as opened."""
        with self._lock:
            self._opened, self._closed = set(self._counts), set()

    def _begin(self, key: Key) -> None:
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            self._change(key, self._opened, self._closed)

    def _end(self, key: Key) -> None:
        count = self._counts.pop(key)
        if count > 1:
            self._counts[key] = count - 1
        else:
            self._change(key, self._closed, self._opened)

    def _change(self, key: Key, to: set[Key], back: set[Key]) -> None:
        """Note a change, or that one which nobody was told of was taken back."""
        if key in back:
            back.remove(key)
        else:
            to.add(key)
            self.news.set()

    def _settle(self) -> None:
        """Let go what savers had open that were garbage collected, or left idle for too long."""
        while True:
            try:
                store, thread_ids = self._collected.get_nowait()
            except Empty:
                break
            for thread_id in thread_ids:
                self._end((store, thread_id))
        now = time.monotonic()
        for opened in list(self._limited):
            self._drop_idle(opened, now)

    def _drop_idle(self, opened: OpenThreads, now: float) -> None:
        while opened.touched_at and opened.is_idle(next(iter(opened.touched_at.values())), now):
            self._drop_oldest(opened)

    def _drop_oldest(self, opened: OpenThreads) -> None:
        thread_id, _ = opened.touched_at.popitem(last=False)
        self._end((opened.store, thread_id))

    def _before_fork(self) -> None:
        self._lock.acquire()

    def _after_fork(self) -> None:
        self._lock.release()

    def _in_child(self) -> None:
        """Have a forked process lease what it inherited, once it opens a thread itself."""
        self._lock = Lock()
        self.news = Event()
        self._opened, self._closed = set(self._counts), set()


class OpenThreads:
    """The threads that one saver, with its clones, has open, the least recently used first.

    They are let go when the last of those savers is garbage collected; with ``idle``, one that
    was not used for that long is let go before.
    """

    def __init__(self, in_use: InUse, store: str, idle: timedelta | None) -> None:
        self.store = store
        self.touched_at: OrderedDict[str, float] = OrderedDict()
        self._in_use = in_use
        self._idle_seconds = None if idle is None else idle.total_seconds()

    def is_idle(self, touched_at: float, now: float) -> bool:
        """Tell whether a thread that was used then is to be let go."""
        return self._idle_seconds is not None and now - touched_at > self._idle_seconds

    def touch(self, thread_id: str, clock: Callable[[], float] = time.monotonic) -> bool:
        """Keep the thread open; False when another had to be let go for it."""
        return self._in_use.touch(self, thread_id, clock())

    def close(self, thread_id: str) -> None:
        """Let the thread go."""
        self._in_use.close(self, thread_id)

    def close_all(self) -> None:
        """Let every thread go."""
        self._in_use.close(self, None)


in_use = InUse()
"""Those of this process."""
