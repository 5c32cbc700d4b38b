"""Who names a thread: the vendor's ``conversations`` table, or models of the host's own.

A resume goes from a conversation to the thread it names, so a thread that nothing names cannot
be resumed. Both sources are read in short statements and put in thread id order in a scratch
database, so that they can be merged with the store's threads in bounded memory.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from ..facts import NEVER, Conversation, NamedThread, PlannedThread, SkipReason, StoredThread
from .instants import instant_of_text
from .scans import require_row_numbers
from .scratch import Scratch
from .spelling import legible, named_by, plain, spelled_in_columns
from .sqlite import BEFORE_ALL_ROWS, SQLiteFile, encoded, sort_key
from .turns import SCHEMA as TURNS_SCHEMA
from .turns import Turns, instant_of_microseconds, microseconds

ROWS_A_CHUNK = 5_000
_BYTE_COUNT, _TEXTS_A_CHUNK = (
    ("octet_length({})", ROWS_A_CHUNK)
    if sqlite3.sqlite_version_info >= (3, 43)
    else ("LENGTH(CAST({} AS BLOB))", 500)
)
"""How a text is measured, and how many in one statement: before 3.43 SQLite reads it whole."""

SCHEMA = (
    "CREATE TABLE named (thread_id BLOB, id, active INTEGER, command TEXT, project TEXT,"
    " label TEXT)",
    TURNS_SCHEMA,
)
_ORDERED = (
    "SELECT n.thread_id, n.id, n.active, n.command, n.project, n.label, t.count, t.newest,"
    " t.untold FROM named AS n LEFT JOIN turns AS t ON t.id = CAST(n.id AS TEXT)"
    " ORDER BY n.thread_id, n.id"
)

Names = Iterator[tuple[bytes, tuple[Conversation, ...]]]


class NamingSource(ABC):
    """Something that tells which conversations name which threads."""

    @abstractmethod
    def names(self, settled_before: datetime | None = None) -> Names:
        """Stream the named threads' sort keys with their conversations, in that order."""

    def joined(
        self, stored: Iterable[StoredThread], settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Join threads, which come in thread id order, with the conversations that name them.

        Of a conversation that was not active since ``settled_before`` it may be left open how
        long before that it was, and how many turns it has: ``completed`` tells.
        """
        return named(stored, self.names(settled_before))

    def completed(self, threads: Sequence[NamedThread]) -> Sequence[NamedThread]:
        """Return the threads with what ``joined`` has left open."""
        return threads

    @abstractmethod
    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Tell whether a conversation names one of the ids, be the thread here or not."""

    @abstractmethod
    def totals(self) -> tuple[int, int, int]:
        """Return the number of conversations, of turns, and the bytes of the transcripts."""

    @abstractmethod
    def mark(self) -> int:
        """Return a mark after which ``changed`` looks for new turns."""

    @abstractmethod
    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Name the threads whose conversations are not those of the plan any more."""


class Nothing(NamingSource):
    """No source: nothing names a thread here."""

    def names(self, settled_before: datetime | None = None) -> Names:
        """Stream nothing."""
        return iter(())

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Return False."""
        return False

    def totals(self) -> tuple[int, int, int]:
        """Return zeros."""
        return 0, 0, 0

    def mark(self) -> int:
        """Return 0."""
        return 0

    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Return nothing."""
        return {}


class ConversationsTable(NamingSource):
    """The vendor's own tables: ``conversations`` and, for their turns, ``sessions``.

    ``names_empty`` says whether an empty ``thread_id`` names the thread whose id is empty.
    """

    def __init__(
        self, file: SQLiteFile, tables: dict[str, tuple[str, ...]], *, names_empty: bool
    ) -> None:
        self._file = file
        self._columns = tables["conversations"]
        self._turn_columns = tables.get("sessions", ())
        self._turns = Turns(file, self._turn_columns)
        self._are_all_counted = True
        self._names_empty = names_empty
        for table in ("conversations", "sessions") if self._turn_columns else ("conversations",):
            require_row_numbers(file, table)

    def names(self, settled_before: datetime | None = None) -> Names:
        """Stream the named threads with their conversations."""
        scratch = Scratch(*SCHEMA)
        try:
            for rows in self._chunks("conversations", self._conversation_columns()):
                scratch.put("INSERT INTO named VALUES (?, ?, ?, ?, ?, ?)", self._named(rows))
            self._are_all_counted = self._turns.collect(scratch, settled_before)
            yield from in_order(scratch, None if self._are_all_counted else settled_before)
        finally:
            scratch.close()

    def completed(self, threads: Sequence[NamedThread]) -> Sequence[NamedThread]:
        """Return the threads with all that their conversations' turns tell."""
        if self._are_all_counted or not threads:
            return threads
        told = self._turns.completed(each for thread in threads for each in thread.conversations)
        return [
            replace(
                thread,
                conversations=tuple(told[each.conversation_id] for each in thread.conversations),
            )
            for thread in threads
        ]

    def totals(self) -> tuple[int, int, int]:
        """Count rows, and add up the bytes of prompts and responses."""
        conversations = self._file.value("SELECT COUNT(*) FROM conversations")
        texts = [column for column in ("prompt", "response") if column in self._turn_columns]
        lengths = [f"COALESCE({_BYTE_COUNT.format(column)}, 0)" for column in texts]
        turns = size = 0
        if self._turn_columns:
            for rows in self._chunks("sessions", (" + ".join(lengths) or "0",), _TEXTS_A_CHUNK):
                turns += len(rows)
                size += sum(row[1] for row in rows)
        return conversations, turns, size

    def mark(self) -> int:
        """Return the newest turn's row."""
        return self._turns.mark()

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Look the ids up in the table."""
        return bool(self._naming(thread_ids))

    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Compare the conversations' ids, and look for turns after the mark."""
        naming = self._naming([thread.thread_id for thread in threads])
        return compared(threads, naming, self._turns.since(mark))

    def _naming(self, thread_ids: Sequence[str]) -> dict[str, set[Any]]:
        """Return the ids of the conversations that name each of the threads."""
        texts, blobs = spelled_in_columns(thread_ids)
        marks = ", ".join(["CAST(%s AS TEXT)"] * len(texts) + ["%s"] * len(blobs))
        found: dict[str, set[Any]] = {}
        for name, key in self._file.rows(
            f"SELECT thread_id, id FROM conversations WHERE thread_id IN ({marks})",
            [*map(encoded, texts), *blobs],
        ):
            for thread_id in named_by(name) if name or self._names_empty else ():
                found.setdefault(thread_id, set()).add(plain(key))
        return found

    def _conversation_columns(self) -> tuple[str, ...]:
        return (
            "thread_id",
            "id",
            *(
                column if column in self._columns else "NULL"
                for column in ("started_ts", "command", "project")
            ),
        )

    def _named(self, rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for _, name, key, started, command, project in rows:
            if name is None or (not name and not self._names_empty):
                continue
            told = microseconds(instant_of_text(started))
            about = told, legible(str(command or "")), legible(str(project or ""))
            for thread_id in named_by(name):
                yield sort_key(thread_id), plain(key), *about, ""

    def _chunks(
        self, table: str, expressions: tuple[str, ...], size: int = ROWS_A_CHUNK
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Read a table in row order, a short statement at a time; the rowid comes first."""
        after = BEFORE_ALL_ROWS
        while rows := self._file.rows(
            f"SELECT rowid, {', '.join(expressions)} FROM {table}"
            f" WHERE rowid > %s ORDER BY rowid LIMIT {size}",
            [after],
        ):
            yield rows
            after = rows[-1][0]


def in_order(scratch: Scratch, settled_before: datetime | None = None) -> Names:
    """Stream what was put into the scratch database, thread by thread.

    With ``settled_before`` only turns since then were counted. A conversation without one was
    active when it was started or some time before then: NEVER, if its start does not tell.
    """
    for raw, rows in groupby(scratch.rows(_ORDERED), key=itemgetter(0)):
        yield raw, tuple(_conversation(row, settled_before) for row in rows)


def named(stored: Iterable[StoredThread], names: Names) -> Iterator[NamedThread]:
    """Join threads and conversations; both come in thread id order."""
    raw, conversations = next(names, (None, ()))
    for thread in stored:
        key = sort_key(thread.thread_id)
        while raw is not None and raw < key:
            raw, conversations = next(names, (None, ()))
        yield NamedThread(stored=thread, conversations=conversations if raw == key else ())


def compared(
    threads: Sequence[PlannedThread], now: dict[str, set[Any]], active: set[Any]
) -> dict[str, SkipReason]:
    """Name the threads with other conversations than planned, or with a newly active one."""
    changed: dict[str, SkipReason] = {}
    for thread in threads:
        planned = set(thread.conversation_ids)
        if now.get(thread.thread_id, set()) != planned:
            changed[thread.thread_id] = SkipReason.NAMED
        elif set(map(str, planned)) & set(map(str, active)):
            changed[thread.thread_id] = SkipReason.ACTIVE
    return changed


def _conversation(row: tuple[Any, ...], settled_before: datetime | None) -> Conversation:
    _, key, started, command, project, label, count, newest, untold = row
    active = instant_of_microseconds(newest if count else started)
    if settled_before is not None and not count:
        active = active if active is not None and active < settled_before else NEVER
    return Conversation(
        conversation_id=key,
        last_activity=None if untold else active,
        started=None if settled_before is None else instant_of_microseconds(started),
        turn_count=count or 0,
        command=command,
        project=project,
        label=label,
    )
