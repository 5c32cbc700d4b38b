"""A vendor's PostgreSQL database: connections of our own, and every refusal as a sentence.

A connection is a private copy of the Django alias: it is in no transaction of the caller's and
keeps no statements. Nothing here lasts beyond a transaction (no session settings, no session
locks, no named statements, no cursor WITH HOLD), so that it also works through a proxy that
hands the server's sessions out transaction by transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

from django.db import Error as DjangoDatabaseError
from django.db import InterfaceError, OperationalError, connections

from ..exceptions import HistoryRetentionError, StoreBusy, StoreTimedOut, StoreUnreadable
from ..locks import another_is_running

ROWS_A_FETCH = 2_000
STATEMENT_MILLISECONDS = 30_000
"""How long one statement of a removal may run: a box is over in a small part of that."""

LOCK_MILLISECONDS = 100
"""How long a removal waits for a lock on a table before it lets go and tries later."""

_SENTENCES = {
    "25006": "is read-only here (a replica, or a read-only user); name the primary",
    "28000": "does not let this user in; check USER and PASSWORD",
    "28P01": "does not let this user in; check USER and PASSWORD",
    "3D000": "does not exist; check NAME in DATABASES",
    "42501": "does not let this user do that; grant what the README lists",
    "53100": "has no disk left; free some space there and run this again",
    "53300": "has no connection left; run this again when it is less busy",
}
_BUSY = {"55P03", "40P01", "40001"}
_TIMED_OUT = "57014"
_GONE = ("08", "57P")
"""Classes of SQLSTATE that say the connection is lost (PostgreSQL manual, appendix A)."""


class PostgresDatabase:
    """A vendor's database, connected when it is first asked something.

    Statements run in autocommit unless inside ``transaction``. ``reads`` is where to read what
    may be a moment old: a replica, or this database itself.
    """

    def __init__(self, alias: str, schema: str, replica: str | None = None) -> None:
        self.alias = alias
        self.reads = PostgresDatabase(replica, schema) if replica else self
        self._connection = connections[alias].copy()
        self._connection.queries_log = deque(maxlen=0)  # DEBUG would keep long statements
        self._asked_schema = schema
        self._schema = ""

    @property
    def schema(self) -> str:
        """Return the schema asked for, or the one in which the search path finds checkpoints."""
        if not self._schema:
            self._schema = self._asked_schema or self.value(
                "SELECT COALESCE((SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n"
                " ON n.oid = c.relnamespace WHERE c.relname = 'checkpoints'"
                " AND pg_table_is_visible(c.oid)), current_schema(), 'public')"
            )
        return self._schema

    def name(self, table: str) -> str:
        """Return the table's name as SQL, with its schema."""
        quoted = self._connection.ops.quote_name
        return f"{quoted(self.schema)}.{quoted(table)}"

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows."""
        with self.sentences(), self._connection.cursor() as cursor:
            cursor.execute(sql, params)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """Run one statement and return the first column of its first row."""
        return self.rows(sql, params)[0][0]

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one statement; return how many rows it changed."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)

    def stream(self, sql: str, params: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement in a read-only transaction and stream its rows."""
        with (
            self.sentences(),
            self.transaction("READ ONLY"),
            self._connection.chunked_cursor() as cursor,
        ):
            cursor.execute(sql, params)
            while rows := cursor.fetchmany(ROWS_A_FETCH):
                yield from rows

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of every table of the schema, in order."""
        found: dict[str, tuple[str, ...]] = {}
        for table, column in self.rows(
            "SELECT c.relname, a.attname FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND a.attnum > 0"
            " AND NOT a.attisdropped ORDER BY c.relname, a.attnum",
            [self.schema],
        ):
            found[table] = (*found.get(table, ()), column)
        return found

    @contextmanager
    def transaction(self, mode: str = "") -> Iterator[None]:
        """Commit on leaving, roll back on any error."""
        connection = self._connection
        connection.set_autocommit(False)
        try:
            if mode:
                self.run(f"SET TRANSACTION {mode}")
            yield
            connection.commit()
        except BaseException:
            with suppress(DjangoDatabaseError):
                connection.rollback()
            raise
        finally:
            with suppress(DjangoDatabaseError):
                connection.set_autocommit(True)

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Enter a transaction that waits shortly for locks; every error leaves as a sentence."""
        with self.sentences(), self.transaction("ISOLATION LEVEL READ COMMITTED"):
            self.run(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}")
            self.run(f"SET LOCAL statement_timeout = {STATEMENT_MILLISECONDS}")
            yield

    @contextmanager
    def sentences(self) -> Iterator[None]:
        """Turn the database's errors into sentences."""
        try:
            yield
        except (DjangoDatabaseError, InterfaceError) as error:
            raise sentence_for(self.alias, error) from error

    @contextmanager
    def advisory_lock(self, key: int, *, shared: bool) -> Iterator[bool]:
        """Open a transaction for as long as it lasts; tell whether it got the lock."""
        function = f"pg_try_advisory_xact_lock{'_shared' if shared else ''}"
        with self.sentences():
            self._connection.set_autocommit(False)
            self.run("SET LOCAL idle_in_transaction_session_timeout = 0")
            is_held = bool(self.value(f"SELECT {function}(%s)", [key]))
        try:
            yield is_held
        finally:
            with suppress(DjangoDatabaseError):
                self._connection.rollback()

    def close(self) -> None:
        """Let go of the connections."""
        with suppress(DjangoDatabaseError):
            self._connection.close()
        if self.reads is not self:
            self.reads.close()


@contextmanager
def opened(alias: str, schema: str = "", replica: str | None = None) -> Iterator[PostgresDatabase]:
    """Open the alias's database for a store's work; every database error leaves as a sentence."""
    database = PostgresDatabase(alias, schema, replica)
    try:
        with database.sentences():
            yield database
    finally:
        database.close()


@contextmanager
def only_one(alias: str, work: str, schema: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the store for a kind of work, against every host; SweepRunning if another does.

    The lock belongs to a transaction that stays open on a connection of its own. It holds no
    snapshot, so it keeps nothing from being vacuumed, and ends with its process.
    """
    database = PostgresDatabase(alias, schema)
    try:
        with database.advisory_lock(lock_key(schema, work), shared=shared) as is_held:
            if not is_held:
                raise another_is_running(work, alias)
            yield
    finally:
        database.close()


def is_on_search_path(alias: str, schema: str, table: str) -> bool:
    """Tell whether the table's bare name means the one in the schema; empty: wherever it is."""
    if not schema:
        return True
    with opened(alias, schema) as database:
        bare = connections[alias].ops.quote_name(table)
        return bool(
            database.value(
                "SELECT to_regclass(%s) IS NOT DISTINCT FROM to_regclass(%s)",
                [bare, database.name(table)],
            )
        )


def lock_key(schema: str, work: str) -> int:
    """Return the number of an advisory lock; such locks are a database's own already."""
    digest = blake2b(f"history_retention/{schema}/{work}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def sentence_for(alias: str, error: Exception) -> HistoryRetentionError:
    """Turn a database error into the sentence for it."""
    code = str(getattr(error.__cause__, "sqlstate", None) or "")
    told = " ".join(str(error).split())
    if code in _BUSY:
        return StoreBusy(
            f"{alias}: another session holds a lock that is needed ({told}); nothing more was "
            "done. Run this again when it is less busy."
        )
    if code == _TIMED_OUT:
        return StoreTimedOut(
            f"{alias}: the database ended a statement that took too long ({told}). Run this again "
            f"when it is less busy; `python manage.py check --database {alias}` names an index "
            "that is missing."
        )
    if code in _SENTENCES:
        return StoreUnreadable(f"{alias}: the database {_SENTENCES[code]} ({told}).")
    if code.startswith(_GONE) or (
        not code and isinstance(error, OperationalError | InterfaceError)
    ):
        return StoreUnreadable(
            f"{alias}: the database cannot be reached ({told}); nothing more was done. Check HOST, "
            "PORT, NAME, USER and PASSWORD, and that the server runs, then run this again."
        )
    return StoreUnreadable(f"{alias}: the database refused a statement ({told}).")
