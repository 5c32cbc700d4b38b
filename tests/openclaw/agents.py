"""Agents' files for these tests: copies of the vendor's own, and what is in them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from history_retention.contrib.openclaw.apps import octet_length
from history_retention.contrib.openclaw.archives import files

from ..store_files import FIXTURES

OPENCLAW = FIXTURES / "openclaw"
AGES = ("v8", "v23")


def copy_agent(age: str, folder: Path, kind: str = "families") -> Path:
    """Copy a fixture to where OpenClaw would have it, and return the database."""
    path = folder / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    shutil.copyfile(OPENCLAW / f"fixture-{age}-{kind}.sqlite", path)
    return path


def answers(name: str) -> Any:
    """Return what the vendor answered."""
    return json.loads((OPENCLAW / f"expected-{name}.json").read_text())


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as a plain reader and writer, with foreign keys."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("octet_length", 1, octet_length, deterministic=True)
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


def is_whole(path: Path) -> bool:
    """Tell whether SQLite finds the file, and every foreign key in it, in order."""
    with opened(path) as connection:
        return (
            connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            and not connection.execute("PRAGMA foreign_key_check").fetchall()
        )


def archived(path: Path) -> dict[tuple[str, str], list[bytes]]:
    """Return the lines of every archive file, by session and reason."""
    return {
        (each.name.stem, each.name.reason): list(files.lines_of(each.path))
        for each in files.listed(files.folder_beside(path))
    }


def transcripts(path: Path) -> dict[str, list[bytes]]:
    """Return the events of every session as they lie in the file."""
    told: dict[str, list[bytes]] = {}
    with opened(path) as connection:
        for session_id, text in connection.execute(
            "SELECT session_id, CAST(event_json AS BLOB) FROM transcript_events"
            " ORDER BY session_id, seq"
        ):
            told.setdefault(session_id, []).append(text)
    return told


def counts(path: Path, table: str) -> dict[str, int]:
    """Count a table's rows of each session."""
    with opened(path) as connection:
        return dict(
            connection.execute(f"SELECT session_id, COUNT(*) FROM {table} GROUP BY session_id")
        )


def told_tables(path: Path, age: str) -> dict[str, Any]:
    """Return what is in the file, in the words of the vendor's answers."""
    with opened(path) as connection:

        def lines(sql: str) -> list[str]:
            return sorted(line for (line,) in connection.execute(sql))

        if age == "v8":
            told: dict[str, Any] = {
                "session_entries": lines(
                    "SELECT session_key || ' -> ' || session_id FROM session_entries"
                ),
                "session_routes": lines(
                    "SELECT session_key || ' -> ' || session_id FROM session_routes"
                ),
                "sessions": lines("SELECT session_id || ' @ ' || session_key FROM sessions"),
            }
            names = {
                "transcript_events": "transcript_events",
                "transcript_event_identities": "transcript_event_identities",
                "session_transcript_fts": "session_transcript_fts",
            }
        else:
            told = {
                "nodes": lines(
                    "SELECT session_key || ' -> ' || current_session_id || ' valid=' || entry_valid"
                    " FROM session_nodes"
                ),
                "windows": lines("SELECT session_id || ' @ ' || session_key FROM session_windows"),
            }
            names = {
                "events": "transcript_events",
                "identities": "transcript_event_identities",
                "fts": "session_transcript_fts",
            }
        told["index_state"] = lines("SELECT session_id FROM session_transcript_index_state")
    return told | {name: counts(path, table) for name, table in names.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An entry to write: its key, its session, and what else its JSON says.

    ``text`` replaces the JSON. ``windows`` are sessions that belong to the key beside its own.
    """

    key: str
    session_id: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None
    windows: tuple[str, ...] = ()
    pinned: bool = False

    def json(self) -> str:
        """Return the entry's text."""
        fields = {"sessionId": self.session_id, "updatedAt": UPDATED, **self.fields}
        return self.text if self.text is not None else json.dumps(fields, separators=(",", ":"))


UPDATED = 1_795_946_400_000


def empty_agent(age: str, folder: Path) -> Path:
    """Copy a fixture and remove its entries and sessions, so that only its tables are left."""
    path = copy_agent(age, folder)
    with opened(path) as connection:
        for table in ("session_transcript_fts_rows", "session_transcript_fts"):
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                connection.execute(f"DELETE FROM {table}")
        for table in ("sessions", "session_entries", "session_nodes"):
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
                connection.execute(f"DELETE FROM {table}")
        connection.execute("DELETE FROM session_transcript_index_state")
    return path


def write_entries(path: Path, entries: Sequence[Told], *, events: int = 2) -> None:
    """Write entries with their windows, each with a transcript, as the file's age has them."""
    with opened(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        has_nodes = version >= 14
        for told in entries:
            if has_nodes:
                connection.execute(
                    "INSERT INTO session_nodes (session_key, current_session_id, entry_json,"
                    " updated_at, pinned_at) VALUES (?, ?, ?, ?, ?)",
                    [
                        told.key,
                        told.session_id,
                        told.json(),
                        UPDATED,
                        UPDATED if told.pinned else None,
                    ],
                )
                connection.execute("UPDATE session_nodes SET entry_valid = 1")
            for session_id in (told.session_id, *told.windows):
                _write_window(connection, session_id, told.key, events, has_nodes=has_nodes)
            if not has_nodes:
                connection.execute(
                    "INSERT INTO session_entries (session_key, session_id, entry_json, updated_at)"
                    " VALUES (?, ?, ?, ?)",
                    [told.key, told.session_id, told.json(), UPDATED],
                )


def _write_window(
    connection: sqlite3.Connection, session_id: str, key: str, events: int, *, has_nodes: bool
) -> None:
    table = "session_windows" if has_nodes else "sessions"
    if not connection.execute(
        f"INSERT OR IGNORE INTO {table} (session_id, session_key, created_at, updated_at)"
        " VALUES (?, ?, ?, ?)",
        [session_id, key, UPDATED, UPDATED],
    ).rowcount:
        return
    if has_nodes:
        connection.execute(
            "INSERT INTO transcript_rewrite_watermarks VALUES (?, ?, ?)",
            [session_id, sha256(session_id.encode()).hexdigest()[:32], UPDATED],
        )
    for seq in range(events):
        event = {"type": "message", "id": f"{session_id}-{seq}", "text": f"word{session_id}"}
        connection.execute(
            "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
            " VALUES (?, ?, ?, ?)",
            [session_id, seq, json.dumps(event), UPDATED],
        )
        connection.execute(
            "INSERT INTO transcript_event_identities (session_id, event_id, seq, created_at)"
            " VALUES (?, ?, ?, ?)",
            [session_id, event["id"], seq, UPDATED],
        )
        if has_nodes:
            row = connection.execute(
                "INSERT INTO session_transcript_fts_rows (session_id, message_id) VALUES (?, ?)",
                [session_id, event["id"]],
            ).lastrowid
            connection.execute(
                "INSERT INTO session_transcript_fts (rowid, text, session_id) VALUES (?, ?, ?)",
                [row, event["text"], session_id],
            )
        else:
            connection.execute(
                "INSERT INTO session_transcript_fts (text, session_id) VALUES (?, ?)",
                [event["text"], session_id],
            )


def found_in_search(path: Path, session_id: str) -> int:
    """Count what the full-text index finds of a session."""
    with opened(path) as connection:
        (count,) = connection.execute(
            "SELECT COUNT(*) FROM session_transcript_fts WHERE session_transcript_fts MATCH ?",
            [f'"word{session_id}"'],
        ).fetchone()
        return int(count)


def keys_in(path: Path) -> set[str]:
    """Return the keys that have an entry, or at least a node."""
    with opened(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        table = "session_nodes" if version >= 14 else "session_entries"
        return {key for (key,) in connection.execute(f"SELECT session_key FROM {table}")}
