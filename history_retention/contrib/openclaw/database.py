"""Every statement on the tables of an OpenClaw agent's file, for both of its ages.

Only the tables that hold entries and transcripts are read and changed. The credentials and the
memory in the same file are never looked at.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...exceptions import LayoutUnknown, StoreUnreadable
from ...stores.base import Tables
from ...stores.sqlite import SQLiteFile, Value, encoded
from .ages import Age
from .archives.compression import decompressed_bytes
from .dependents import Dependents
from .entries import Entry, digest_of, entry_of
from .plans import Window

EVENTS_A_READ = 20
"""Events loaded at once; OpenClaw lets none grow beyond 4 MB."""

IDS_A_STATEMENT = 200
_WINDOW_TIMES = ("updated_at", "transcript_updated_at")


class AgentDatabase:
    """An agent's open file. What changes it runs inside the caller's transaction."""

    def __init__(self, file: SQLiteFile, tables: Tables, age: Age) -> None:
        self.file = file
        self.age = age
        self.tables = tables
        self.version = int(file.value("PRAGMA user_version"))
        self.dependents = Dependents(file, tables, age)

    @property
    def path(self) -> Path:
        """Return where the file is; StoreUnreadable for one in memory, beside which no file is."""
        if self.file.path is None:
            raise StoreUnreadable(
                f"{self.file.alias}: this database is in memory, so there is no folder to archive "
                "its transcripts in; nothing was touched. Use a file."
            )
        return self.file.path

    @property
    def keeps_archives(self) -> bool:
        """Tell whether archives are rows first and files afterwards (since version 19)."""
        return "session_transcript_archives" in self.tables

    def require_changeable(self) -> None:
        """Raise LayoutUnknown for a file that may be listed, but whose rules are not known here."""
        lowest, highest = self.age.versions
        roles = self.file.rows("SELECT role FROM schema_meta WHERE meta_key = 'primary'")
        if roles != [("agent",)]:
            raise LayoutUnknown(
                f"{self.file.alias}: its schema_meta does not say that this is an agent's own "
                "database, so nothing was touched. Check NAME in DATABASES."
            )
        if not lowest <= self.version <= highest:
            raise LayoutUnknown(
                f"{self.file.alias}: this file has OpenClaw's schema {self.version}, and the rules "
                f"of {lowest} to {highest} are known here; it can be listed, and nothing in it is "
                "changed. Look for a newer django-history-retention."
            )
        if not self.file.value("PRAGMA foreign_keys"):
            raise StoreUnreadable(
                f"{self.file.alias}: this connection does not enforce foreign keys, without which "
                "a removal would leave orphans; nothing was touched."
            )

    def data_version(self) -> int:
        """Return a number that changes when another connection commits."""
        return int(self.file.value("PRAGMA data_version"))

    def entries(self, known: Mapping[str, Entry]) -> Iterator[Entry]:
        """Stream all entries; one that is as it was is the known one, and not parsed again."""
        columns = self._entry_columns()
        after: list[Value] = []
        while rows := self.file.rows(
            f"SELECT {columns} FROM {self.age.entries}"
            f"{' WHERE session_key > CAST(%s AS TEXT)' if after else ''}"
            f" ORDER BY session_key LIMIT {IDS_A_STATEMENT}",
            after,
        ):
            for row in rows:
                yield self._entry(row, known)
            after = [encoded(rows[-1][0])]

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        rows = self.file.rows(
            f"SELECT {self._entry_columns()} FROM {self.age.entries}"
            " WHERE session_key = CAST(%s AS TEXT)",
            [encoded(key)],
        )
        return self._entry(rows[0], {}) if rows else None

    def entry_text(self, key: str) -> bytes:
        """Return the whole text of an entry."""
        (text,) = self.file.rows(
            f"SELECT CAST(entry_json AS BLOB) FROM {self.age.entries}"
            " WHERE session_key = CAST(%s AS TEXT)",
            [encoded(key)],
        )[0]
        return bytes(text)

    def owned(self) -> dict[str, list[str]]:
        """Return the ids of each key's windows."""
        owned: dict[str, list[str]] = defaultdict(list)
        for session_id, key in self.file.rows(
            f"SELECT session_id, session_key FROM {self.age.windows} ORDER BY session_id"
        ):
            owned[key].append(session_id)
        return owned

    def owned_by(self, key: str) -> list[str]:
        """Return the ids of the windows of one key."""
        rows = self.file.rows(
            f"SELECT session_id FROM {self.age.windows} WHERE session_key = CAST(%s AS TEXT)"
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
        has_compressed = "event_zstd" in self.tables["transcript_events"]
        compressed = "event_zstd, event_utf8_bytes" if has_compressed else "NULL, NULL"
        after: Value = -1
        while rows := self.file.rows(
            f"SELECT seq, CAST(event_json AS BLOB), {compressed} FROM transcript_events"
            f" WHERE session_id = CAST(%s AS TEXT) AND seq > %s ORDER BY seq LIMIT {EVENTS_A_READ}",
            [encoded(session_id), after],
        ):
            for seq, text, frame, length in rows:
                yield self._line(session_id, seq, text, frame, length)
            after = rows[-1][0]

    def has_lines(self, session_id: str) -> bool:
        """Tell whether the transcript has an event."""
        return bool(
            self.file.value(
                "SELECT EXISTS (SELECT 1 FROM transcript_events"
                " WHERE session_id = CAST(%s AS TEXT))",
                [encoded(session_id)],
            )
        )

    def leaf(self, session_id: str) -> str | None:
        """Return the id of the newest event of the transcript that has one."""
        rows = self.file.rows(
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
        seq = self.file.value(
            "SELECT COALESCE(MAX(seq), -1) + 1 FROM transcript_events"
            " WHERE session_id = CAST(%s AS TEXT)",
            [named],
        )
        self.file.run(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES (CAST(%s AS TEXT), %s, %s, %s)",
            [named, seq, text, at],
        )
        self.file.run(
            "INSERT INTO transcript_event_identities"
            " (session_id, event_id, seq, event_type, parent_id, created_at)"
            " VALUES (CAST(%s AS TEXT), %s, %s, %s, %s, %s)",
            [named, event["id"], seq, event["type"], event["parentId"], at],
        )
        self.file.run(
            f"UPDATE {self.age.windows} SET transcript_updated_at = %s"
            " WHERE session_id = CAST(%s AS TEXT)",
            [at, named],
        )
        self.file.run(
            "UPDATE session_transcript_index_state SET needs_rebuild = 1"
            " WHERE session_id = CAST(%s AS TEXT)",
            [named],
        )

    def rewrite(self, key: str, entry_json: bytes, updated_at: int) -> None:
        """Replace an entry's text (B), and say that it is valid."""
        self.file.run(
            "UPDATE session_nodes SET entry_json = CAST(%s AS TEXT), updated_at = %s"
            " WHERE session_key = CAST(%s AS TEXT)",
            [entry_json, updated_at, encoded(key)],
        )
        self.settle(key, 1)

    def begin_session(self, entry: Entry, following: Entry, entry_json: bytes) -> None:
        """Give an entry (A) a new session, with the scope and the chat of its last one."""
        copied = [
            name
            for name in ("session_scope", "chat_type", "channel", "account_id")
            if name in self.tables["sessions"]
        ]
        names = ", ".join(["session_id", "session_key", "created_at", "updated_at", *copied])
        self.file.run(
            f"INSERT INTO sessions ({names}) SELECT CAST(%s AS TEXT), session_key, %s, %s"
            f"{''.join(f', {name}' for name in copied)}"
            " FROM sessions WHERE session_id = CAST(%s AS TEXT)",
            [
                encoded(following.current_id),
                following.updated_at,
                following.updated_at,
                encoded(entry.current_id),
            ],
        )
        for table, text in (
            (self.age.entries, ", entry_json = CAST(%s AS TEXT)"),
            ("session_routes", ""),
        ):
            self.file.run(
                f"UPDATE {table} SET session_id = CAST(%s AS TEXT), updated_at = %s{text}"
                " WHERE session_key = CAST(%s AS TEXT)",
                [
                    encoded(following.current_id),
                    following.updated_at,
                    *([entry_json] if text else []),
                    encoded(entry.key),
                ],
            )

    def hand_over(self, session_id: str, key: str) -> None:
        """Let a window belong to another entry."""
        self.file.run(
            f"UPDATE {self.age.windows} SET session_key = CAST(%s AS TEXT)"
            " WHERE session_id = CAST(%s AS TEXT)",
            [encoded(key), encoded(session_id)],
        )

    def settle(self, key: str, valid: int) -> None:
        """Say again that an entry is valid (1) or a shell (-1), which any change of it unsays."""
        if "entry_valid" in self.tables[self.age.entries]:
            self.file.run(
                f"UPDATE {self.age.entries} SET entry_valid = %s"
                " WHERE session_key = CAST(%s AS TEXT)",
                [valid, encoded(key)],
            )

    def turn_into_shell(self, key: str) -> None:
        """Leave of an entry only the node that its remaining windows need."""
        kept = {"session_key", "current_session_id", "entry_json", "updated_at", "entry_valid"}
        promoted = [name for name in self.tables[self.age.entries] if name not in kept]
        emptied = "".join(f", {name} = NULL" for name in promoted)
        self.file.run(
            f"UPDATE session_nodes SET entry_json = '{{}}'{emptied},"
            " (current_session_id, updated_at) = (SELECT session_id, updated_at"
            " FROM session_windows AS w WHERE w.session_key = session_nodes.session_key"
            " ORDER BY updated_at DESC, session_id DESC LIMIT 1)"
            " WHERE session_key = CAST(%s AS TEXT)",
            [encoded(key)],
        )
        self.settle(key, -1)

    def _entry_columns(self) -> str:
        names = self.tables[self.age.entries]
        told = [
            "session_key",
            self.age.current_id,
            "CAST(entry_json AS BLOB)",
            "updated_at",
            *(name if name in names else "NULL" for name in ("pinned_at", "archived_at")),
            "entry_valid" if "entry_valid" in names else "1",
        ]
        return ", ".join(told)

    def _entry(self, row: tuple[Any, ...], known: Mapping[str, Entry]) -> Entry:
        key, current_id, text, updated_at, pinned_at, archived_at, valid = row
        before = known.get(key)
        columns = (current_id, updated_at, pinned_at, archived_at)
        if before is not None and before.digest == digest_of(text) and before.columns == columns:
            return before
        return entry_of(
            key,
            current_id,
            text,
            updated_at,
            pinned_at=pinned_at,
            archived_at=archived_at,
            valid=valid,
        )

    def _window(self, session_id: str) -> Window | None:
        times = [n if n in self.tables[self.age.windows] else "NULL" for n in _WINDOW_TIMES]
        numbers = [
            f"(SELECT MAX(seq) FROM {table} AS t WHERE t.session_id = w.session_id)"
            for table in ("transcript_events", "trajectory_runtime_events")
            if table in self.tables
        ]
        if "acp_parent_stream_events" in self.tables:
            numbers.append(
                "(SELECT COUNT(*) FROM acp_parent_stream_events AS t"
                " WHERE t.session_id = w.session_id)"
            )
        generation = (
            "(SELECT generation FROM transcript_rewrite_watermarks AS t"
            " WHERE t.session_id = w.session_id)"
            if "transcript_rewrite_watermarks" in self.tables
            else "NULL"
        )
        is_cold = (
            "EXISTS (SELECT 1 FROM session_transcript_cold_archives AS t"
            " WHERE t.session_id = w.session_id)"
            if "session_transcript_cold_archives" in self.tables
            else "0"
        )
        rows = self.file.rows(
            f"SELECT w.session_key, {is_cold}, {generation}, {', '.join([*times, *numbers])}"
            f" FROM {self.age.windows} AS w WHERE w.session_id = CAST(%s AS TEXT)",
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
            f"{self.file.alias}: event {seq} of session {session_id} cannot be read ({what}), so "
            "its transcript cannot be archived and nothing of it was removed. Repair it with "
            "`openclaw doctor`."
        )
