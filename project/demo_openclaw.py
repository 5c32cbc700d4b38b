"""A small OpenClaw agent's file to try the package on, of age B, as a few weeks of use leave it.

It has the tables that this package looks at, in the shape of OpenClaw's schema 23, and nothing
else: it is for looking and pruning, not for an agent to go on with.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from .demo_store import QUESTIONS, WORDS

SCHEMA_VERSION = 23

TABLES = """
CREATE TABLE schema_meta (
    meta_key TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL, schema_version INTEGER NOT NULL,
    agent_id TEXT, app_version TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE session_nodes (
    session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL,
    entry_json TEXT NOT NULL, entry_valid INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL, status TEXT, label TEXT, pinned_at INTEGER, archived_at INTEGER
) STRICT;
CREATE TABLE session_windows (
    session_id TEXT NOT NULL PRIMARY KEY,
    session_key TEXT NOT NULL REFERENCES session_nodes(session_key) ON DELETE CASCADE,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, transcript_updated_at INTEGER,
    status TEXT
) STRICT;
CREATE INDEX windows_by_key ON session_windows(session_key, updated_at, session_id);
CREATE TABLE transcript_events (
    session_id TEXT NOT NULL REFERENCES session_windows(session_id) ON DELETE CASCADE,
    seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL, event_zstd BLOB,
    event_utf8_bytes INTEGER, navigation_json TEXT, PRIMARY KEY (session_id, seq)
) STRICT;
CREATE TABLE transcript_event_identities (
    session_id TEXT NOT NULL, event_id TEXT NOT NULL, seq INTEGER NOT NULL, event_type TEXT,
    parent_id TEXT, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, event_id),
    FOREIGN KEY (session_id, seq) REFERENCES transcript_events(session_id, seq) ON DELETE CASCADE
) STRICT;
CREATE TABLE transcript_rewrite_watermarks (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session_windows(session_id) ON DELETE CASCADE,
    generation TEXT NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE session_transcript_archives (
    session_id TEXT NOT NULL, generation TEXT NOT NULL, session_key TEXT NOT NULL,
    reason TEXT NOT NULL, encoding TEXT NOT NULL, archive_blob BLOB NOT NULL,
    archive_sha256 TEXT NOT NULL, archive_name TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL,
    published_at INTEGER, publish_attempts INTEGER NOT NULL DEFAULT 0,
    last_publish_attempt_at INTEGER, last_publish_error TEXT, PRIMARY KEY (session_id, generation)
) STRICT;
CREATE TABLE session_transcript_index_state (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session_windows(session_id) ON DELETE CASCADE,
    indexed_seq INTEGER NOT NULL, needs_rebuild INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE TABLE session_transcript_fts_rows (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, message_id TEXT
) STRICT;
CREATE VIRTUAL TABLE session_transcript_fts USING fts5(text, session_id UNINDEXED);
CREATE TRIGGER fts_follows AFTER DELETE ON session_transcript_fts_rows
    BEGIN DELETE FROM session_transcript_fts WHERE rowid = OLD.id; END;
"""

SHARED = "before they parted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An entry of the demo: its key, how long it is idle, and what its family and state are.

    ``family`` names earlier sessions; the same name in two entries is one session of both.
    """

    key: str
    idle: timedelta
    family: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    is_pinned: bool = False


ENTRIES = (
    Kept(key="main", idle=timedelta(hours=3), family=("before the first compaction",)),
    Kept(key="dashboard:checkout", idle=timedelta(days=44), family=(SHARED,)),
    Kept(key="dashboard:invoices", idle=timedelta(days=12), family=(SHARED,)),
    Kept(key="dashboard:release", idle=timedelta(days=60), is_pinned=True),
    Kept(key="telegram:direct:1001", idle=timedelta(days=50), family=("spring", "summer")),
    Kept(key="cron:nightly:run:41", idle=timedelta(days=35)),
    Kept(key="cron:nightly:run:42", idle=timedelta(hours=9)),
    Kept(key="subagent:import", idle=timedelta(days=80), fields={"label": "Import the archive"}),
    Kept(key="reports", idle=timedelta(days=90), fields={"label": "Quarterly reports"}),
    Kept(key="migration", idle=timedelta(minutes=2), fields={"status": "running"}),
)


def write_demo_openclaw(path: Path, *, now: datetime) -> int:
    """Write the file; the same ``now`` gives the same rows. Returns how many entries it has."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.executescript(TABLES)
        with connection:
            _Writer(connection, now).write()
    return len(ENTRIES)


class _Writer:
    """Writes the entries with their sessions and transcripts."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._random = Random(11)  # noqa: S311 - a demo's text
        self._known: dict[str, str] = {}

    def write(self) -> None:
        """Write everything."""
        at = _milliseconds(self._now)
        self._run(
            "INSERT INTO schema_meta VALUES ('primary', 'agent', ?, 'main', NULL, ?, ?)",
            (SCHEMA_VERSION, at, at),
        )
        for entry in ENTRIES:
            self._write_entry(entry)

    def _write_entry(self, entry: Kept) -> None:
        at = _milliseconds(self._now - entry.idle)
        current = self._uuid()
        earlier = [self._known.setdefault(name, self._uuid()) for name in entry.family]
        key = f"agent:main:{entry.key}"
        fields = {
            "sessionId": current,
            "updatedAt": at,
            "sessionStartedAt": at - 3_600_000,
            "usageFamilySessionIds": [*earlier, current],
            **entry.fields,
            "delivery": {"kind": "none"},
        }
        self._run(
            "INSERT INTO session_nodes (session_key, current_session_id, entry_json, entry_valid,"
            " updated_at, status, label, pinned_at) VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
            (
                *(key, current, json.dumps(fields, separators=(",", ":")), at),
                *(fields.get("status"), fields.get("label"), at if entry.is_pinned else None),
            ),
        )
        for session_id in [*earlier, current]:
            self._write_session(session_id, key, at)

    def _write_session(self, session_id: str, key: str, at: int) -> None:
        if not self._run(
            "INSERT OR IGNORE INTO session_windows VALUES (?, ?, ?, ?, ?, NULL)",
            (session_id, key, at - 3_600_000, at, at),
        ).rowcount:
            return
        self._run(
            "INSERT INTO transcript_rewrite_watermarks VALUES (?, ?, ?)",
            (session_id, f"{self._random.getrandbits(128):032x}", at),
        )
        count = self._random.randint(6, 30)
        parent = None
        for seq in range(count):
            parent = self._write_event(session_id, seq, parent, at - 60_000 * (count - seq))
        self._run(
            "INSERT INTO session_transcript_index_state VALUES (?, ?, 0, ?)",
            (session_id, count - 1, at),
        )

    def _write_event(self, session_id: str, seq: int, parent: str | None, at: int) -> str | None:
        event_id = session_id if seq == 0 else f"{self._random.getrandbits(32):08x}"
        text = self._random.choice(QUESTIONS) if seq % 2 else self._text()
        event: dict[str, Any] = {"type": "session", "version": 3, "id": session_id}
        if seq:
            role = "user" if seq % 2 else "assistant"
            content = [{"type": "text", "text": text}]
            event = {
                "type": "message",
                "id": event_id,
                "parentId": parent,
                "message": {"role": role, "content": content},
            }
        self._run(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES (?, ?, ?, ?)",
            (session_id, seq, json.dumps(event, separators=(",", ":")), at),
        )
        self._run(
            "INSERT INTO transcript_event_identities VALUES (?, ?, ?, ?, ?, ?)",
            (session_id, event_id, seq, event["type"], parent, at),
        )
        if seq == 0:
            return None
        row = self._run(
            "INSERT INTO session_transcript_fts_rows (session_id, message_id) VALUES (?, ?)",
            (session_id, event_id),
        ).lastrowid
        self._run(
            "INSERT INTO session_transcript_fts (rowid, text, session_id) VALUES (?, ?, ?)",
            (row, text, session_id),
        )
        return event_id

    def _text(self) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(40, 400)))

    def _uuid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def _run(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
