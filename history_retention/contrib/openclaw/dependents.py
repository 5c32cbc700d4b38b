"""The rows that go along with a session or an entry, in every table that hangs from theirs.

SQLite would remove most of them by itself. They are removed here one table after another all the
same, so that each is counted, so that the full-text index is emptied, which no foreign key
reaches, and so that it is certain that nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...exceptions import StoreUnreadable
from ...stores.base import Tables
from ...stores.sqlite import SQLiteFile, encoded
from .ages import Age

SEARCH_ROWS = "session_transcript_fts_rows"
SEARCH_INDEX = "session_transcript_fts"
_UNTIED = ("session_transcript_index_state", "session_transcript_active_events")
"""Tables that go with a session, though a foreign key does not say so in every version."""

_RECEIPTS = "session_goal_operations"
"""Results of an entry's operations, kept by key without a foreign key."""


class Dependents:
    """What hangs from the windows and the entries of an open file."""

    def __init__(self, file: SQLiteFile, tables: Tables, age: Age) -> None:
        self._file = file
        self._age = age
        ties = dict(_ties(file, tables))
        self._of_windows = [
            table
            for table in _below(age.windows, ties)
            if "session_id" in tables[table] and table != age.entries
        ]
        self._of_windows += [
            name for name in _UNTIED if name in tables and name not in self._of_windows
        ]
        self._of_entries = [
            table
            for table in _below(age.entries, ties)
            if "session_key" in tables[table] and table != age.windows
        ]
        self._of_entries += [n for n in ("session_routes", _RECEIPTS) if n in tables]
        self._has_search_rows = SEARCH_ROWS in tables
        self._has_search = SEARCH_INDEX in tables

    def remove_window(self, session_id: str) -> dict[str, int]:
        """Remove a session with all that hangs from it; return the rows of each table."""
        removed = {}
        if self._has_search:
            removed[SEARCH_INDEX] = self._remove_from_search(session_id)
        for table in self._of_windows:
            removed[table] = self._remove(table, "session_id", session_id)
        removed[self._age.windows] = self._remove(self._age.windows, "session_id", session_id)
        return {table: count for table, count in removed.items() if count}

    def remove_entry(self, key: str) -> dict[str, int]:
        """Remove an entry with all that hangs from it; return the rows of each table.

        Raises StoreUnreadable if a window still hangs from it, which must not go along.
        """
        if self._age.has_nodes and self._count(self._age.windows, "session_key", key):
            raise StoreUnreadable(
                f"{self._file.alias}: sessions that another entry needs still belong to {key}, so "
                "it was not removed. Run this again."
            )
        removed = self.strip_entry(key)
        removed[self._age.entries] = self._remove(self._age.entries, "session_key", key)
        return {table: count for table, count in removed.items() if count}

    def strip_entry(self, key: str) -> dict[str, int]:
        """Remove what hangs from an entry, and not the entry."""
        return {
            table: count
            for table in self._of_entries
            if (count := self._remove(table, "session_key", key))
        }

    def _remove_from_search(self, session_id: str) -> int:
        """Remove a session's texts from the full-text index; a trigger does where rows map it."""
        table = SEARCH_ROWS if self._has_search_rows else SEARCH_INDEX
        return self._remove(table, "session_id", session_id)

    def _remove(self, table: str, column: str, value: str) -> int:
        count = self._count(table, column, value)
        if count:
            self._file.run(
                f"DELETE FROM {_quoted(table)} WHERE {column} = CAST(%s AS TEXT)",
                [encoded(value)],
            )
            if left := self._count(table, column, value):
                raise StoreUnreadable(
                    f"{self._file.alias}: {left:,} rows of {value} stayed in {table} when they "
                    "were deleted, so all of it was undone. Look for a trigger on that table."
                )
        return count

    def _count(self, table: str, column: str, value: str) -> int:
        return int(
            self._file.value(
                f"SELECT COUNT(*) FROM {_quoted(table)} WHERE {column} = CAST(%s AS TEXT)",
                [encoded(value)],
            )
        )


def _quoted(table: str) -> str:
    """Return the name of a table that hangs from OpenClaw's, and may be anyone's."""
    escaped = table.replace('"', '""')
    return f'"{escaped}"'


def _ties(file: SQLiteFile, tables: Tables) -> Iterator[tuple[str, set[str]]]:
    """Give each table with those that its rows go along with."""
    for table in tables:
        parents = {
            parent
            for (parent,) in file.rows(
                'SELECT LOWER("table") FROM pragma_foreign_key_list(%s)'
                " WHERE UPPER(on_delete) = 'CASCADE'",
                [table],
            )
        }
        yield table, parents


def _below(root: str, ties: dict[str, set[str]]) -> list[str]:
    """List the tables that hang from one, those that hang from another of them first."""
    depths: dict[str, int] = {root: 0}
    for depth in range(1, len(ties)):
        above = {table for table, its_depth in depths.items() if its_depth == depth - 1}
        found = [table for table, parents in ties.items() if parents & above]
        if not found:
            break
        depths |= {table: depth for table in found if table != root}
    del depths[root]
    return sorted(depths, key=lambda table: -depths[table])
