"""Reading the state tables of a SQLite store by key: all threads in order, or some of them.

The scan of all reads the primary-key index alone, in short statements: in a rollback-journal
file a reader blocks the agent's commit. Version-6 ids sort by time as text, so MAX is the newest;
every other id is counted as odd and its thread is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from ..exceptions import LayoutUnknown
from .base import Tables
from .instants import HAS_TIMED_ID
from .sqlite import SQLiteFile, encoded, sort_key, text_of

KEYS_A_PAGE = 2_000
"""Index entries read in one statement; the second look at them finds them in SQLite's cache."""

_BOUNDS = {
    "TEXT": ("thread_id >= ''", " AND thread_id < x''"),
    "BLOB": ("thread_id >= x''", ""),
}
"""Where the ids of a type begin and end in the index."""

_TIMED = f"CASE WHEN {HAS_TIMED_ID} AND typeof(thread_id) = 'text' THEN checkpoint_id END"

CHECKPOINT_COLUMNS = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"}
WRITE_COLUMNS = {
    *("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "value"),
}
WRITES_TABLES = ("checkpoint_writes", "writes")
"""What the savers of one vendor and another call their writes."""


def holds_state_in(tables: Tables, writes_table: str) -> bool:
    """Tell whether the checkpoints and the writes of a thread are there."""
    return CHECKPOINT_COLUMNS <= set(
        tables.get("checkpoints", ())
    ) and writes_table in writes_tables(tables)


def writes_tables(tables: Tables) -> list[str]:
    """List the tables that hold writes; in more than one, a thread would be removed in part."""
    return [name for name in WRITES_TABLES if WRITE_COLUMNS <= set(tables.get(name, ()))]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A table of a thread's state, the columns that hold its payload and those of its key."""

    name: str
    payload: tuple[str, ...]
    key: tuple[str, ...] = ("thread_id", "checkpoint_ns", "checkpoint_id")

    @property
    def lengths(self) -> str:
        """SQL of a row's payload bytes; a text is measured as bytes, NULL as 0."""
        return " + ".join(
            f"CASE typeof({column}) WHEN 'text' THEN LENGTH(CAST({column} AS BLOB))"
            f" ELSE COALESCE(LENGTH({column}), 0) END"
            for column in self.payload
        )


@dataclass(frozen=True, slots=True)
class Count:
    """A thread's rows in one table. ``odd`` counts rows whose id is no version-6 UUID."""

    thread_id: str
    rows: int
    byte_count: int
    newest_id: str | None
    oldest_id: str | None
    odd: int
    newest_rowid: int


def require_row_numbers(file: SQLiteFile, table: str) -> None:
    """Refuse a table without a rowid of SQLite's own, by which it is read piece by piece."""
    if file.value(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_xinfo(%s) WHERE LOWER(name) = 'rowid')"
        " OR EXISTS (SELECT 1 FROM pragma_index_list(%s) AS l WHERE l.origin = 'pk'"
        " AND -1 NOT IN (SELECT cid FROM pragma_index_xinfo(l.name)))",
        [table, table],
    ):
        raise LayoutUnknown(
            f"{file.alias}: table {table} is WITHOUT ROWID or has a column of that name, which "
            "no agent known here creates, so nothing was touched."
        )


def counts_by_key(file: SQLiteFile, table: StateTable) -> Iterator[Count]:
    """Stream the table's threads in thread id order, from its primary-key index alone.

    A BLOB as thread id, which no saver writes, stands where the text of its bytes would; like
    everything of the same bytes, it is counted as odd, and so as of unknown age.
    """
    facts = "COUNT(*), 0, MAX(timed), MIN(timed), COUNT(*) - COUNT(timed), MAX(row)"
    texts, blobs = (
        (Count(text_of(row[0]), *row[1:]) for row in _in_pages(file, table, facts, kind))
        for kind in ("TEXT", "BLOB")
    )
    in_order = merge(texts, blobs, key=lambda count: sort_key(count.thread_id))
    for _, counts in groupby(in_order, key=attrgetter("thread_id")):
        yield reduce(_both, counts)


def _both(text: Count, blob: Count) -> Count:
    return replace(
        text,
        rows=text.rows + blob.rows,
        odd=text.odd + blob.odd,
        newest_rowid=max(text.newest_rowid, blob.newest_rowid),
    )


def rows_by_key(file: SQLiteFile, table: StateTable) -> Iterator[tuple[bytes, int]]:
    """Stream the threads whose ids are texts with their number of rows, in thread id order."""
    return _in_pages(file, table, "COUNT(*)", "TEXT")


def newest_by_key(
    file: SQLiteFile, table: StateTable
) -> Iterator[tuple[bytes, int, str | bytes | None]]:
    """Stream the threads' ids with their number of rows and their last id as text, in order.

    No id is looked at but for its place in the index, so a last one that is no version-6 UUID
    tells nothing. It is None for rows whose thread id is a BLOB, which tell no time at all.
    """
    texts = _in_pages(file, table, "COUNT(*), MAX(id)", "TEXT")
    blobs = _in_pages(file, table, "COUNT(*), NULL", "BLOB")
    return merge(texts, blobs, key=itemgetter(0))


def _in_pages(
    file: SQLiteFile, table: StateTable, facts: str, kind: str
) -> Iterator[tuple[Any, ...]]:
    """Stream facts of the threads whose ids are texts or of those whose ids are BLOBs.

    A statement ends with the thread that a page of index entries ends in, so its length is that
    of a page and one thread. It has one upper bound: of two, SQLite would seek by the first and
    read all that lies between them.
    """
    after, end = _BOUNDS[kind]
    params: list[bytes] = []
    while True:
        last = file.rows(
            f"SELECT thread_id FROM {table.name} WHERE {after}{end}"
            f" ORDER BY thread_id LIMIT 1 OFFSET {KEYS_A_PAGE - 1}",
            params,
        )
        ids = [_raw(thread_id) for (thread_id,) in last]
        until = f" AND thread_id <= CAST(%s AS {kind})" if ids else end
        for row in file.rows(
            f"SELECT thread_id, {facts} FROM"
            f" (SELECT thread_id, checkpoint_id AS id, rowid AS row, {_TIMED} AS timed"
            f" FROM {table.name}"
            f" WHERE {after}{until}) GROUP BY thread_id",
            [*params, *ids],
        ):
            yield (_raw(row[0]), *row[1:])
        if not ids:
            return
        after, params = f"thread_id > CAST(%s AS {kind})", ids


def counts_of_threads(
    file: SQLiteFile, table: StateTable, thread_ids: list[str], *, weigh: bool
) -> dict[str, Count]:
    """Return the named threads' rows, found by key; with their bytes if ``weigh``."""
    lengths = table.lengths if weigh else "0"
    marks = ", ".join(["CAST(%s AS TEXT)"] * len(thread_ids))
    rows = file.rows(
        "SELECT thread_id, COUNT(*), SUM(size), MAX(timed), MIN(timed), COUNT(*) - COUNT(timed),"
        " MAX(row) FROM"
        f" (SELECT thread_id, rowid AS row, {lengths} AS size, {_TIMED} AS timed"
        f" FROM {table.name} WHERE thread_id IN ({marks}) LIMIT -1) GROUP BY thread_id",
        [encoded(thread_id) for thread_id in thread_ids],
    )
    return {row[0]: Count(*row) for row in rows}


def _raw(thread_id: str | bytes) -> bytes:
    """Return the id's own bytes. A BLOB as thread id is legal to SQLite and to nobody else."""
    return thread_id if isinstance(thread_id, bytes) else sort_key(thread_id)
