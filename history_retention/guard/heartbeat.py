"""Writing this process's leases to the ledger, from a thread that no agent waits for.

What is news goes to the ledger at once, but not more often than every few seconds; all of it is
renewed every minute. A ledger that is slow, locked or gone holds up this thread alone. Until it
works again the log says so once, and sweeps in other processes cannot see the leases; but then
they cannot use that ledger either, and remove nothing without it.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections.abc import Callable
from itertools import count
from threading import Event, Lock, Thread, local

from .in_use import InUse, in_use

PAUSE_SECONDS = 2.0
"""The least time between two writes."""
BEAT_SECONDS = 60.0
"""How often leases are renewed, which last ten times as long."""
RETRY_SECONDS = 15.0
"""How soon a ledger that refused is tried again."""
EXIT_SECONDS = 2.0
"""How long the end of the process waits for the leases to be given up."""
FORK_SECONDS = 1.0
"""How long a fork waits for a write to end: SQLite's locks must not be copied while held."""

logger = logging.getLogger("history_retention.guard")


class Heartbeat:
    """The thread, and what the process does with it when it forks and when it ends."""

    def __init__(self, in_use: InUse) -> None:
        self._in_use = in_use
        self._terms = count(1)
        self._writing = Lock()
        self._forking = local()
        self._thread: Thread | None = None
        self._beat_at: float | None = None
        self._failing = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork,
                after_in_child=self._in_child,
            )

    def ensure(self) -> None:
        """Start the thread unless it runs. An agent goes on without it when it cannot start."""
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = Thread(target=self._run, name="history-retention-leases", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the interpreter is ending
                self._failed(error)
            else:
                self._thread = thread
                atexit.register(self.stop)

    def stop(self) -> None:
        """Give all leases up and end the thread, without waiting for a ledger that hangs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.stop)
        self._stopping.set()
        self._in_use.news.set()
        thread.join(EXIT_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._in_use.news.wait(self._idle_seconds())
            self._in_use.news.clear()
            if not self._stopping.is_set():
                worked = self._attempt(self._tell)
                self._stopping.wait(PAUSE_SECONDS if worked else RETRY_SECONDS)
        if not self._failing:
            self._attempt(self._give_up)

    def _idle_seconds(self) -> float | None:
        """Return how long there is nothing to do unless there is news; None: for ever."""
        if self._beat_at is None:
            return None
        return max(0.0, self._beat_at - time.monotonic())

    def _attempt(self, write: Callable[[], None]) -> bool:
        """Write to the ledger; tell whether that worked."""
        try:
            with self._writing:
                write()
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent must run on
            self._in_use.start_over()
            self._owner = ""
            self._beat_at = time.monotonic()
            self._failed(error)
            return False
        if self._failing:
            self._failing = False
            logger.info("The leases of this process's agents are in the ledger again.")
        return True

    def _failed(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            logger.warning(
                "The leases of this process's agents cannot be written to the ledger (%s), so no "
                "other process sees which threads they have open; they run on, and it is tried "
                "again.",
                error,
            )

    def _tell(self) -> None:
        """Write what changed, and renew the rest when that is due.

        After a failure nobody knows what the ledger holds, so everything is leased again by a new
        owner, and what the old one left there runs out.
        """
        from .rows import ledger_of_leases, name_of_owner

        with ledger_of_leases() as leases:
            if leases is None:
                self._in_use.changes()
                return
            if not self._owner:
                self._owner = name_of_owner(next(self._terms))
                self._in_use.start_over()
            opened, closed, total = self._in_use.changes()
            leases.take(self._owner, opened)
            leases.give_up(self._owner, closed)
            now = time.monotonic()
            if self._beat_at is None or now >= self._beat_at:
                if leases.renew(self._owner) != total:  # forgotten while this process slept
                    self._in_use.start_over()
                    self._owner = ""
                    self._in_use.news.set()
                leases.forget_expired()
            self._beat_at = now + BEAT_SECONDS if total else None

    def _give_up(self) -> None:
        """Delete all leases of this process."""
        from .rows import ledger_of_leases

        with ledger_of_leases() as leases:
            if leases is not None and self._owner:
                leases.filter(owner=self._owner).delete()

    def _reset(self) -> None:
        self._thread = None
        self._starting = Lock()
        self._stopping = Event()
        self._owner = ""
        self._beat_at = None
        self._failing = False

    def _before_fork(self) -> None:
        self._forking.waited = self._writing.acquire(timeout=FORK_SECONDS)

    def _after_fork(self) -> None:
        if self._forking.waited:
            self._writing.release()

    def _in_child(self) -> None:
        self._writing = Lock()
        self._reset()


heartbeat = Heartbeat(in_use)
"""That of this process."""
