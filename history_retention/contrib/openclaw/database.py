"""An OpenClaw agent's open file, of either age, and every statement on its entries.

Only the tables that hold entries and transcripts are read and changed. The credentials and the
memory in the same file are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...exceptions import LayoutUnknown, StoreUnreadable
from ...stores.base import Tables
from ...stores.sqlite import SQLiteFile, Value, encoded
from .ages import Age
from .dependents import Dependents
from .entries import Entry, entry_of
from .transcripts import Transcripts

ENTRIES_A_READ = 200


class AgentDatabase:
    """An agent's open file. What changes it runs inside the caller's transaction."""

    def __init__(self, file: SQLiteFile, tables: Tables, age: Age) -> None:
        self.file = file
        self.age = age
        self.tables = tables
        self.version = int(file.value("PRAGMA user_version"))
        self.transcripts = Transcripts(file, tables, age)
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

    def entries(self, known: Mapping[str, Entry], trusted_before: int) -> Iterator[Entry]:
        """Stream all entries, in the order of their keys.

        One that is known, has not changed since ``trusted_before`` (milliseconds) by what its row
        says, and whose other columns are the same, is not read again.
        """
        after: list[Value] = []
        while rows := self.file.rows(
            f"SELECT session_key, {self._other_columns()} FROM {self.age.entries}"
            f"{' WHERE session_key > CAST(%s AS TEXT)' if after else ''}"
            f" ORDER BY session_key LIMIT {ENTRIES_A_READ}",
            after,
        ):
            for raw, *columns in rows:
                key = self._text(raw)
                before = known.get(key)
                if (
                    before is None
                    or before.columns != tuple(columns)
                    or not (before.updated_at < trusted_before)
                ):
                    before = self.entry(key)
                if before is not None:
                    yield before
            after = [encoded(rows[-1][0])]

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        rows = self.file.rows(
            f"SELECT session_key, CAST(entry_json AS BLOB), {self._other_columns()}"
            f" FROM {self.age.entries} WHERE session_key = CAST(%s AS TEXT)",
            [encoded(key)],
        )
        return self._entry(rows[0]) if rows else None

    def edited(self, key: str, changes: Mapping[str, Value], without: Sequence[str] = ()) -> bytes:
        """Return the text of an entry with some of its members changed, and others left out.

        SQLite edits it: what is not named stays as OpenClaw wrote it, numbers and order included.
        """
        removed = "".join(f", '$.{name}'" for name in without)
        text = f"json_remove(entry_json{removed})" if without else "entry_json"
        members = "".join(f", '$.{name}', %s" for name in changes)
        (edited,) = self.file.rows(
            f"SELECT CAST(json_set({text}{members}) AS BLOB) FROM {self.age.entries}"
            " WHERE session_key = CAST(%s AS TEXT)",
            [*changes.values(), encoded(key)],
        )[0]
        return bytes(edited)

    def archive_in_place(self, key: str, reason: str, at: int) -> None:
        """Mark an entry (B) as archived, which unpins it; what else it says stays."""
        text = self.edited(key, {"archivedAt": at, "archiveReason": reason}, ["pinnedAt"])
        self.file.run(
            "UPDATE session_nodes SET entry_json = CAST(%s AS TEXT), archived_at = %s,"
            " pinned_at = NULL WHERE session_key = CAST(%s AS TEXT)",
            [text, at, encoded(key)],
        )
        self.settle(key, 1)

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
        now = [encoded(following.current_id), following.updated_at]
        self.file.run(
            "UPDATE session_entries SET session_id = CAST(%s AS TEXT), updated_at = %s,"
            " entry_json = CAST(%s AS TEXT) WHERE session_key = CAST(%s AS TEXT)",
            [*now, entry_json, encoded(entry.key)],
        )
        if "session_routes" in self.tables:
            self.file.run(
                "UPDATE session_routes SET session_id = CAST(%s AS TEXT), updated_at = %s"
                " WHERE session_key = CAST(%s AS TEXT)",
                [*now, encoded(entry.key)],
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

    def _other_columns(self) -> str:
        names = self.tables[self.age.entries]
        told = [
            self.age.current_id,
            "updated_at",
            *(name if name in names else "NULL" for name in ("pinned_at", "archived_at")),
            "entry_valid" if "entry_valid" in names else "1",
        ]
        return ", ".join(told)

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        key, text, current_id, updated_at, pinned_at, archived_at, valid = row
        return entry_of(
            key,
            self._text(current_id),
            text,
            updated_at,
            pinned_at=pinned_at,
            archived_at=archived_at,
            valid=valid,
        )

    def _text(self, value: object) -> str:
        """Return a key or an id; StoreUnreadable for one that is no text."""
        if isinstance(value, str):
            return value
        raise StoreUnreadable(
            f"{self.file.alias}: an entry has a key or a session that is no text, so nobody can "
            "tell what it needs; nothing was touched. Repair it with `openclaw doctor`."
        )
