"""Reading the state tables of LangGraph's PostgreSQL savers: threads in bulk, threads by id.

What the statements cost, and why they are shaped like this:

* ``pg_column_size`` is the stored size, told without fetching or decompressing what lies in TOAST.
* One hashed GROUP BY a table, without an ORDER BY: a database's collation is not the order of
  bytes in which threads are merged, so they are put in order here. Readers block nobody there.
* Whether an id tells a time is asked once a row (``OFFSET 0`` keeps the planner from asking anew
  for each sum), by its outline and a look for a character that is none of it: one regular
  expression for the whole id takes ten times as long.
* Every other statement names its threads, by equality, so that it works where the tables are
  divided by thread id among many servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from .postgres import PostgresDatabase
from .scratch import Scratch
from .sqlite import sort_key

_OUTLINE, _TOO_MANY_DASHES = "________-____-6___-____-____________", "%%-%%-%%-%%-%%-%%"
_SCHEMA = (
    "CREATE TABLE counts (thread_id BLOB, position INTEGER, rows INTEGER, bytes INTEGER,"
    " newest TEXT, oldest TEXT, odd INTEGER, PRIMARY KEY (thread_id, position)) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTable:
    """A table of a thread's state: the SQL of a row's id, and the columns of its payload.

    ``checkpoint_id`` is empty where rows have none (blobs, which checkpoints share).
    """

    name: str
    checkpoint_id: str
    payload: tuple[str, ...]

    @property
    def size(self) -> str:
        """SQL of a row's payload bytes as stored; NULL counts 0."""
        return " + ".join(f"COALESCE(pg_column_size({column}), 0)" for column in self.payload)

    @property
    def is_timed(self) -> str:
        """SQL true of rows with version-6 UUIDs, whose order by bytes is their order in time."""
        return (
            f"({self.checkpoint_id} LIKE '{_OUTLINE}'"
            f" AND {self.checkpoint_id} NOT LIKE '{_TOO_MANY_DASHES}'"
            f" AND ({self.checkpoint_id} COLLATE \"C\") !~ '[^-0-9a-f]')"
        )

    @property
    def timed_id(self) -> str:
        """SQL of the row's id if it tells a time."""
        if not self.checkpoint_id:
            return "NULL::text"
        return f"CASE WHEN {self.is_timed} THEN {self.checkpoint_id} END"


@dataclass(frozen=True, slots=True)
class Count:
    """A thread's rows in one table. ``odd`` counts rows whose id is no version-6 UUID."""

    rows: int
    byte_count: int
    newest_id: str | None
    oldest_id: str | None
    odd: int


Counts = tuple[Count | None, ...]
"""A thread's counts, one a table in the order of the tables; None where it has no row."""


def all_counts(
    database: PostgresDatabase, tables: Sequence[StateTable], *, weigh: bool
) -> Iterator[tuple[str, Counts]]:
    """Stream every thread with its counts, in thread id order; with bytes if ``weigh``."""
    scratch = Scratch(_SCHEMA)
    try:
        for position, table in enumerate(tables):
            scratch.put(
                f"INSERT INTO counts VALUES (?, {position}, ?, ?, ?, ?, ?)",
                (
                    (sort_key(row[0]), *row[1:])
                    for row in database.stream(_summary(database, table, " OFFSET 0", weigh=weigh))
                ),
            )
        ordered = scratch.rows("SELECT * FROM counts ORDER BY thread_id, position")
        for raw, rows in groupby(ordered, key=itemgetter(0)):
            found = {row[1]: Count(*row[2:]) for row in rows}
            yield raw.decode(), tuple(found.get(position) for position in range(len(tables)))
    finally:
        scratch.close()


def counts_of(
    database: PostgresDatabase,
    tables: Sequence[StateTable],
    thread_ids: Sequence[str],
    *,
    weigh: bool = True,
    lock: bool = False,
) -> dict[str, Counts]:
    """Look the threads up in the tables; with ``lock``, count only rows nobody else has locked."""
    found: list[dict[str, Count]] = []
    for table in tables:
        where = f" WHERE thread_id = ANY(%s) {'FOR UPDATE SKIP LOCKED' if lock else 'OFFSET 0'}"
        rows = database.rows(_summary(database, table, where, weigh=weigh), [list(thread_ids)])
        found.append({row[0]: Count(*row[1:]) for row in rows})
    return {thread_id: tuple(counts.get(thread_id) for counts in found) for thread_id in thread_ids}


def _summary(database: PostgresDatabase, table: StateTable, where: str, *, weigh: bool) -> str:
    size = f"({table.size})::bigint" if weigh else "0"
    return (
        'SELECT thread_id, COUNT(*), SUM(size)::bigint, MAX(timed COLLATE "C"),'
        ' MIN(timed COLLATE "C"),'
        f" {'COUNT(*) - COUNT(timed)' if table.checkpoint_id else '0'} FROM"
        f" (SELECT thread_id, {size} AS size, {table.timed_id} AS timed"
        f" FROM {database.name(table.name)}{where}) AS r GROUP BY thread_id"
    )


def odd_rows(
    database: PostgresDatabase, table: StateTable, own_time: str, thread_ids: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Return thread, namespace, id and own time of the rows whose id tells no time."""
    yield from database.rows(
        f"SELECT DISTINCT thread_id, checkpoint_ns, {table.checkpoint_id}, {own_time}"
        f" FROM {database.name(table.name)} WHERE thread_id = ANY(%s)"
        f" AND {table.is_timed} IS NOT TRUE",  # a shallow row may have no id at all
        [list(thread_ids)],
    )
