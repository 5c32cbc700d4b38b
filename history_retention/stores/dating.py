"""When a thread of a SQLite store was first and last active.

Ids tell it, and where they do not, what the checkpoints say of themselves in their first bytes.
"""

from __future__ import annotations

from datetime import datetime

from .instants import HAS_TIMED_ID, PREFIX_BYTES, instant_of_id, instant_of_payload, later_of
from .sqlite import SQLiteFile, encoded, is_plain

Span = tuple[datetime | None, datetime | None]
"""First and last activity; the last is None when one row tells no time."""


class Dating:
    """Dates the threads of one open file."""

    def __init__(self, file: SQLiteFile, writes_table: str) -> None:
        self._file = file
        self._writes_table = writes_table

    def span(
        self, thread_id: str, oldest_id: str | None, newest_id: str | None, *, odd: bool
    ) -> Span:
        """Return first and last activity of the thread with these version-6 ids.

        ``odd`` says that there are rows with other ids, which are then looked at one by one.
        """
        instants = [
            instant_of_id(each)
            for each in (oldest_id, newest_id if newest_id != oldest_id else None)
            if each is not None
        ]
        if odd:
            instants += self._odd_instants(thread_id)
        told = [instant for instant in instants if instant is not None]
        is_known = len(told) == len(instants) and is_plain(thread_id)
        return min(told, default=None), max(told) if is_known else None

    def _odd_instants(self, thread_id: str) -> list[datetime | None]:
        """Date the rows whose ids are no version-6 UUIDs in lower case.

        A write bears the id of its checkpoint, so it is as old as that checkpoint says it is.
        """
        where = f"thread_id = CAST(%s AS TEXT) AND NOT {HAS_TIMED_ID}"
        instants: dict[tuple[object, object], datetime | None] = {}
        for namespace, checkpoint_id, rowid in self._file.rows(
            f"SELECT checkpoint_ns, checkpoint_id, rowid FROM checkpoints WHERE {where}",
            [encoded(thread_id)],
        ):
            instants[namespace, checkpoint_id] = later_of(
                instant_of_id(str(checkpoint_id)), instant_of_payload(self._prefix(rowid))
            )
        for namespace, checkpoint_id in self._file.rows(
            f"SELECT DISTINCT checkpoint_ns, checkpoint_id FROM {self._writes_table} WHERE {where}",
            [encoded(thread_id)],
        ):
            instants.setdefault((namespace, checkpoint_id), instant_of_id(str(checkpoint_id)))
        return list(instants.values()) or [None]

    def own_instant(self, thread_id: str, checkpoint_id: str) -> datetime | None:
        """Return the time that the checkpoint states in its payload, the latest namespace's."""
        rows = self._file.rows(
            "SELECT rowid FROM checkpoints"
            " WHERE thread_id = CAST(%s AS TEXT) AND checkpoint_id = %s",
            [encoded(thread_id), checkpoint_id],
        )
        instants = [instant_of_payload(self._prefix(rowid)) for (rowid,) in rows]
        return later_of(*instants)

    def _prefix(self, rowid: int) -> bytes:
        return self._file.first_bytes("checkpoints", "checkpoint", rowid, PREFIX_BYTES)
