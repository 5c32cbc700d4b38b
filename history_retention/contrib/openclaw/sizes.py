"""How many bytes and events each session holds, in one pass over its tables in row order.

An event of text is measured by its bytes, which SQLite before 3.43 reads to tell: a pass reads the
file once. It goes in short statements, since a reader blocks the agent's commit in a file that is
not in WAL mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...stores.base import Tables
from ...stores.sqlite import BEFORE_ALL_ROWS, SQLiteFile, encoded

ROWS_A_CHUNK = 1_000
_EVENT_TABLES = ("transcript_events", "trajectory_runtime_events")
_PAYLOADS = ("event_json", "event_zstd", "navigation_json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a session holds. ``side_event_count`` counts the events of its trajectory."""

    event_count: int = 0
    side_event_count: int = 0
    byte_count: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            event_count=self.event_count + other.event_count,
            side_event_count=self.side_event_count + other.side_event_count,
            byte_count=self.byte_count + other.byte_count,
        )


class Sizes:
    """Sizes of the sessions of an open file."""

    def __init__(self, file: SQLiteFile, tables: Tables) -> None:
        self._file = file
        self._tables = tables
        self._event_tables = [name for name in _EVENT_TABLES if name in tables]

    def of_all(self, advanced: Callable[[int, int], None]) -> dict[str, Size]:
        """Return the size of every session that has a row; ``advanced`` is told rows read."""
        sizes: dict[str, Size] = {}
        lasts = {
            table: self._file.value(f"SELECT COALESCE(MAX(rowid), 0) FROM {table}")
            for table in self._event_tables
        }
        read = 0
        for table in self._event_tables:
            after = BEFORE_ALL_ROWS
            while rows := self._file.rows(
                f"SELECT session_id, COUNT(*), SUM(size), MAX(number) FROM"
                f" (SELECT session_id, rowid AS number, {self._lengths(table)} AS size"
                f" FROM {table} NOT INDEXED WHERE rowid > %s ORDER BY rowid LIMIT {ROWS_A_CHUNK})"
                " GROUP BY session_id",
                [after],
            ):
                for session_id, count, byte_count, _ in rows:
                    known = sizes.get(session_id, Size())
                    sizes[session_id] = known + _size(table, count, byte_count)
                    read += count
                after = max(row[3] for row in rows)
                advanced(read, max(read, sum(lasts.values())))
        return sizes

    def of(self, session_ids: Sequence[str]) -> Size:
        """Return what some sessions hold together, found by their keys."""
        total = Size()
        for table in self._event_tables:
            for session_id in session_ids:
                count, byte_count = self._file.rows(
                    f"SELECT COUNT(*), COALESCE(SUM({self._lengths(table)}), 0) FROM {table}"
                    " WHERE session_id = CAST(%s AS TEXT)",
                    [encoded(session_id)],
                )[0]
                total += _size(table, count, byte_count)
        return total

    def _lengths(self, table: str) -> str:
        payloads = [name for name in _PAYLOADS if name in self._tables[table]]
        return " + ".join(f"COALESCE(LENGTH(CAST({name} AS BLOB)), 0)" for name in payloads)


def _size(table: str, count: int, byte_count: int) -> Size:
    if table == _EVENT_TABLES[0]:
        return Size(event_count=count, byte_count=byte_count)
    return Size(side_event_count=count, byte_count=byte_count)
