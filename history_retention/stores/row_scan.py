"""Measuring: one pass over the rows of both state tables, in row order, that loads no payload.

What the pass costs, and why it is shaped like this:

* ``LENGTH`` of a bare BLOB column is told by the record's header, so it reads leaf pages and no
  overflow page. The lengths are computed in a limited subquery first, since a GROUP BY over the
  raw columns would carry whole payloads through its sorter.
* It goes in short statements: in a rollback-journal file a reader blocks the agent's commit.
* A GLOB of thirty-two character classes for each row takes longer than all the rest. So a row is
  told by the outline of its id alone, and the ids of a chunk are then looked at together; were
  one of them no version-6 UUID after all, the chunk would be read again with the exact condition.
* The sums of so many threads are kept in a dictionary; when there are more, they go to a scratch
  database that puts all of them in order at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .instants import HAS_TIMED_ID, HEX_DIGITS
from .scans import StateTable
from .scratch import Scratch
from .sqlite import BEFORE_ALL_ROWS, SQLiteFile

ROWS_A_CHUNK = 5_000
"""Rows read in one statement."""

THREADS_IN_MEMORY = 20_000
"""Threads whose sums are kept in memory, at about 500 bytes each."""

_OUTLINE = (
    "(typeof(checkpoint_id) = 'text' AND checkpoint_id GLOB '????????-????-6???-????-????????????')"
)
_DASHES, _LENGTH = 4, 36

_LATE = b"~"
"""Behind every id of hexadecimal digits: the oldest id of rows that have none."""

Sums = tuple[int, int, int, bytes, bytes, int]
"""Checkpoints, writes, bytes, newest and oldest version-6 id, rows whose id is none."""


class Weight(NamedTuple):
    """A thread's rows in both tables. ``odd`` counts those whose id is no version-6 UUID."""

    thread_id: bytes
    checkpoints: int
    writes: int
    byte_count: int
    newest_id: str | None
    oldest_id: str | None
    odd: int


def weights(
    file: SQLiteFile,
    checkpoints: StateTable,
    writes: StateTable,
    advanced: Callable[[int, int], None],
) -> Iterator[Weight]:
    """Stream every thread with its bytes, in thread id order.

    ``advanced`` is told how many rows were read and about how many there are.
    """
    passes = [_Pass(file, checkpoints, "COUNT(*), 0"), _Pass(file, writes, "0, COUNT(*)")]
    expected = sum(each.last for each in passes)
    sums: dict[bytes, Sums] = {}
    scratch: Scratch | None = None
    read = 0
    try:
        while passes:
            behind = min(passes, key=_Pass.share)
            chunk = behind.chunk()
            if not chunk:
                passes.remove(behind)
                continue
            _add(sums, chunk)
            read += sum(row[1] + row[2] for row in chunk)
            advanced(read, max(read, expected))
            if len(sums) > THREADS_IN_MEMORY:
                scratch = scratch or _scratch()
                _spill(sums, scratch)
        if scratch is None:
            for thread_id in sorted(sums):
                yield _weight(thread_id, *sums[thread_id])
        else:
            _spill(sums, scratch)
            for row in scratch.rows(
                "SELECT thread_id, SUM(checkpoints), SUM(writes), SUM(bytes), MAX(newest),"
                " MIN(oldest), SUM(odd) FROM sums GROUP BY thread_id"
            ):
                yield _weight(*row)
    finally:
        if scratch is not None:
            scratch.close()


def _add(sums: dict[bytes, Sums], chunk: list[tuple[Any, ...]]) -> None:
    for thread_id, checkpoints, writes, size, newest, oldest, odd, *_ in chunk:
        if thread_id is None:  # a number or NULL, which is no thread's id
            continue
        known = sums.get(thread_id)
        if known is None:
            sums[thread_id] = (checkpoints, writes, size, newest, oldest, odd)
        else:
            sums[thread_id] = (
                known[0] + checkpoints,
                known[1] + writes,
                known[2] + size,
                max(newest, known[3]),
                min(oldest, known[4]),
                known[5] + odd,
            )


def _scratch() -> Scratch:
    return Scratch(
        "CREATE TABLE sums (thread_id BLOB, checkpoints INTEGER, writes INTEGER, bytes INTEGER,"
        " newest BLOB, oldest BLOB, odd INTEGER)"
    )


def _spill(sums: dict[bytes, Sums], scratch: Scratch) -> None:
    scratch.put(
        "INSERT INTO sums VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((thread_id, *values) for thread_id, values in sums.items()),
    )
    sums.clear()


def _weight(
    thread_id: bytes, checkpoints: int, writes: int, size: int, newest: bytes, oldest: bytes,
    odd: int,
) -> Weight:  # fmt: skip
    return Weight(
        thread_id,
        checkpoints,
        writes,
        size,
        newest.decode() or None,
        None if oldest == _LATE else oldest.decode(),
        odd,
    )


class _Pass:
    """A pass over one table. Both go side by side, since a thread's rows were written so."""

    def __init__(self, file: SQLiteFile, table: StateTable, counts: str) -> None:
        self._file = file
        self._table = table
        self._counts = counts
        self._after = BEFORE_ALL_ROWS
        self.last: int = file.value(f"SELECT COALESCE(MAX(rowid), 0) FROM {table.name}")

    def share(self) -> float:
        """Return about how much of the table was read."""
        return self._after / max(self.last, 1)

    def chunk(self) -> list[tuple[Any, ...]]:
        """Read on; empty at the end."""
        rows = self._rows(_OUTLINE)
        if not _are_timed(b"".join(row[8] for row in rows)):
            rows = self._rows(HAS_TIMED_ID)
        self._after = max((row[7] for row in rows), default=self._after)
        return rows

    def _rows(self, is_timed: str) -> list[tuple[Any, ...]]:
        return self._file.rows(
            f"SELECT thread, {self._counts}, SUM(size), COALESCE(CAST(MAX(timed) AS BLOB), x''),"
            " COALESCE(CAST(MIN(timed) AS BLOB), CAST('~' AS BLOB)), COUNT(*) - COUNT(timed),"
            " MAX(row), COALESCE(CAST(group_concat(timed, '') AS BLOB), x'') FROM"
            " (SELECT CASE WHEN typeof(thread_id) IN ('text', 'blob')"
            " THEN CAST(thread_id AS BLOB) END AS thread,"
            f" rowid AS row, {self._table.lengths} AS size,"
            f" CASE WHEN {is_timed} AND typeof(thread_id) = 'text' THEN checkpoint_id END AS timed"
            f" FROM {self._table.name} NOT INDEXED WHERE rowid > %s"
            f" ORDER BY rowid LIMIT {ROWS_A_CHUNK}) GROUP BY thread",
            [self._after],
        )


def _are_timed(ids: bytes) -> bool:
    """Tell whether ids that have the outline, one after another, are lower-case hexadecimal."""
    return ids.count(b"-") * _LENGTH == len(ids) * _DASHES and not ids.translate(
        None, HEX_DIGITS + b"-"
    )
