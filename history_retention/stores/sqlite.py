"""A vendor's SQLite file: opening it without leaving a trace, and its statements and locks.

The connection is a private copy of the Django alias: it has the alias's options, but it is in no
transaction of the caller's, never creates a file, and decodes any thread id. Its only settings
are those of the connection itself (``secure_delete``); none of them is stored in the file.

The file is only ever opened by SQLite. Were this process to open and close it by itself, POSIX
would drop the locks that SQLite holds on it (https://www.sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.db import Error as DjangoDatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import get_settings
from ..exceptions import HistoryRetentionError, StoreBusy, StoreUnreadable
from .paths import path_of, require_file

Value = str | bytes | int | float | None
"""What is bound to a statement."""

BEFORE_ALL_ROWS = -inf
"""Lower than any rowid, the lowest 64-bit integer included."""

LOCK_WAIT_MILLISECONDS = 100
"""How long a write transaction waits for others when it begins and when it commits."""

_SENTENCES = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; check NAME in DATABASES",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore it from a backup or recover it with sqlite3",
    sqlite3.SQLITE_READONLY: "is read-only here; give this user write access to it and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; let this user read it and write its folder",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full; free some space and run this again",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the disk and run this again",
}


class SQLiteFile:
    """An open vendor file. Statements run in autocommit unless inside ``removing``."""

    def __init__(self, alias: str, connection: BaseDatabaseWrapper, path: Path | None) -> None:
        self.alias = alias
        self.path = path
        self._connection = connection

    def rows(self, sql: str, params: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows; its read lock ends with it."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def value(self, sql: str, params: Sequence[Value] = ()) -> Any:
        """Run one statement and return the first column of its first row."""
        return self.rows(sql, params)[0][0]

    def run(self, sql: str, params: Sequence[Value] = ()) -> int:
        """Run one statement; return how many rows changed, by triggers and foreign keys too."""
        raw: sqlite3.Connection = self._connection.connection
        before = raw.total_changes
        with self._connection.cursor() as cursor:
            cursor.execute(sql, params)
        return raw.total_changes - before

    def first_bytes(self, table: str, column: str, rowid: int, size: int) -> bytes:
        """Return the beginning of a payload without reading the rest; empty when it has none."""
        raw: sqlite3.Connection = self._connection.connection
        try:
            with raw.blobopen(table, column, rowid, readonly=True) as blob:
                return blob.read(size)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # NULL or a number: no bytes
                return b""
            raise

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of every table, in order, all names in lower case.

        A virtual table has none here: it needs its module to tell them, and holds no history.
        """
        return {
            name: tuple(
                column
                for (column,) in self.rows(
                    "SELECT LOWER(name) FROM pragma_table_info(%s) WHERE %s", [name, is_real]
                )
            )
            for name, is_real in self.rows(
                "SELECT LOWER(name), rootpage > 0 FROM sqlite_master WHERE type = 'table'"
            )
        }

    def key_columns(self, table: str) -> list[tuple[str, str]]:
        """Return name and order of the primary key's columns, in key order."""
        return self.rows(
            "SELECT LOWER(x.name), x.coll || CASE WHEN x.desc THEN ' DESC' ELSE '' END"
            " FROM pragma_index_list(%s) AS l, pragma_index_xinfo(l.name) AS x"
            " WHERE l.origin = 'pk' AND x.key ORDER BY x.seqno",
            [table],
        )

    def is_write_ahead(self) -> bool:
        """Tell whether readers and a writer of this file do not block one another (WAL)."""
        return bool(self.value("PRAGMA journal_mode") == "wal")

    @property
    def patience_seconds(self) -> float:
        """Return the alias's busy timeout; Python's own default is 5."""
        return float(self._connection.settings_dict["OPTIONS"].get("timeout", 5))

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Hold the write lock from the start; commit on leaving, roll back on any error.

        Waits shortly for it: a commit that waits for readers keeps new readers and writers out.
        """
        with self.waiting_shortly(), self._transaction():
            yield

    @contextmanager
    def waiting_shortly(self) -> Iterator[None]:
        """Wait for the locks of others for 100 ms at most, instead of ``patience_seconds``."""
        self.run(f"PRAGMA busy_timeout = {LOCK_WAIT_MILLISECONDS}")
        try:
            yield
        finally:
            self.run(f"PRAGMA busy_timeout = {round(self.patience_seconds * 1000)}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        raw: sqlite3.Connection = self._connection.connection
        try:
            self.run("BEGIN IMMEDIATE")
            yield
            self.run("COMMIT")
        except (DjangoDatabaseError, sqlite3.Error) as error:
            raw.rollback()
            raise sentence_for(self.alias, self.path, error) from error
        except BaseException:
            raw.rollback()
            raise


@contextmanager
def opened(alias: str) -> Iterator[SQLiteFile]:
    """Open the alias's file for a store's work; every database error leaves as a sentence.

    Raises StoreMissing, StoreUnreadable or StoreBusy. The file must be there already.
    """
    settings_dict = connections[alias].settings_dict
    path = path_of(settings_dict["NAME"])
    if path is not None:
        require_file(alias, path)
    connection = connections[alias].copy()
    if path is not None and not str(settings_dict["NAME"]).startswith("file:"):
        connection.settings_dict["NAME"] = f"file:{quote(os.fsencode(path))}?mode=rw"
    connection.queries_log = deque(maxlen=0)  # DEBUG would keep thousands of long statements
    try:
        connection.connect()
        connection.connection.text_factory = text_of
        file = SQLiteFile(alias, connection, path)
        file.run(f"PRAGMA secure_delete = {get_settings().secure_delete.upper()}")
        if file.value("PRAGMA encoding") != "UTF-8":
            raise StoreUnreadable(
                f"{alias}: {path} is not encoded as UTF-8, so its thread ids have another order "
                "than this package relies on; nothing was touched."
            )
        yield file
    except (DjangoDatabaseError, sqlite3.Error) as error:
        raise sentence_for(alias, path, error) from error
    finally:
        BaseDatabaseWrapper.close(connection)  # what SQLite's wrapper does not do in memory


@contextmanager
def any_text_read(alias: str) -> Iterator[None]:
    """Let Django's own connection read text that is no UTF-8, with its stray bytes spelled out."""
    connection = connections[alias]
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    raw: sqlite3.Connection = connection.connection
    strict = raw.text_factory
    raw.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    try:
        yield
    finally:
        raw.text_factory = strict


def encoded(thread_id: str) -> str | bytes:
    """Return what to bind for ``CAST(%s AS TEXT)``: text, or the bytes of an id that is none."""
    try:
        thread_id.encode()
    except UnicodeEncodeError:
        return thread_id.encode("utf-8", "surrogateescape")
    return thread_id


def is_plain(thread_id: str) -> bool:
    """Tell whether every database and every person can hold the id: UTF-8 without NUL."""
    return "\0" not in thread_id and isinstance(encoded(thread_id), str)


def sort_key(thread_id: str) -> bytes:
    """Return the bytes by which SQLite's BINARY collation orders the id."""
    return thread_id.encode("utf-8", "surrogateescape")


def text_of(raw: bytes) -> str:
    """Return the id or other text of these bytes, whatever they are."""
    return raw.decode("utf-8", "surrogateescape")


def sentence_for(
    alias: str, path: Path | None, error: DjangoDatabaseError | sqlite3.Error
) -> HistoryRetentionError:
    """Turn a database error into the sentence for it."""
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    where = f"{alias}: {path or 'the database'}"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"{where} is locked by another process that did not let go in time; "
            "nothing more was done. Run this again when it is idle."
        )
    if code in _SENTENCES:
        return StoreUnreadable(f"{where} {_SENTENCES[code]}.")
    return StoreUnreadable(f"{where} refused a statement ({error}); nothing more was done.")
