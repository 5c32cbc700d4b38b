"""What the agents' own cleaning does to a store, in Python and in plain SQL.

Unnamed threads by NOT EXISTS, the time of each from its newest payload, sums of 200 threads at a
time, and all deletes in one transaction. ``secure_delete`` is off, as in the SQLite of Node.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from .stores import NOW

GRACE = timedelta(hours=24)
IDS_A_SUM = 200
STATE_TABLES = ("checkpoints", "checkpoint_writes")

_LENGTHS = {
    "checkpoints": "COALESCE(LENGTH(checkpoint), 0) + COALESCE(LENGTH(metadata), 0)",
    "checkpoint_writes": "COALESCE(LENGTH(value), 0)",
}


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as the agent does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        yield connection


def readout(path: Path) -> int:
    """Sum all that is stored, each thread's bytes in index order, and the unnamed ones' apart."""
    with opened(path) as connection:
        for table, lengths in _LENGTHS.items():
            connection.execute(f"SELECT COUNT(*), SUM({lengths}) FROM {table}").fetchone()
        largest = connection.execute(
            f"SELECT thread_id, COUNT(*), SUM({_LENGTHS['checkpoints']}) AS size FROM checkpoints"
            " GROUP BY thread_id ORDER BY size DESC"
        ).fetchall()
        weigh(connection, list(_unnamed(connection)))
    return len(largest)


def candidates(connection: sqlite3.Connection) -> list[str]:
    """Return the unnamed threads whose newest payload is older than the grace window."""
    return [
        thread_id for thread_id in _unnamed(connection) if _newest(connection, thread_id) <= _CUT
    ]


def reclaim(path: Path) -> int:
    """Remove them in one transaction, thread by thread; return how many there were."""
    with opened(path) as connection:
        threads = candidates(connection)
        weigh(connection, threads)
        remove(connection, threads)
    return len(threads)


def remove(connection: sqlite3.Connection, threads: list[str]) -> None:
    """Delete the threads' rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for table in STATE_TABLES:
        connection.executemany(
            f"DELETE FROM {table} WHERE thread_id = ?", ((thread,) for thread in threads)
        )
    connection.execute("COMMIT")


def weigh(connection: sqlite3.Connection, threads: list[str]) -> int:
    """Return the threads' bytes."""
    total, rest = 0, iter(threads)
    while some := list(islice(rest, IDS_A_SUM)):
        marks = ", ".join("?" * len(some))
        for table, lengths in _LENGTHS.items():
            (size,) = connection.execute(
                f"SELECT COALESCE(SUM({lengths}), 0) FROM {table} WHERE thread_id IN ({marks})",
                some,
            ).fetchone()
            total += size
    return total


_CUT = NOW - GRACE


def _unnamed(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "SELECT DISTINCT thread_id FROM checkpoints AS c WHERE NOT EXISTS"
        " (SELECT 1 FROM conversations AS v WHERE v.thread_id = c.thread_id)"
    ).fetchall()
    return (thread_id for (thread_id,) in rows)


def _newest(connection: sqlite3.Connection, thread_id: str) -> datetime:
    (checkpoint,) = connection.execute(
        "SELECT checkpoint FROM checkpoints WHERE thread_id = ?"
        " ORDER BY checkpoint_id DESC LIMIT 1",
        [thread_id],
    ).fetchone()
    return datetime.fromisoformat(json.loads(checkpoint)["ts"])
