"""A small store to try the package on, as an agent with a chat history leaves one behind.

The state tables are those of LangGraph's SQLite saver, written by that saver where it is
installed; the conversations and their turns have the columns of Gaunt Sloth's tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

from .checkpoint_ids import checkpoint_id_at
from .demo_savers import LangGraphSaver, Saver, open_saver

NAMING_TABLES = """
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, started_ts TEXT NOT NULL, project TEXT, command TEXT,
    model TEXT, thread_id TEXT);
CREATE INDEX idx_conversations_thread_id ON conversations(thread_id);
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT NOT NULL, project TEXT, command TEXT, model TEXT,
    prompt TEXT, response TEXT, tokens_input INTEGER, tokens_output INTEGER, cost_usd REAL,
    tools TEXT, duration_ms INTEGER, conversation_id INTEGER);
"""

COMMANDS = ("chat", "code", "review", "ask")
PROJECTS = ("/srv/shop", "/srv/blog", "/srv/reports")
QUESTIONS = (
    "Why does the nightly import stop at the third file?",
    "Write a test for the discount that is rounded twice.",
    "What changed between the last two releases?",
    "Move the address form into its own template.",
    "Which pages still load the old style sheet?",
    "Explain what the retry in the payment client waits for.",
)
WORDS = (
    *("order", "index", "total", "query", "template", "import", "payment", "retry", "address"),
    *("column", "cache", "page", "form", "value", "test", "field", "price", "queue", "worker"),
    *("signal", "record", "batch", "filter", "result", "error"),
)

RESUMABLE_AGES = (
    *(timedelta(days=days) for days in (400, 365, 310, 270, 240, 200, 180, 150, 120, 100, 90, 75)),
    *(timedelta(days=days) for days in (60, 50, 45, 40, 35, 31, 29, 25, 21, 18, 14, 10, 8, 6, 5)),
    *(timedelta(hours=hours) for hours in (96, 72, 48, 25, 5)),
    timedelta(minutes=40),
    timedelta(minutes=7),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A thread of the demo: how long ago its turns were, newest last, and what names it.

    ``named_until`` holds, for each conversation that names it, how many of the turns it saw.
    """

    turns: tuple[timedelta, ...]
    named_until: tuple[int, ...] = ()
    subgraph: bool = False
    checkpoints: bool = True
    cleared: bool = False


@dataclass(slots=True, kw_only=True)
class Written:
    """What a seeding has written so far."""

    threads: int = 0
    checkpoints: int = 0
    writes: int = 0
    conversations: int = 0
    turns: int = 0
    own_saver: bool = False


@dataclass(slots=True, kw_only=True)
class Author:
    """Writes threads and their conversations; the same ``now`` gives the same rows."""

    connection: sqlite3.Connection
    saver: Saver
    now: datetime
    written: Written = field(default_factory=Written)
    random: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - a demo's text
    sequence: Iterator[int] = field(default_factory=count)

    def write(self, thread: Thread) -> None:
        """Write the thread, its conversations and their turns."""
        thread_id = self._uuid()
        if thread.checkpoints:
            self._write_steps(thread, thread_id)
        else:
            self._write_late(thread, thread_id)
        self.written.threads += 1
        for turns in thread.named_until:
            self._write_conversation(None if thread.cleared else thread_id, thread.turns[:turns])

    def _write_steps(self, thread: Thread, thread_id: str) -> None:
        messages: list[dict[str, str]] = []
        parent = ""
        for age in thread.turns:
            steps = self.random.randint(4, 7)
            for step in range(steps):
                at = self.now - age - timedelta(seconds=6 * (steps - 1 - step))
                messages.append(self._message("user" if step == 0 else "assistant"))
                parent = self._put(thread_id, "", parent, at, messages)
        if thread.subgraph:
            self._put(
                thread_id, f"research:{self._uuid()}", "", self.now - thread.turns[-1], messages[:2]
            )

    def _write_late(self, thread: Thread, thread_id: str) -> None:
        """Write what arrives for a thread after somebody removed its checkpoints."""
        for age in thread.turns:
            checkpoint_id = checkpoint_id_at(self.now - age, next(self.sequence))
            self.saver.put_write(thread_id, "", checkpoint_id, [self._message("assistant")])
            self.written.writes += 1

    def _put(
        self,
        thread_id: str,
        namespace: str,
        parent: str,
        at: datetime,
        messages: list[dict[str, str]],
    ) -> str:
        checkpoint_id = checkpoint_id_at(at, next(self.sequence))
        version = len(messages)
        state = {
            "v": 4,
            "id": checkpoint_id,
            "ts": at.isoformat(),
            "channel_values": {"messages": list(messages)},
            "channel_versions": {"messages": version},
            "versions_seen": {"model": {"messages": version - 1}},
            "updated_channels": ["messages"],
        }
        self.saver.put(thread_id, namespace, parent, state)
        self.saver.put_write(thread_id, namespace, checkpoint_id, messages[-1:])
        self.written.checkpoints += 1
        self.written.writes += 1
        return checkpoint_id

    def _write_conversation(self, thread_id: str | None, turns: tuple[timedelta, ...]) -> None:
        about = (self.random.choice(PROJECTS), self.random.choice(COMMANDS), "demo-model")
        conversation_id = self.connection.execute(
            "INSERT INTO conversations (started_ts, project, command, model, thread_id)"
            " VALUES (?, ?, ?, ?, ?)",
            (self._stamp(turns[0] + timedelta(minutes=1)), *about, thread_id),
        ).lastrowid
        self.connection.executemany(
            "INSERT INTO sessions (ts, project, command, model, prompt, response, duration_ms,"
            " conversation_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (self._stamp(age), *about, self.random.choice(QUESTIONS), self._text(60),
                 self.random.randint(2_000, 40_000), conversation_id)
                for age in turns
            ],
        )  # fmt: skip
        self.written.conversations += 1
        self.written.turns += len(turns)

    def _message(self, role: str) -> dict[str, str]:
        words = 20 if role == "user" else self.random.choice((40, 150, 400, 900))
        return {"role": role, "content": self._text(words)}

    def _text(self, words: int) -> str:
        return " ".join(self.random.choices(WORDS, k=words))

    def _uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def _stamp(self, age: timedelta) -> str:
        return (self.now - age).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_demo_store(path: Path, *, now: datetime) -> Written:
    """Write the demo into a new SQLite file, its ages counted back from ``now``."""
    with closing(sqlite3.connect(path)) as connection:
        # Nobody reads the file before it is whole, so no write of it has to wait for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        saver = open_saver(connection)
        connection.executescript(NAMING_TABLES)
        author = Author(connection=connection, saver=saver, now=now)
        author.written.own_saver = isinstance(saver, LangGraphSaver)
        for thread in _threads(Random(11)):  # noqa: S311 - a demo's turns
            author.write(thread)
        connection.commit()
    return author.written


def _threads(random: Random) -> Iterator[Thread]:
    """List the demo's threads: each kind that the readout, a prune and a reclaim tell apart."""
    for number, age in enumerate(RESUMABLE_AGES):
        turns = _turns(age, random)
        yield Thread(turns=turns, named_until=(len(turns),), subgraph=number % 11 == 3)
    shared = (*_turns(timedelta(days=118), random), timedelta(days=12))
    yield Thread(turns=shared, named_until=(len(shared) - 1, len(shared)))
    for number, days in enumerate((2, 9, 30, 77, 160)):
        turns = _turns(timedelta(days=days), random)
        yield Thread(turns=turns, named_until=(len(turns),) * (number % 2), cleared=True)
    yield Thread(turns=_turns(timedelta(hours=3), random))
    yield Thread(turns=(timedelta(days=50),), checkpoints=False)
    yield Thread(turns=(timedelta(days=21), timedelta(days=20)), checkpoints=False)


def _turns(newest: timedelta, random: Random) -> tuple[timedelta, ...]:
    gap = timedelta(minutes=random.choice((2, 9, 25, 600)))
    return tuple(newest + gap * back for back in reversed(range(random.randint(1, 4))))
