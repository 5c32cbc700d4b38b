"""Stores in PostgreSQL: written by rows of ours or restored from the vendor's own dumps."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from ..store_files import FIXTURES, NOW, ThreadRows, ids_of

TABLES = ("checkpoints", "checkpoint_writes", "checkpoint_blobs")
NAMING_TABLES = """
CREATE TABLE conversations (id bigserial PRIMARY KEY, started_ts timestamptz, project text,
    command text, thread_id text);
CREATE TABLE sessions (id bigserial PRIMARY KEY, ts timestamptz, prompt text, response text,
    conversation_id bigint);
"""


def set_up(url: str) -> None:
    """Create the vendor's tables in their newest version, by the vendor's own code."""
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()


def restore(url: str, fixture: str) -> None:
    """Run a dump of the fixtures."""
    path = FIXTURES / "langgraph" / fixture
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    with psycopg.connect(url, autocommit=True) as connection:
        _run_dump(connection, text.decode())


def _run_dump(connection: psycopg.Connection[Any], dump: str) -> None:
    """Run what pg_dump wrote, statement by statement where it copies rows."""
    head, *copies = dump.split("\nCOPY ")
    connection.execute(head.encode())
    for copy in copies:
        statement, _, rest = copy.partition(";\n")
        rows, _, after = rest.partition("\\.\n")
        with connection.cursor() as cursor, cursor.copy(f"COPY {statement}".encode()) as into:
            into.write(rows)
        connection.execute(after.encode())


def add_threads(url: str, threads: Iterable[ThreadRows], *, now: datetime = NOW) -> None:
    """Add rows to a store, as its agent does with every step: checkpoints, writes and a blob."""
    sequence = count()
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for thread in threads:
            ids = list(ids_of(thread, now, sequence))
            where = thread.thread_id, thread.namespace
            cursor.executemany(
                "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint)"
                " VALUES (%s, %s, %s, jsonb_build_object('id', %s::text, 'ts', %s::text, 'text',"
                " repeat('x', %s)))",
                [
                    (*where, key, key, at.isoformat() if at else None, thread.size)
                    for key, at in ids[: thread.checkpoints]
                ],
            )
            cursor.executemany(
                "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id,"
                " idx, channel, blob) VALUES (%s, %s, %s, 'task', %s, 'messages', %s)",
                [
                    (*where, ids[-1][0], index, b"y" * thread.write_size)
                    for index in range(thread.writes)
                ],
            )
            cursor.execute(
                "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type,"
                " blob) VALUES (%s, %s, 'messages', '1', 'bytes', %s) ON CONFLICT DO NOTHING",
                (*where, b"z" * 100),
            )


def rows_of(url: str, schema: str = "public") -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of the schema, as text."""
    with psycopg.connect(url) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", [schema]
            )
        ]
        return {
            name: sorted(connection.execute(f'SELECT t::text FROM "{schema}"."{name}" AS t'))
            for name in names
        }


def threads_in(url: str, table: str = "checkpoints", schema: str = "public") -> set[str]:
    """Return the ids of the threads that have rows in one of the state tables."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(f'SELECT DISTINCT thread_id FROM "{schema}"."{table}"')
        return {thread_id for (thread_id,) in rows}
