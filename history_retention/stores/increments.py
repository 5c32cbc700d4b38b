"""Which threads of a SQLite store have other rows than when it was last measured.

A row that an agent adds or replaces gets a rowid above all others, so what is new lies above the
rowid that was highest then. A row that went makes its thread's count another one, which the key
index tells. So a thread without a new row and with the same counts is as it was: unless somebody
changes rows in place, or gives rowids of their own, which no saver of LangGraph does.

The mark itself must still be there, the very same row: once the highest rows went, SQLite gives
their numbers again. And a VACUUM, which may number rows anew, raises ``schema_version``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from ..facts import StoredThread
from .base import Memory, Progress
from .scans import StateTable, rows_by_key
from .sqlite import BEFORE_ALL_ROWS, SQLiteFile, sort_key, text_of

ROWS_A_CHUNK = 5_000
HIGHEST_ROWID = 2**63 - 1
"""Behind it SQLite gives rowids at random."""

FEWEST, MOST = 100, 0.1
"""Up to so many threads, or up to such a share of all, are weighed one by one."""

THREADS_A_RECALL = 500

Marks = dict[str, Any]
"""The file, its schema version, and of each table the highest row's number and digest."""


@dataclass(frozen=True, slots=True)
class ThreadRows:
    """How many rows a thread has now."""

    thread_id: str
    checkpoint_count: int
    write_count: int


def marks_of(file: SQLiteFile, tables: tuple[StateTable, ...]) -> Marks:
    """Note which row is the newest of each table. The version comes first: it may move."""
    return {
        "file": str(file.path),
        "schema_version": file.value("PRAGMA schema_version"),
        "tables": {
            table.name: _mark(file, table, "ORDER BY rowid DESC LIMIT 1", []) for table in tables
        },
    }


def touched(
    file: SQLiteFile, tables: tuple[StateTable, ...], marks: Mapping[str, Any], known: int
) -> set[bytes] | None:
    """Return the threads with rows above the marks.

    None when the marks do not tell all that is new, or when it is so much of the ``known``
    threads that one pass over all rows takes less time.
    """
    if (
        marks.get("file") != str(file.path)
        or marks.get("schema_version") != file.value("PRAGMA schema_version")
        or not all(_holds(file, table, marks["tables"].get(table.name)) for table in tables)
    ):
        return None
    most = max(FEWEST, int(known * MOST))
    found: set[bytes] = set()
    for table in tables:
        mark = marks["tables"][table.name]
        after = mark[0] if mark else BEFORE_ALL_ROWS
        while rows := file.rows(
            f"SELECT CAST(thread_id AS BLOB), rowid FROM {table.name} NOT INDEXED"
            f" WHERE rowid > %s ORDER BY rowid LIMIT {ROWS_A_CHUNK}",
            [after],
        ):
            found.update(thread_id for thread_id, _ in rows if thread_id is not None)
            if len(found) > most:
                return None
            after = rows[-1][1]
    return found


def _holds(file: SQLiteFile, table: StateTable, mark: list[Any] | None) -> bool:
    if mark is None or file.value(
        f"SELECT EXISTS (SELECT 1 FROM {table.name} WHERE thread_id >= x'')"  # ids of bytes
    ):
        return False
    return not mark or (
        mark[0] < HIGHEST_ROWID and _mark(file, table, "WHERE rowid = %s", [mark[0]]) == mark
    )


def _mark(file: SQLiteFile, table: StateTable, where: str, params: list[int]) -> list[Any]:
    """Return number and digest of a row, by its key and the length of its payload."""
    key = ", ".join(table.key)
    rows = file.rows(f"SELECT rowid, {key}, {table.lengths} FROM {table.name} {where}", params)
    return [rows[0][0], blake2b(repr(rows[0]).encode(), digest_size=16).hexdigest()] if rows else []


def recalled(
    file: SQLiteFile,
    tables: tuple[StateTable, StateTable],
    touched: set[bytes],
    memory: Memory,
    weighed: Callable[[list[ThreadRows]], Iterable[StoredThread]],
    progress: Progress,
) -> Iterator[StoredThread]:
    """Stream all threads in order: as they are remembered, or weighed if they are not as then."""
    counts = _counts(file, tables)
    known, done = memory.count(), 0
    while part := list(islice(counts, THREADS_A_RECALL)):
        remembered = memory.stored([rows.thread_id for rows in part])
        found: dict[str, StoredThread] = {}
        others: list[ThreadRows] = []
        for rows in part:
            thread = remembered.get(rows.thread_id)
            if (
                thread is not None
                and thread.checkpoint_count == rows.checkpoint_count
                and thread.write_count == rows.write_count
                and sort_key(rows.thread_id) not in touched
            ):
                found[rows.thread_id] = thread
            else:
                others.append(rows)
        found |= {thread.thread_id: thread for thread in weighed(others)}
        for rows in part:
            if rows.thread_id in found:
                yield found[rows.thread_id]
        done += len(part)
        progress("measuring", done, max(done, known))


def _counts(file: SQLiteFile, tables: tuple[StateTable, StateTable]) -> Iterator[ThreadRows]:
    """Count every thread's rows, from the key indexes alone."""

    def rows(position: int) -> Iterator[tuple[bytes, int, int]]:
        for thread_id, count in rows_by_key(file, tables[position]):
            yield thread_id, position, count

    in_order = merge(rows(0), rows(1), key=itemgetter(0))
    for thread_id, items in groupby(in_order, key=itemgetter(0)):
        counts = {position: count for _, position, count in items}
        yield ThreadRows(text_of(thread_id), counts.get(0, 0), counts.get(1, 0))
