"""Store files for tests: copies of the vendors' own, and small ones written here."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import ormsgpack

from project.checkpoint_ids import checkpoint_id_at
from project.demo_store import NAMING_TABLES
from project.state_tables import state_tables

FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "fixtures"

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
"""The instant that the ages in the fixtures count back from."""

Layout = Literal["gaunt_sloth", "langgraph_sqlite"]

WRITES_TABLE: dict[Layout, str] = {
    "gaunt_sloth": "checkpoint_writes",
    "langgraph_sqlite": "writes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRows:
    """The rows of one thread, in one namespace.

    ``age`` is that of its newest row, older ones lie a minute apart; None gives ids and payloads
    that tell no time. ``size`` is the exact length of each checkpoint's payload, ``write_size``
    that of each write's value. The writes belong to the newest checkpoint's id, which is also
    there to belong to when the thread has no checkpoint.
    """

    thread_id: str
    age: timedelta | None = timedelta(days=40)
    checkpoints: int = 1
    writes: int = 1
    size: int = 1_000
    write_size: int = 100
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """A conversation and the ages of its turns; ``thread_id`` None or '' names nothing."""

    thread_id: str | None
    age: timedelta = timedelta(days=40)
    turns: Collection[timedelta] = ()
    command: str = "chat"
    project: str = "/srv/app"


ONE_OF_EACH = [
    ThreadRows(thread_id="named"),
    ThreadRows(thread_id="fresh", age=timedelta(hours=1)),
    ThreadRows(thread_id="unnamed"),
]
"""An idle thread and a fresh one that somebody can resume, and an idle one that nobody can."""

NAMED = [
    ConversationRow(thread_id="named"),
    ConversationRow(thread_id="fresh", age=timedelta(hours=1)),
]
"""The conversations of the first two."""


def copy_fixture(name: str, folder: Path) -> Path:
    """Copy a fixture, with what its write-ahead log holds, into the folder; unpack a ``.gz``."""
    source = FIXTURES / name
    copy = folder / source.name.removesuffix(".gz")
    if source.suffix == ".gz":
        with gzip.open(source) as packed, copy.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        return copy
    _copy_with_logs(source, copy)
    return copy


def write_store(
    path: Path,
    threads: Iterable[ThreadRows] = (),
    conversations: Iterable[ConversationRow] | None = (),
    *,
    layout: Layout = "gaunt_sloth",
    now: datetime = NOW,
    journal_mode: Literal["delete", "wal"] = "delete",
) -> Path:
    """Write a new store file; ``conversations`` None leaves the naming tables out."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        connection.executescript(
            state_tables(WRITES_TABLE[layout], task_path=layout == "langgraph_sqlite")
        )
        if conversations is not None:
            connection.executescript(NAMING_TABLES)
    add_threads(path, threads, layout=layout, now=now)
    add_conversations(path, conversations or (), now=now)
    return path


def add_threads(
    path: Path,
    threads: Iterable[ThreadRows],
    *,
    layout: Layout = "gaunt_sloth",
    now: datetime = NOW,
) -> None:
    """Add rows to a store, as its agent does with every step."""
    with closing(sqlite3.connect(path)) as connection, connection:
        sequence = count()
        for thread in threads:
            ids = list(ids_of(thread, now, sequence))
            connection.executemany(
                "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)",
                _checkpoints(thread, layout, ids),
            )
            connection.executemany(
                f"INSERT INTO {WRITES_TABLE[layout]} (thread_id, checkpoint_ns, checkpoint_id,"
                " task_id, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (thread.thread_id, thread.namespace, ids[-1][0], "task", index, "messages",
                     "bytes", b"y" * thread.write_size)
                    for index in range(thread.writes)
                ],
            )  # fmt: skip


def add_conversations(
    path: Path, conversations: Iterable[ConversationRow], *, now: datetime = NOW
) -> None:
    """Add conversations and their turns; ids count up from 1 in the order given."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for row in conversations:
            about = (row.project, row.command, "a-model")
            conversation_id = connection.execute(
                "INSERT INTO conversations (started_ts, project, command, model, thread_id)"
                " VALUES (?, ?, ?, ?, ?)",
                (_stamp(now - row.age), *about, row.thread_id),
            ).lastrowid
            connection.executemany(
                "INSERT INTO sessions (ts, project, command, model, prompt, response,"
                " conversation_id) VALUES (?, ?, ?, ?, 'a question', 'an answer', ?)",
                [(_stamp(now - age), *about, conversation_id) for age in row.turns],
            )


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of a SQLite file, with the schema under sqlite_master.

    Reads a copy: opening a file in WAL mode leaves files beside it, and may change it.
    """
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        _copy_with_logs(path, copy)
        with closing(sqlite3.connect(copy)) as connection:
            schema = connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_master"
            ).fetchall()
            names = [name for kind, name, *_ in schema if kind == "table"]
            rows = {
                name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
                for name in names
            }
    return rows | {"sqlite_master": sorted(schema, key=repr)}


def threads_in(path: Path, table: str = "checkpoints") -> set[str]:
    """Return the ids of the threads that have rows in one of the state tables."""
    return {row[0] for row in rows_of(path)[table]}


def _copy_with_logs(source: Path, copy: Path) -> None:
    """Copy a SQLite file with what its logs hold; the ``-shm`` is built anew by opening."""
    for suffix in ("", "-wal", "-journal"):
        part = source.with_name(source.name + suffix)
        if not suffix or (part.exists() and part.stat().st_size):
            copy.with_name(copy.name + suffix).write_bytes(part.read_bytes())


def ids_of(
    thread: ThreadRows, now: datetime, sequence: Iterator[int]
) -> Iterator[tuple[str, datetime | None]]:
    """Give each checkpoint its id and time, the newest last; at least one for the writes."""
    steps = max(thread.checkpoints, 1)
    for step in range(steps):
        if thread.age is None:
            yield f"step-{step}", None
        else:
            at = now - thread.age - timedelta(minutes=steps - 1 - step)
            yield checkpoint_id_at(at, next(sequence)), at


def _checkpoints(
    thread: ThreadRows, layout: Layout, ids: list[tuple[str, datetime | None]]
) -> Iterator[tuple[object, ...]]:
    parent = None
    for step, (checkpoint_id, at) in enumerate(ids[: thread.checkpoints]):
        metadata = json.dumps({"source": "loop", "step": step, "parents": {}}).encode()
        kind = "json" if layout == "gaunt_sloth" else "msgpack"
        payload = _payload(checkpoint_id, at, kind, thread.size)
        yield (thread.thread_id, thread.namespace, checkpoint_id, parent, kind, payload, metadata)
        parent = checkpoint_id


def _payload(checkpoint_id: str, at: datetime | None, kind: str, size: int) -> bytes:
    """Return a checkpoint of exactly ``size`` bytes that the vendor's reader understands."""

    def packed(text: str) -> bytes:
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": _stamp(at) if at else "",
            "channel_values": {"messages": text},
            "channel_versions": {"messages": 1},
            "versions_seen": {},
        }
        return json.dumps(checkpoint).encode() if kind == "json" else ormsgpack.packb(checkpoint)

    text = ""
    while len(payload := packed(text)) != size:
        if len(payload) > size and not text:
            raise ValueError(f"A checkpoint takes at least {len(payload)} bytes, not {size}.")
        text = "x" * (len(text) + size - len(payload))
    return payload


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
