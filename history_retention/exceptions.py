"""What can go wrong, each as one sentence a person can act on.

Every message says what happened, why, and what to do next. Commands print it and exit with
``exit_status``; the admin shows it as a message; nothing here reaches a user as a traceback.
"""

from __future__ import annotations


class HistoryRetentionError(Exception):
    """Base of every error this package raises on purpose; ``str()`` of it is for people."""

    exit_status = 1


class UsageError(HistoryRetentionError):
    """The request itself is wrong: a missing or impossible bound, an unknown store."""

    exit_status = 2


class StoreMissing(HistoryRetentionError):
    """The store's database file does not exist; nothing was created."""


class StoreUnreadable(HistoryRetentionError):
    """The database cannot be read or written: not a database, damaged, no permission."""


class StoreTimedOut(StoreUnreadable):
    """The database ended a statement that took longer than one may."""


class LayoutUnknown(HistoryRetentionError):
    """The database holds none of the layouts this package knows; nothing was touched."""


class StoreBusy(HistoryRetentionError):
    """Another process kept the database locked for longer than the connection waits."""


class WriterAtWork(StoreBusy):
    """Somebody's transaction is open that may be writing to the threads that would be removed."""


class SweepRunning(HistoryRetentionError):
    """Another reclaim, prune or vacuum of the same store is at work in this moment."""


class NoNamingTable(HistoryRetentionError):
    """Nothing tells which threads a conversation names, so reclaim removes nothing."""


class LedgerMissing(HistoryRetentionError):
    """The package's own tables are not in the ``default`` database yet."""


class StoreReadOnly(HistoryRetentionError, TypeError):
    """Somebody tried to write to an agent's table through the ORM."""
