"""Who names a thread when it is a ``conversations`` table beside the agents' own in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from ..facts import PlannedThread, SkipReason
from .base import Tables
from .instants import instant_of_text
from .naming import SCHEMA, Names, NamingSource, compared, in_order
from .postgres import PostgresDatabase
from .postgres_keys import Key, key_of
from .scratch import Scratch
from .spelling import legible, named_by, plain, spelled_in_columns
from .sqlite import sort_key
from .turns import PUT_TURN, microseconds, turn_values


class PostgresConversations(NamingSource):
    """The tables ``conversations`` and, for their turns, ``sessions``."""

    def __init__(self, database: PostgresDatabase, tables: Tables) -> None:
        self._database = database
        self._columns = tables["conversations"]
        self._turn_columns = tables.get("sessions", ())

    @property
    def _has_turns(self) -> bool:
        return {"conversation_id", "ts"} <= set(self._turn_columns)

    def names(self, settled_before: datetime | None = None) -> Names:
        """Stream the named threads with their conversations."""
        scratch = Scratch(*SCHEMA)
        about = ", ".join(
            _text(column) if column in self._columns else "NULL"
            for column in ("started_ts", "command", "project")
        )
        try:
            scratch.put(
                "INSERT INTO named VALUES (?, ?, ?, ?, ?, ?)",
                _named(
                    self._database.reads.stream(
                        f"SELECT thread_id, id, {about} FROM {self._table}"
                        " WHERE thread_id IS NOT NULL"
                    )
                ),
            )
            if self._has_turns:
                scratch.put(
                    PUT_TURN,
                    (
                        (str(plain(key)), *turn_values(ts))
                        for key, ts in self._database.reads.stream(
                            f"SELECT conversation_id, {_text('ts')} FROM {self._turns_table}"
                            " WHERE conversation_id IS NOT NULL"
                        )
                    ),
                )
            yield from in_order(scratch)
        finally:
            scratch.close()

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Look the ids up in the table."""
        return bool(self._naming(thread_ids))

    def totals(self) -> tuple[int, int, int]:
        """Count rows, and add up the bytes of prompts and responses as stored."""
        conversations = self._database.reads.value(f"SELECT COUNT(*) FROM {self._table}")
        if not self._turn_columns:
            return conversations, 0, 0
        sizes = " + ".join(
            f"COALESCE(pg_column_size({column}), 0)"
            for column in ("prompt", "response")
            if column in self._turn_columns
        )
        ((turns, size),) = self._database.reads.rows(
            f"SELECT COUNT(*), COALESCE(SUM({sizes or '0'}), 0)::bigint FROM {self._turns_table}"
        )
        return conversations, turns, size

    def mark(self) -> int:
        """Return 0: ``changed`` compares the newest turns themselves."""
        return 0

    def changed(self, threads: Sequence[PlannedThread], mark: int) -> dict[str, SkipReason]:
        """Compare the conversations' ids, and their turns with what the plan saw."""
        now = self._naming([thread.thread_id for thread in threads])
        return compared(threads, now, self._active(threads) if self._has_turns else set())

    def _active(self, threads: Sequence[PlannedThread]) -> set[Any]:
        """Return the conversations with a turn that is newer than the plan, or tells no time."""
        seen: dict[str, datetime] = {}
        for thread in threads:
            for key in thread.conversation_ids:
                earlier = seen.get(str(key), thread.last_activity)
                seen[str(key)] = min(earlier, thread.last_activity)
        active: set[Any] = set()
        for key, ts in self._database.rows(
            f"SELECT DISTINCT conversation_id::text, {_text('ts')} FROM {self._turns_table}"
            f" WHERE {self._turn_key.condition}",
            [self._turn_key.among(list(seen))],
        ):
            at = instant_of_text(ts)
            if at is None or at > seen[key]:
                active.add(key)
        return active

    def _naming(self, thread_ids: Sequence[str]) -> dict[str, set[Any]]:
        """Return the ids of the conversations that name each of the threads."""
        wanted = set(thread_ids)
        found: dict[str, set[Any]] = {}
        for name, key in self._database.rows(
            f"SELECT thread_id, id FROM {self._table} WHERE {self._thread_key.condition}",
            [self._thread_key.among(spelled_in_columns(thread_ids)[0])],
        ):
            for thread_id in wanted.intersection(named_by(name)):
                found.setdefault(thread_id, set()).add(plain(key))
        return found

    @cached_property
    def _thread_key(self) -> Key:
        return key_of(self._database, "conversations", "thread_id")

    @cached_property
    def _turn_key(self) -> Key:
        return key_of(self._database, "sessions", "conversation_id")

    @property
    def _table(self) -> str:
        return self._database.name("conversations")

    @property
    def _turns_table(self) -> str:
        return self._database.name("sessions")


def _named(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for name, key, started, command, project in rows:
        told = microseconds(instant_of_text(started))
        about = told, legible(command or ""), legible(project or "")
        for thread_id in named_by(name):
            yield sort_key(thread_id), plain(key), *about, ""


def _text(column: str) -> str:
    """Return SQL of a column's value as text, ISO 8601 if it is a date or a time."""
    return f"(to_jsonb({column}) #>> '{{}}')"
