"""The same store in PostgreSQL: its sizes beside a cast to text, removals beside the saver's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import dj_database_url
import psycopg
from django.db import connections
from langgraph.checkpoint.postgres import PostgresSaver

from history_retention import services
from history_retention.facts import Plan
from tests.postgres.server import in_database
from tests.postgres.stores import NAMING_TABLES, set_up

from .comparisons import Comparison, Goal
from .contests import medians, warm
from .sqlite_removals import executed
from .stage import ALIAS
from .stores import NOW, SIZES, WRITES_A_CHECKPOINT, Author, Size, author, groups, payload

Row = tuple[object, ...]

_AS_TEXT = {
    "checkpoints": "LENGTH(checkpoint::text) + LENGTH(metadata::text)",
    "checkpoint_writes": "OCTET_LENGTH(blob)",
    "checkpoint_blobs": "COALESCE(OCTET_LENGTH(blob), 0)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, the database on it that holds the store, and how often to repeat."""

    url: str
    store: str
    rounds: int

    @contextmanager
    def copied(self) -> Iterator[str]:
        """Point the alias at a copy of the store, and return its URL."""
        with created(self.url, template=self.store) as url:
            _point_at(url)
            try:
                yield url
            finally:
                _point_at(in_database(self.url, self.store))


@contextmanager
def serving(url: str, size: str, rounds: int) -> Iterator[Server]:
    """Write the store to a database of its own, which is dropped afterwards."""
    before = connections.databases[ALIAS]
    with created(url) as store:
        _write(store, SIZES[size])
        _point_at(store)
        try:
            yield Server(url=url, store=store.rpartition("/")[2], rounds=rounds)
        finally:
            connections[ALIAS].close()
            connections.databases[ALIAS] = before
            connections[ALIAS] = connections.create_connection(ALIAS)


@contextmanager
def created(url: str, template: str = "template1") -> Iterator[str]:
    """Create a database and drop it afterwards."""
    name = f"history_bench_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        connection.execute("CHECKPOINT")
        try:
            yield in_database(url, name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def sizes(server: Server) -> Iterator[Comparison]:
    """Time a readout beside sums of the lengths of what is cast to text."""
    url = in_database(server.url, server.store)

    def as_text(_given: object) -> None:
        with psycopg.connect(url) as connection:
            for table, lengths in _AS_TEXT.items():
                connection.execute(
                    f"SELECT thread_id, COUNT(*), SUM({lengths}) FROM {table} GROUP BY 1"
                ).fetchall()

    def measured(_given: object) -> None:
        services.measure(ALIAS, now=NOW, save=False)

    seconds = medians({"ours": measured, "text": as_text}, warm, server.rounds)
    yield Comparison(
        name="sizes of all threads, PostgreSQL, a whole readout",
        ours=seconds["ours"],
        against="sums by casting to text",
        against_value=seconds["text"],
        goal=Goal(at_most=0.55),
    )


def removals(server: Server) -> Iterator[Comparison]:
    """Time the removal of a plan's threads beside the saver's own, one thread after another."""

    @contextmanager
    def prepared(_name: str) -> Iterator[tuple[str, Plan]]:
        with server.copied() as url:
            yield url, services.plan_reclaim(ALIAS, now=NOW)
            connections[ALIAS].close()

    def ours(given: tuple[str, Plan]) -> None:
        executed(given[1])

    def saver(given: tuple[str, Plan]) -> None:
        url, plan = given
        with PostgresSaver.from_conn_string(url) as own:
            for thread in plan.threads:
                own.delete_thread(thread.thread_id)

    seconds = medians({"ours": ours, "saver": saver}, prepared, server.rounds)
    yield Comparison(
        name="deleting 30 %, PostgreSQL, as the settings are",
        ours=seconds["ours"],
        against="PostgresSaver.delete_thread, one after another",
        against_value=seconds["saver"],
        goal=Goal(at_most=0.6),
    )


def _point_at(url: str) -> None:
    connections[ALIAS].close()
    known = {**connections.databases[ALIAS], "OPTIONS": {}}
    connections.databases[ALIAS] = {**known, **dj_database_url.parse(url)}
    connections[ALIAS] = connections.create_connection(ALIAS)


def _write(url: str, size: Size) -> None:
    """Write the store by COPY into the tables that the vendor's own code creates."""
    set_up(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(NAMING_TABLES.encode())
        for into, rows in _ROWS.items():
            with (
                connection.cursor() as cursor,
                cursor.copy(f"COPY {into} FROM STDIN".encode()) as copy,
            ):
                for row in rows(size, author()):
                    copy.write_row(row)
        connection.execute("VACUUM (ANALYZE)")


def _checkpoints(size: Size, writer: Author) -> Iterator[Row]:
    """Give checkpoints with their small channels inline, a tenth of what the state takes."""
    inline = replace(size, payload=size.payload // 10)
    for group in groups(size, writer):
        for number, step in group.numbered():
            text = payload(inline, writer, step, number).decode()
            yield step[0], step[1], text, '{"source": "loop", "parents": {}}'


def _blobs(size: Size, writer: Author) -> Iterator[Row]:
    """Give the large channel, which the saver keeps apart, in one version a checkpoint."""
    for group in groups(size, writer):
        for number, step in group.numbered():
            yield step[0], "messages", step[1], "json", payload(size, writer, step, number)


def _writes(size: Size, writer: Author) -> Iterator[Row]:
    for group in groups(size, writer):
        for _, (thread, key, _) in group.numbered():
            for index in range(WRITES_A_CHECKPOINT):
                value = writer.text(size.write).encode()
                yield thread, key, key[::-1], index, "messages", "json", value


def _conversations(size: Size, writer: Author) -> Iterator[Row]:
    for group in groups(size, writer):
        for thread, _, at in group.named:
            yield at.isoformat(), "/srv/demo", "chat", thread


_ROWS: dict[str, Callable[[Size, Author], Iterator[Row]]] = {
    "checkpoints (thread_id, checkpoint_id, checkpoint, metadata)": _checkpoints,
    "checkpoint_blobs (thread_id, channel, version, type, blob)": _blobs,
    "checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, type, blob)": _writes,
    "conversations (started_ts, project, command, thread_id)": _conversations,
}
