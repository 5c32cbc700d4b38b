"""Agents' files for these tests: copies of the vendor's own, and what is in them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
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
