"""Who else writes to the state tables while threads are removed from them.

Rows that another transaction has added and not committed are seen by nobody, so a thread may be
gaining a checkpoint while it is removed. Whoever writes holds a lock of the table until the end
of its transaction (PostgreSQL manual, "Explicit Locking", ROW EXCLUSIVE), and that can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..exceptions import StoreBusy, WriterAtWork
from .postgres import PostgresDatabase, lock_key

WAIT_SECONDS = 0.1
"""How long a removal, before its commit, waits for the writers that were there already."""

POLL_SECONDS = 0.005


class Writers:
    """The other writers, as one removal sees them."""

    def __init__(self, database: PostgresDatabase, tables: Sequence[str]) -> None:
        self._database = database
        self._tables = tables
        self._removed: list[str] = []
        self._unending: set[str] = set()

    def begin(self) -> None:
        """Mark the transaction as a sweep's: sweeps side by side need not wait for each other."""
        self._removed = []
        self._database.run("SELECT pg_advisory_xact_lock_shared(%s)", [self._key])

    def await_unending(self) -> None:
        """Wait again for those that did not end in time before, ere anything goes beside them.

        What would be deleted could not be committed. Raises WriterAtWork.
        """
        if self._unending:
            self._wait_for(self._unending & self._at_work())

    def removed(self, thread_ids: Sequence[str]) -> None:
        """Remember whose rows must not come back before the commit."""
        self._removed += thread_ids

    def settle(self) -> None:
        """Wait for the writers that are there now, and look whether one wrote to these threads.

        Raises StoreBusy when one did, and WriterAtWork when one does not end, for what it wrote is
        seen by nobody until then: all is rolled back, and looked at anew.
        """
        if not self._removed:
            return
        self._wait_for(self._at_work())
        if self._have_rows():
            raise written_meanwhile(self._database.alias)

    def _wait_for(self, writers: set[str]) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while writers:
            if time.monotonic() > until:
                self._unending = writers
                raise WriterAtWork(
                    f"{self._database.alias}: a transaction that writes to the tables does not "
                    "end, and may be writing to a thread that would be removed. Look for it in "
                    "pg_stat_activity and pg_prepared_xacts, and run this again when it is over."
                )
            time.sleep(POLL_SECONDS)
            writers &= self._at_work()
        self._unending = set()

    @property
    def _key(self) -> int:
        return lock_key(self._database.schema, "writing")

    def _at_work(self) -> set[str]:
        """Return the transactions of others that have written to the tables and are not over.

        One that is prepared for a commit in two phases belongs to no process.
        """
        return {
            transaction
            for (transaction,) in self._database.rows(
                "SELECT DISTINCT l.virtualtransaction FROM pg_locks AS l"
                " WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted"
                " AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.relation = ANY(%s::regclass[])"
                " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND NOT EXISTS (SELECT 1 FROM pg_locks AS ours WHERE ours.locktype = 'advisory'"
                " AND ours.virtualtransaction = l.virtualtransaction AND ours.objsubid = 1"
                " AND (ours.classid::bigint << 32) | ours.objid::bigint = %s)",
                [[self._database.name(table) for table in self._tables], self._key],
            )
        }

    def _have_rows(self) -> bool:
        asked = " OR ".join(
            f"EXISTS (SELECT 1 FROM {self._database.name(table)} WHERE thread_id = ANY(%s))"
            for table in self._tables
        )
        return bool(self._database.value(f"SELECT {asked}", [self._removed] * len(self._tables)))


def written_meanwhile(alias: str) -> StoreBusy:
    """Return the refusal of a removal that met an agent at one of its threads."""
    return StoreBusy(
        f"{alias}: a thread was written to while it was removed, so it was left whole. Run this "
        "again."
    )
