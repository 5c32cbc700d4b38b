"""Layout ``harness``: the session store of DeepSeek Harness, versions 4, 14, 15 and 17.

A thread is a session: its header and its whole event log, which go together or stay. A part of a
log would leave a session that cannot be loaded. Parents and forks are independent, since a fork
holds a full copy. Events whose header is gone are a thread too: no one can resume those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Self

from ...conf import StoreOptions
from ...exceptions import StoreUnreadable, UsageError
from ...facts import (
    Conversation,
    KeepReason,
    NamedThread,
    Naming,
    PlannedThread,
    SkipReason,
    StoredThread,
    Transcripts,
)
from ...stores.base import Progress, Tables
from ...stores.instants import instant_of_milliseconds
from ...stores.sqlite import SQLiteFile, Value, encoded, is_plain, sort_key
from ...stores.sqlite_space import SQLiteStore
from .logs import Log, all_logs, log_of
from .versions import looks_like_harness, version_of

HEADERS_A_READ = 1_000


class HarnessStore(SQLiteStore):
    """Sessions with their event logs."""

    layout = "harness"
    rows_a_check = 5_000
    threads_a_removal = 1
    threads_a_box = 1
    transcripts = Transcripts.GO

    def __init__(self, file: SQLiteFile, version: int) -> None:
        self.alias = file.alias
        self.naming = Naming.KNOWN
        self.notes = ()
        self._file = file
        self._identity = "incarnation, revision" if version >= 14 else "NULL, NULL"

    @classmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by the two tables; ``over`` looks at the version."""
        return looks_like_harness(tables)

    @classmethod
    def over(
        cls, database: SQLiteFile, tables: dict[str, tuple[str, ...]], options: StoreOptions
    ) -> Self:
        """Return the store.

        Raises LayoutUnknown for a version that is not known here, and UsageError for
        CONVERSATIONS, since sessions name themselves.
        """
        if options.conversations:
            raise UsageError(
                f"{database.alias}: CONVERSATIONS is for LangGraph's own tables; in a store of "
                "DeepSeek Harness every session names itself. Remove the option; nothing was "
                "touched."
            )
        return cls(database, version_of(database, tables))

    def measured_threads(self, progress: Progress) -> Iterator[NamedThread]:
        """Stream every session with the bytes of its events."""
        return self._threads(progress, "measuring", weigh=True)

    def indexed_threads(
        self, progress: Progress, settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Stream every session without bytes, which reads no payload."""
        return self._threads(progress, "choosing", weigh=False)

    def weighed(self, threads: Sequence[NamedThread]) -> Iterator[NamedThread]:
        """Return those still there, with their bytes."""
        for thread in threads:
            session_id = thread.stored.thread_id
            log, header = log_of(self._file, session_id), self._header(session_id)
            if log.row_count or header is not None:
                yield self._thread(session_id, header, log, self._fingerprint(session_id))

    def protections(self) -> dict[str, KeepReason]:
        """Return the sessions whose newest turn is open: an agent may be at work in them."""
        logs = all_logs(self._file, lambda _done, _all: None, weigh=False)
        return {key: KeepReason.LIVE for key, log in logs.items() if log.has_open_turn}

    def conversation_totals(self) -> tuple[int, int, int]:
        """Return sessions and turns; a transcript is the log itself, so 0 beside it."""
        sessions = self._file.value("SELECT COUNT(*) FROM sessions")
        turns = self._file.value("SELECT COUNT(*) FROM events WHERE type = 'turn/start'")
        return sessions, turns, 0

    def naming_mark(self) -> int:
        """Return 0: a session names itself, and changes with its own rows."""
        return 0

    def rechecked(
        self, threads: Sequence[PlannedThread], naming_mark: int
    ) -> Mapping[str, SkipReason]:
        """Compare incarnation, revision and events with what the plan saw."""
        changed = {}
        for thread in threads:
            found = self._fingerprint(thread.thread_id)
            if not found:
                changed[thread.thread_id] = SkipReason.GONE
            elif found != thread.fingerprint:
                changed[thread.thread_id] = SkipReason.ACTIVE
        return changed

    def remove(self, threads: Sequence[PlannedThread]) -> None:
        """Delete the events of each session, and then its header.

        Raises StoreUnreadable, so that all is undone, when other rows went than were counted.
        """
        for thread in threads:
            key = encoded(thread.thread_id)
            events = self._file.run("DELETE FROM events WHERE session_id = CAST(%s AS TEXT)", [key])
            if events != thread.checkpoint_count:
                raise StoreUnreadable(
                    f"{self.alias}: deleting the {thread.checkpoint_count:,} events of a session "
                    f"changed {events:,} rows, so it was undone and nothing more was done. Look "
                    "for a trigger on that table."
                )
            self._file.run("DELETE FROM sessions WHERE id = CAST(%s AS TEXT)", [key])

    def _threads(self, progress: Progress, verb: str, *, weigh: bool) -> Iterator[NamedThread]:
        logs = all_logs(self._file, lambda done, all_: progress(verb, done, all_), weigh=weigh)
        headers = dict(self._headers())
        for session_id in sorted(headers.keys() | logs.keys(), key=sort_key):
            log = logs.get(session_id, Log())
            yield self._thread(session_id, headers.get(session_id), log, weighed=weigh)

    def _headers(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        after: list[Value] = []
        while rows := self._file.rows(
            "SELECT id, created_at, cwd FROM sessions"
            f"{' WHERE id > CAST(%s AS TEXT)' if after else ' WHERE id IS NOT NULL'}"
            f" ORDER BY id LIMIT {HEADERS_A_READ}",
            after,
        ):
            for session_id, *header in rows:
                yield session_id, tuple(header)
            after = [encoded(rows[-1][0])]

    def _header(self, session_id: str) -> tuple[Any, ...] | None:
        rows = self._file.rows(
            "SELECT created_at, cwd FROM sessions WHERE id = CAST(%s AS TEXT)",
            [encoded(session_id)],
        )
        return rows[0] if rows else None

    def _fingerprint(self, session_id: str) -> bytes:
        """Return what changes when the session gains or loses an event, or is another by now."""
        key = encoded(session_id)
        headers = self._file.rows(
            f"SELECT created_at, {self._identity} FROM sessions WHERE id = CAST(%s AS TEXT)", [key]
        )
        (events,) = self._file.rows(
            "SELECT COUNT(*), MIN(seq), MAX(seq), MAX(rowid) FROM events"
            " WHERE session_id = CAST(%s AS TEXT)",
            [key],
        )
        if not headers and not events[0]:
            return b""
        return blake2b(repr((headers, events)).encode(), digest_size=8).digest()

    def _thread(
        self,
        session_id: str,
        header: tuple[Any, ...] | None,
        log: Log,
        fingerprint: bytes = b"",
        *,
        weighed: bool = True,
    ) -> NamedThread:
        created_at, cwd = header or (None, None)
        last = instant_of_milliseconds(log.last if log.last is not None else created_at)
        stored = StoredThread(
            thread_id=session_id,
            checkpoint_count=log.row_count,
            write_count=0,
            byte_count=log.byte_count if weighed else None,
            first_activity=instant_of_milliseconds(log.first if created_at is None else created_at),
            last_activity=last if is_plain(session_id) else None,
            fingerprint=fingerprint,
        )
        if header is None:
            return NamedThread(stored=stored)
        conversation = Conversation(
            conversation_id=session_id,
            last_activity=last,
            turn_count=log.turn_count,
            project=str(cwd or ""),
        )
        return NamedThread(stored=stored, conversations=(conversation,))
