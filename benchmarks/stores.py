"""Realistic stores, the same on every machine.

Payloads grow inside a thread, rows of four threads interleave, three threads in ten are named by
nothing, and ids are version-6 UUIDs of the four hundred days before ``NOW``. ``NOW`` is long ago,
so that an agent that writes while something is measured is always the newest.
"""

from __future__ import annotations

import random
import sqlite3
import string
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from project.checkpoint_ids import checkpoint_id_at
from project.demo_store import NAMING_TABLES
from project.state_tables import state_tables

NOW = datetime(2025, 10, 1, tzinfo=UTC)
SPAN = timedelta(days=400)
NEWEST = timedelta(days=2)
"""How long the newest thread is idle: beyond the grace window."""

SIDE_BY_SIDE = 4
UNNAMED_SHARE = 0.3
WRITES_A_CHECKPOINT = 3
TURN_EVERY = timedelta(minutes=1)
POOL_BYTES = 2**22
"""Random text from which payloads are cut, since nobody looks at what they say."""

MESSAGE_BYTES = 400
MESSAGES = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Threads, their mean number of checkpoints, and mean bytes of a checkpoint and of a write.

    ``turns`` is how many each thread's conversation has, of ``turn`` bytes. ``disk`` is about
    what the store and all that is made of it take at the most, in bytes.
    """

    threads: int
    checkpoints: int
    payload: int
    write: int
    disk: int
    turns: int = 0
    turn: int = 0


SIZES = {
    "S": Size(threads=1_000, checkpoints=8, payload=20_000, write=700, disk=700 * 10**6),
    "M": Size(threads=6_000, checkpoints=10, payload=20_000, write=700, disk=5_500 * 10**6),
    "T": Size(threads=200_000, checkpoints=3, payload=1_500, write=700, disk=9_000 * 10**6),
    "P": Size(
        threads=71_430,
        checkpoints=1,
        payload=400,
        write=100,
        disk=6_000 * 10**6,
        turns=20,
        turn=4_800,
    ),
}

Step = tuple[str, str, datetime]
"""Thread, checkpoint and time of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Threads that run side by side: a row a step for those that still run, and who is named."""

    steps: list[list[Step]]
    named: list[Step]

    def numbered(self) -> Iterator[tuple[int, Step]]:
        """Give each step with its number in its thread, in the order of rows."""
        for number, steps in enumerate(self.steps):
            for step in steps:
                yield number, step


@dataclass(slots=True, kw_only=True)
class Author:
    """The same random choices on every machine, and the texts they are made of.

    ``messages`` is JSON, one message of ``MESSAGE_BYTES`` after another, each with its comma.
    """

    source: random.Random
    texts: random.Random
    pool: str
    messages: str

    def text(self, length: int) -> str:
        """Return so many random characters."""
        start = self.texts.randrange(POOL_BYTES - length)
        return self.pool[start : start + length]

    def conversation(self, length: int) -> str:
        """Return a JSON list of messages of about that length."""
        count = max(1, length // MESSAGE_BYTES)
        start = self.texts.randrange(MESSAGES - count) * MESSAGE_BYTES
        return f"[{self.messages[start : start + count * MESSAGE_BYTES - 1]}]"


def author() -> Author:
    """Return one that begins anew."""
    texts = random.Random(1)
    letters = string.ascii_letters + string.digits + " " * 10
    block = "".join(texts.choices(letters, k=2**16))
    cuts = texts.sample(range(2**16), POOL_BYTES // 2**16)
    pool = "".join(block[cut:] + block[:cut] for cut in cuts)
    return Author(
        source=random.Random(0),
        texts=texts,
        pool=pool,
        messages="".join(
            _message(pool[at : at + MESSAGE_BYTES])
            for at in range(0, MESSAGES * MESSAGE_BYTES, MESSAGE_BYTES)
        ),
    )


def _message(text: str) -> str:
    """Return a message that ends in what fits of the text, and its comma."""
    head = f'{{"type":"ai","id":"{text[:36]}","usage":{{"input":512,"output":64}},"content":"'
    return f'{head}{text[: MESSAGE_BYTES - len(head) - 3]}"}},'


def write_store(path: Path, size: Size) -> None:
    """Write a store of the Gaunt Sloth layout, in rollback-journal mode."""
    writer = author()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(state_tables("checkpoint_writes", task_path=False))
        connection.executescript(NAMING_TABLES)
        for group in groups(size, writer):
            _write_group(connection, size, writer, group)
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")


def groups(size: Size, writer: Author) -> Iterator[Group]:
    """Give four threads after another four; the same ones whatever texts are asked for between."""
    for first in range(0, size.threads, SIDE_BY_SIDE):
        count = min(SIDE_BY_SIDE, size.threads - first)
        begun = NOW - SPAN + first * (SPAN - NEWEST) / size.threads
        threads = [str(UUID(int=writer.source.getrandbits(128), version=4)) for _ in range(count)]
        lengths = [_around(size.checkpoints, writer.source) for _ in range(count)]
        steps = [
            [
                _step(thread, begun + timedelta(minutes=step, seconds=position), writer)
                for position, thread in enumerate(threads)
                if step < lengths[position]
            ]
            for step in range(max(lengths))
        ]
        named = [step for step in steps[0] if writer.source.random() >= UNNAMED_SHARE]
        yield Group(steps=steps, named=named)


def payload(size: Size, writer: Author, step: Step, number: int) -> bytes:
    """Return the checkpoint of a thread's step of that number as the vendor's JSON."""
    _, key, at = step
    messages = writer.conversation(size.payload * 2 * (number + 1) // (size.checkpoints + 1))
    return (
        f'{{"v":4,"id":"{key}","ts":"{stamp(at)}","channel_values":{{"messages":{messages}}},'
        f'"channel_versions":{{"messages":{number}}},"versions_seen":{{}}}}'
    ).encode()


def _around(mean: int, source: random.Random) -> int:
    return source.randint(mean - mean // 2, mean + mean // 2)


def stamp(at: datetime) -> str:
    """Return the instant as the vendors write it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _step(thread: str, at: datetime, writer: Author) -> Step:
    return thread, checkpoint_id_at(at, writer.source.getrandbits(48)), at


def _write_group(connection: sqlite3.Connection, size: Size, writer: Author, group: Group) -> None:
    connection.executemany(
        "INSERT INTO checkpoints VALUES (?, '', ?, NULL, 'json', ?, ?)",
        (
            (*step[:2], payload(size, writer, step, number), b'{"source":"loop","parents":{}}')
            for number, step in group.numbered()
        ),
    )
    connection.executemany(
        "INSERT INTO checkpoint_writes VALUES (?, '', ?, ?, ?, 'messages', 'json', ?)",
        (
            (thread, key, key[::-1], index, writer.text(size.write).encode())
            for _, (thread, key, _) in group.numbered()
            for index in range(WRITES_A_CHECKPOINT)
        ),
    )
    connection.executemany(
        "INSERT INTO conversations (started_ts, project, command, thread_id)"
        " VALUES (?, '/srv/demo', 'chat', ?)",
        ((stamp(at), thread) for thread, _, at in group.named),
    )
    if group.named and size.turns:
        _write_turns(connection, size, writer, group.named)


def _write_turns(
    connection: sqlite3.Connection, size: Size, writer: Author, named: list[Step]
) -> None:
    """Give the conversations that were just begun their turns, one after another of each."""
    (last,) = connection.execute("SELECT MAX(id) FROM conversations").fetchone()
    connection.executemany(
        "INSERT INTO sessions (ts, prompt, response, conversation_id) VALUES (?, ?, ?, ?)",
        (
            (
                stamp(at + turn * TURN_EVERY),
                writer.text(size.turn // 8),
                writer.text(size.turn * 7 // 8),
                conversation,
            )
            for turn in range(size.turns)
            for conversation, (_, _, at) in enumerate(named, last + 1 - len(named))
        ),
    )
