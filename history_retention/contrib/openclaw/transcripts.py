"""Every statement on the windows of an agent's file, and on the transcripts in them.

A window is the row of a session; its transcript is the events below it, of which newer files hold
large ones compressed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...exceptions import StoreUnreadable
from ...stores.base import Tables
from ...stores.sqlite import BEFORE_ALL_ROWS, SQLiteFile, Value, encoded
from .ages import Age
from .archives.compression import decompressed_bytes
from .plans import Window

EVENTS_A_READ = 20
"""Events loaded at once; OpenClaw lets none grow beyond 4 MB."""

_WINDOW_TIMES = ("updated_at", "transcript_updated_at")


class Transcripts:
    """The windows of an open file. What changes them runs inside the caller's transaction."""

    def __init__(self, file: SQLiteFile, tables: Tables, age: Age) -> None:
        self._file = file
        self._tables = tables
        self._age = age

    def owned(self) -> dict[str, list[str]]:
        """Return the ids of each key's windows."""
        owned: dict[str, list[str]] = defaultdict(list)
        for session_id, key in self._file.rows(
            f"SELECT session_id, session_key FROM {self._age.windows}"
            " WHERE typeof(session_id) = 'text' AND typeof(session_key) = 'text'"
            " ORDER BY session_id"
        ):
            owned[key].append(session_id)
        return owned

    def owned_by(self, key: str) -> list[str]:
        """Return the ids of the windows of one key."""
        rows = self._file.rows(
            f"SELECT session_id FROM {self._age.windows} WHERE session_key = CAST(%s AS TEXT)"
            " ORDER BY updated_at, session_id",
            [encoded(key)],
        )
        return [session_id for (session_id,) in rows]

    def windows(self, session_ids: Iterable[str]) -> dict[str, Window]:
        """Return those of the windows that are there, each with its snapshot."""
        found = (self._window(session_id) for session_id in session_ids)
        return {window.session_id: window for window in found if window is not None}

    def lines(self, session_id: str) -> Iterator[bytes]:
        """Stream the transcript's events as they were written, compressed ones decoded.

        Raises StoreUnreadable for one whose text has not the length that its row tells.
        """
        has_compressed = "event_zstd" in self._tables["transcript_events"]
        compressed = "event_zstd, event_utf8_bytes" if has_compressed else "NULL, NULL"
        after: Value = BEFORE_ALL_ROWS
        read = 0
        while rows := self._file.rows(
            f"SELECT seq, CAST(event_json AS BLOB), {compressed} FROM transcript_events"
            f" WHERE session_id = CAST(%s AS TEXT) AND seq > %s ORDER BY seq LIMIT {EVENTS_A_READ}",
            [encoded(session_id), after],
        ):
            for seq, text, frame, length in rows:
                yield self._line(session_id, seq, text, frame, length)
            read += len(rows)
            after = rows[-1][0]
        if read != (count := self.event_count(session_id)):
            raise StoreUnreadable(
                f"{self._file.alias}: session {session_id} has {count:,} events and {read:,} could "
                "be read in order, so its transcript cannot be archived and nothing of it was "
                "removed. Repair it with `openclaw doctor`."
            )

    def event_count(self, session_id: str) -> int:
        """Return how many events the transcript has."""
        return int(
            self._file.value(
                "SELECT COUNT(*) FROM transcript_events WHERE session_id = CAST(%s AS TEXT)",
                [encoded(session_id)],
            )
        )

    def leaf(self, session_id: str) -> str | None:
        """Return the id of the newest event of the transcript that has one."""
        rows = self._file.rows(
            "SELECT event_id FROM transcript_event_identities"
            " WHERE session_id = CAST(%s AS TEXT) AND event_type <> 'session'"
            " ORDER BY seq DESC LIMIT 1",
            [encoded(session_id)],
        )
        return rows[0][0] if rows else None

    def append(self, session_id: str, event: Mapping[str, Any], at: int) -> None:
        """Append an event of ours to a transcript, whose index OpenClaw brings up to date."""
        text = json.dumps(event, separators=(",", ":"))
        named = encoded(session_id)
        seq = self._file.value(
            "SELECT COALESCE(MAX(seq), -1) + 1 FROM transcript_events"
            " WHERE session_id = CAST(%s AS TEXT)",
            [named],
        )
        self._file.run(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES (CAST(%s AS TEXT), %s, %s, %s)",
            [named, seq, text, at],
        )
        self._file.run(
            "INSERT INTO transcript_event_identities"
            " (session_id, event_id, seq, event_type, parent_id, created_at)"
            " VALUES (CAST(%s AS TEXT), %s, %s, %s, %s, %s)",
            [named, event["id"], seq, event["type"], event["parentId"], at],
        )
        self._file.run(
            f"UPDATE {self._age.windows} SET transcript_updated_at = %s"
            " WHERE session_id = CAST(%s AS TEXT)",
            [at, named],
        )
        self._file.run(
            "UPDATE session_transcript_index_state SET needs_rebuild = 1"
            " WHERE session_id = CAST(%s AS TEXT)",
            [named],
        )

    def hand_over(self, session_id: str, key: str) -> None:
        """Let a window belong to another entry."""
        self._file.run(
            f"UPDATE {self._age.windows} SET session_key = CAST(%s AS TEXT)"
            " WHERE session_id = CAST(%s AS TEXT)",
            [encoded(key), encoded(session_id)],
        )

    def _window(self, session_id: str) -> Window | None:
        times = [n if n in self._tables[self._age.windows] else "NULL" for n in _WINDOW_TIMES]
        numbers = [
            f"(SELECT MAX(seq) FROM {table} AS t WHERE t.session_id = w.session_id)"
            for table in ("transcript_events", "trajectory_runtime_events")
            if table in self._tables
        ]
        if "acp_parent_stream_events" in self._tables:
            numbers.append(
                "(SELECT COUNT(*) FROM acp_parent_stream_events AS t"
                " WHERE t.session_id = w.session_id)"
            )
        generation = (
            "(SELECT generation FROM transcript_rewrite_watermarks AS t"
            " WHERE t.session_id = w.session_id)"
            if "transcript_rewrite_watermarks" in self._tables
            else "NULL"
        )
        is_cold = (
            "EXISTS (SELECT 1 FROM session_transcript_cold_archives AS t"
            " WHERE t.session_id = w.session_id)"
            if "session_transcript_cold_archives" in self._tables
            else "0"
        )
        rows = self._file.rows(
            f"SELECT w.session_key, {is_cold}, {generation}, {', '.join([*times, *numbers])}"
            f" FROM {self._age.windows} AS w WHERE w.session_id = CAST(%s AS TEXT)",
            [encoded(session_id)],
        )
        if not rows:
            return None
        key, is_cold_now, told_generation, *snapshot = rows[0]
        return Window(
            session_id=session_id,
            key=key,
            updated_at=snapshot[0],
            generation=told_generation,
            is_cold=bool(is_cold_now),
            snapshot=(told_generation, *snapshot),
        )

    def _line(
        self, session_id: str, seq: int, text: bytes | None, frame: bytes | None, length: int | None
    ) -> bytes:
        if text is not None:
            return text
        try:
            decoded = decompressed_bytes(frame or b"")
        except ValueError as error:
            raise self._damaged(session_id, seq, str(error)) from error
        if len(decoded) != length:
            raise self._damaged(session_id, seq, f"{len(decoded):,} bytes instead of {length}")
        return decoded

    def _damaged(self, session_id: str, seq: int, what: str) -> StoreUnreadable:
        return StoreUnreadable(
            f"{self._file.alias}: event {seq} of session {session_id} cannot be read ({what}), so "
            "its transcript cannot be archived and nothing of it was removed. Repair it with "
            "`openclaw doctor`."
        )
