"""A private database, in memory until it outgrows it, where scans are merged and put in order.

Reading a vendor's file in short statements and sorting the results here keeps its locks short
and this process small, however many threads there are. It vanishes when closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..exceptions import StoreUnreadable

Row = tuple[Any, ...]


class Scratch:
    """A temporary SQLite database of this process alone."""

    def __init__(self, *schema: str) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        for statement in schema:
            self._connection.execute(statement)

    def put(self, sql: str, rows: Iterable[Row]) -> None:
        """Run the statement once for each row."""
        with _room():
            self._connection.execute("BEGIN")
            self._connection.executemany(sql, rows)
            self._connection.execute("COMMIT")

    def rows(self, sql: str, parameters: Row = ()) -> Iterator[Row]:
        """Stream the statement's rows."""
        with _room():
            yield from self._connection.execute(sql, parameters)

    def close(self) -> None:
        """Drop everything."""
        self._connection.close()


@contextmanager
def _room() -> Iterator[None]:
    """Tell a lack of room here from one in the store."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreUnreadable(
            f"The folder for temporary files has no room to sort what was read ({error}): free "
            "some space there, or set TMPDIR to a folder that has it. Nothing was done."
        ) from error
