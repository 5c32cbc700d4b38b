"""Realistic stores, the same on every machine: payloads grow inside a thread, rows interleave."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from project.checkpoint_ids import checkpoint_id_at
from project.state_tables import state_tables

_NAMING_TABLES = """
CREATE TABLE conversations (id INTEGER PRIMARY KEY AUTOINCREMENT, started_ts TEXT NOT NULL,
    project TEXT, command TEXT, model TEXT, thread_id TEXT);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT NOT NULL, prompt TEXT,
    response TEXT, conversation_id INTEGER);
"""
_START = datetime(2025, 10, 1, tzinfo=UTC)
_SIDE_BY_SIDE = 4
_UNNAMED_SHARE = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many threads of how many checkpoints, and the mean payload of one in bytes."""

    threads: int
    checkpoints: int
    payload: int


SIZES = {
    "smoke": Size(threads=60, checkpoints=6, payload=8_000),
    "S": Size(threads=1_000, checkpoints=8, payload=20_000),
    "M": Size(threads=6_000, checkpoints=10, payload=20_000),
    "T": Size(threads=200_000, checkpoints=3, payload=1_500),
}


def write_store(path: Path, size: Size, *, journal_mode: str = "delete") -> None:
    """Write a store of the Gaunt Sloth layout; three threads in ten are named by nothing."""
    source = random.Random(0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(
            state_tables("checkpoint_writes", task_path=False) + _NAMING_TABLES
        )
        for first in range(0, size.threads, _SIDE_BY_SIDE):
            _write_threads(connection, size, first, source)
        connection.commit()


def _write_threads(
    connection: sqlite3.Connection, size: Size, first: int, source: random.Random
) -> None:
    count = min(_SIDE_BY_SIDE, size.threads - first)
    threads = [str(UUID(int=source.getrandbits(128), version=4)) for _ in range(count)]
    steps = list(_steps(size, first, threads, source))
    connection.executemany(
        "INSERT INTO checkpoints VALUES (?, '', ?, NULL, 'msgpack', ?, x'7b7d')", steps
    )
    connection.executemany(
        "INSERT INTO checkpoint_writes VALUES (?, '', ?, 'task', ?, 'messages', 'msgpack', ?)",
        [
            (thread, key, index, source.randbytes(200))
            for thread, key, _ in steps
            for index in range(2)
        ],
    )
    connection.executemany(
        "INSERT INTO conversations (started_ts, project, command, thread_id)"
        " VALUES ('2025-10-01T00:00:00Z', 'demo', 'chat', ?)",
        [(thread,) for thread in threads if source.random() >= _UNNAMED_SHARE],
    )


def _steps(
    size: Size, first: int, threads: list[str], source: random.Random
) -> Iterator[tuple[str, str, bytes]]:
    for step in range(size.checkpoints):
        length = size.payload * 2 * (step + 1) // (size.checkpoints + 1)
        for position, thread in enumerate(threads):
            instant = _START + timedelta(minutes=2 * first + step, seconds=position)
            key = checkpoint_id_at(instant, source.getrandbits(48))
            yield thread, key, source.randbytes(length)
