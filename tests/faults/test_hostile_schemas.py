"""Schemas that no agent creates: refused in a sentence, or read rightly; nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from ..commands import run
from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows
from .commands import EVERY_COMMAND, READOUT, refusal

pytestmark = pytest.mark.usefixtures("frozen_clock")

IDLE_FOR_30_DAYS = ["history_prune", "--older-than=30", "--no-input"]
THREADS = [
    ThreadRows(thread_id="unnamed"),
    ThreadRows(thread_id="named"),
    ThreadRows(thread_id="fresh", age=timedelta(hours=1)),
]
NAMES = [
    ConversationRow(thread_id="named"),
    ConversationRow(thread_id="fresh", age=timedelta(hours=1)),
]

COLUMNS = """
    {thread_id}, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB"""
KEY = "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)"
TEXT_ID = "thread_id TEXT NOT NULL"


def rebuilt(table: str, definition: str) -> list[str]:
    """Return the statements that give a table another definition and keep its rows."""
    return [
        f"ALTER TABLE {table} RENAME TO before",
        f"CREATE TABLE {table} {definition}",
        f"INSERT INTO {table} SELECT * FROM before",
        "DROP TABLE before",
    ]


def checkpoints(thread_id: str = TEXT_ID, key: str = f", {KEY}", tail: str = "") -> list[str]:
    """Return the statements that give ``checkpoints`` another definition."""
    return rebuilt("checkpoints", f"({COLUMNS.format(thread_id=thread_id)}{key}){tail}")


CONVERSATIONS = (
    "({id}, started_ts TEXT, project TEXT, command TEXT, model TEXT, thread_id TEXT){tail}"
)

NO_HISTORY = "this database holds no history that this package knows"
NOT_THE_KEY = "the primary key of checkpoints is not the one"
NO_ROW_NUMBERS = "is WITHOUT ROWID or has a column of that name"

REFUSED: dict[str, tuple[list[str], str]] = {
    "checkpoints as a view": (
        ["ALTER TABLE checkpoints RENAME TO c", "CREATE VIEW checkpoints AS SELECT * FROM c"],
        NO_HISTORY,
    ),
    "a generated payload": (
        ["ALTER TABLE checkpoints DROP COLUMN metadata",
         "ALTER TABLE checkpoints ADD COLUMN metadata BLOB AS (checkpoint) VIRTUAL"],
        NO_HISTORY,
    ),
    "no primary key": (checkpoints(key=""), NOT_THE_KEY),
    "another primary key": (
        checkpoints(key=", PRIMARY KEY (checkpoint_id, thread_id, checkpoint_ns)"), NOT_THE_KEY,
    ),
    "ids that ignore case": (checkpoints("thread_id TEXT NOT NULL COLLATE NOCASE"), NOT_THE_KEY),
    "ids that ignore spaces": (checkpoints("thread_id TEXT NOT NULL COLLATE RTRIM"), NOT_THE_KEY),
    "ids in falling order": (
        checkpoints(key=", PRIMARY KEY (thread_id DESC, checkpoint_ns, checkpoint_id)"),
        NOT_THE_KEY,
    ),
    "checkpoints without rowid": (checkpoints(tail=" WITHOUT ROWID"), NO_ROW_NUMBERS),
    "conversations without rowid": (
        rebuilt("conversations", CONVERSATIONS.format(
            id="id INTEGER PRIMARY KEY", tail=" WITHOUT ROWID")),
        NO_ROW_NUMBERS,
    ),
    "a column rowid in checkpoints": (
        ["ALTER TABLE checkpoints ADD COLUMN RowId TEXT"], NO_ROW_NUMBERS,
    ),
    "a column rowid in conversations": (
        ["ALTER TABLE conversations ADD COLUMN rowid TEXT"], NO_ROW_NUMBERS,
    ),
    "a column rowid in sessions": (
        ["ALTER TABLE sessions ADD COLUMN rowid TEXT"], NO_ROW_NUMBERS,
    ),
    "a schema that does not parse": (
        ["PRAGMA writable_schema = 1",
         "UPDATE sqlite_master SET sql = 'CREATE TABEL x' WHERE name = 'conversations'"],
        "is damaged",
    ),
}  # fmt: skip

ACCEPTED: dict[str, list[str]] = {
    "another generated column": [
        "ALTER TABLE checkpoints ADD COLUMN size INTEGER AS (LENGTH(checkpoint)) VIRTUAL"
    ],
    "strict": checkpoints(tail=" STRICT"),
    "tables in odd case": [
        "ALTER TABLE checkpoints RENAME TO a", "ALTER TABLE a RENAME TO Checkpoints",
        "ALTER TABLE conversations RENAME TO b", "ALTER TABLE b RENAME TO CONVERSATIONS",
    ],
    "columns in odd case": [
        "ALTER TABLE checkpoints RENAME COLUMN thread_id TO Thread_ID",
        "ALTER TABLE conversations RENAME COLUMN thread_id TO THREAD_ID",
    ],
    "names that ignore case": rebuilt(
        "conversations", CONVERSATIONS.format(id="id INTEGER PRIMARY KEY", tail="").replace(
            "thread_id TEXT", "thread_id TEXT COLLATE NOCASE")
    ),
    "a virtual table of an unknown module": [
        "PRAGMA writable_schema = 1",
        "INSERT INTO sqlite_master VALUES ('table', 'vectors', 'vectors', 0,"
        " 'CREATE VIRTUAL TABLE vectors USING not_there(embedding)')",
    ],
    "a view that is broken": ["CREATE VIEW broken AS SELECT something FROM nowhere"],
    "a trigger that is broken": [
        "CREATE TRIGGER broken AFTER INSERT ON sessions BEGIN SELECT something FROM nowhere; END"
    ],
    "an index on an expression": [
        "CREATE INDEX lengths ON checkpoints (thread_id, LENGTH(checkpoint))"
    ],
    "an index on a part": [
        "CREATE INDEX part ON checkpoints (thread_id) WHERE thread_id = 'named'"
    ],
    "a check that is not met": [
        "PRAGMA ignore_check_constraints = 1",
        "ALTER TABLE sessions ADD COLUMN low INTEGER CHECK (low < 0) DEFAULT 7",
    ],
    "ids without a type, and NULL and numbers among them": [
        *checkpoints("thread_id"),
        "INSERT INTO checkpoints SELECT 7, '', checkpoint_id, NULL, '', '', '' FROM checkpoints"
        " WHERE thread_id = 'unnamed'",
        "INSERT INTO checkpoints SELECT NULL, '', checkpoint_id, NULL, '', '', '' FROM checkpoints"
        " WHERE thread_id = 'unnamed'",
    ],
}  # fmt: skip


def execute(path: Path, statements: list[str]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def threads_of(path: Path, *tables: str) -> list[set[object]]:
    """Return the thread ids in the tables, whatever else the schema holds."""
    with closing(sqlite3.connect(path)) as connection:
        return [
            {row[0] for row in connection.execute(f"SELECT thread_id FROM {table}")}
            for table in tables
        ]


@EVERY_COMMAND
@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_that_is_not_its_agents_is_refused_and_left_byte_for_byte(
    written_store: WriteStore, case: str, words: list[str]
) -> None:
    path = written_store(THREADS, NAMES)
    statements, words_of_refusal = REFUSED[case]
    execute(path, statements)
    before = path.read_bytes()

    ran = run(*words)

    assert words_of_refusal in refusal(ran)
    assert path.read_bytes() == before


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_else_a_schema_holds_changes_neither_the_reading_nor_the_prune(
    written_store: WriteStore, case: str
) -> None:
    path = written_store(THREADS, NAMES)
    execute(path, ACCEPTED[case])

    readout, pruned = run(*READOUT, "--format=json"), run(*IDLE_FOR_30_DAYS, "--format=json")

    assert (readout.status, pruned.status) == (0, 0)
    states = {row["thread_id"]: row["state"] for row in readout.document["largest_threads"]}
    assert states == {"unnamed": "unresumable", "named": "resumable", "fresh": "resumable"}
    assert pruned.document["removed"] == {
        "thread_count": 2, "checkpoint_count": 2, "write_count": 2, "bytes": 2 * 1_144,
    }  # fmt: skip
    left, writes = threads_of(path, "checkpoints", "checkpoint_writes")
    assert (left - {None, 7}, writes) == ({"fresh"}, {"fresh"})


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE conversations RENAME TO c", "CREATE VIEW conversations AS SELECT * FROM c"],
        ["DROP TABLE conversations"],
        ["ALTER TABLE conversations RENAME COLUMN id TO number"],
    ],
    ids=["a view", "no table", "no id"],
)
def test_conversations_that_are_no_table_name_nothing_and_so_nothing_goes(
    written_store: WriteStore, statements: list[str]
) -> None:
    path = written_store(THREADS, NAMES)
    execute(path, ["DROP INDEX idx_conversations_thread_id", *statements])
    before = path.read_bytes()

    ran = run(*IDLE_FOR_30_DAYS, "--format=json")

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 0)
    assert "nobody can tell which threads can be resumed" in ran.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
@EVERY_COMMAND
def test_a_database_in_another_encoding_is_refused(
    point_at: Callable[[Path], Path], tmp_path: Path, encoding: str, words: list[str]
) -> None:
    path = point_at(tmp_path / "history.db")
    execute(path, [f"PRAGMA encoding = '{encoding}'", "CREATE TABLE checkpoints (thread_id TEXT)"])
    before = path.read_bytes()

    ran = run(*words)

    assert "is not encoded as UTF-8" in refusal(ran)
    assert path.read_bytes() == before


@pytest.mark.parametrize("page_size", [512, 65_536])
@pytest.mark.parametrize("auto_vacuum", ["NONE", "FULL", "INCREMENTAL"])
def test_any_size_of_page_and_way_of_freeing_it_is_read_pruned_and_vacuumed(
    written_store: WriteStore, page_size: int, auto_vacuum: str
) -> None:
    large = [ThreadRows(thread_id="large", checkpoints=3, size=200_000)]
    path = written_store([*THREADS, *large], NAMES)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (f"page_size = {page_size}", f"auto_vacuum = {auto_vacuum}"):
            connection.execute(f"PRAGMA {statement}")
        connection.execute("VACUUM")
    size = path.stat().st_size

    ran = run(*IDLE_FOR_30_DAYS, "--format=json")

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 3)
    assert threads_of(path, "checkpoints", "checkpoint_writes") == [{"fresh"}, {"fresh"}]
    assert size - path.stat().st_size > 500_000
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (page_size,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
