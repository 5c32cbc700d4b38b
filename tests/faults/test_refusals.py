"""A schema that refuses a delete, or answers it with something else: threads are whole or gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from history_retention.models import Sweep

from ..commands import run
from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows, add_threads, rows_of, threads_in
from .commands import PRUNE, RECLAIM, sentence

pytestmark = pytest.mark.usefixtures("frozen_clock")

THREADS = [ThreadRows(thread_id=f"t{number}", checkpoints=3, writes=2) for number in range(9)]
NAMES = [ConversationRow(thread_id=thread.thread_id) for thread in THREADS]
BOTH_TABLES = pytest.mark.parametrize("table", ["checkpoints", "checkpoint_writes"])


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """Nine threads, each with rows in both tables."""
    return written_store(THREADS, NAMES)


def execute(path: Path, *statements: str) -> None:
    """Change a store's schema or rows as anybody can."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@BOTH_TABLES
@pytest.mark.parametrize(
    "answer", ["ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"], ids=lambda text: text[:5]
)
@pytest.mark.parametrize("words", [PRUNE, RECLAIM], ids=lambda words: words[0])
def test_a_trigger_that_refuses_a_delete_leaves_the_thread_whole(
    store: Path, table: str, answer: str, words: list[str]
) -> None:
    if words is RECLAIM:
        execute(store, "DELETE FROM conversations")
    execute(
        store,
        f"CREATE TRIGGER refusing BEFORE DELETE ON {table} WHEN OLD.thread_id = 't0'"
        f" BEGIN SELECT RAISE({answer}); END",
    )
    before = rows_of(store)

    ran = run(*words)

    assert ran.status == 1
    assert sentence(ran)
    assert rows_of(store) == before
    assert Sweep.objects.get().removed_threads == 0


@BOTH_TABLES
def test_a_refusal_in_the_middle_keeps_count_of_what_is_gone(
    store: Path, retention: Callable[..., None], table: str
) -> None:
    retention(BOX_SECONDS=0)
    execute(
        store,
        f"CREATE TRIGGER refusing BEFORE DELETE ON {table} WHEN OLD.thread_id = 't4'"
        " BEGIN SELECT RAISE(ABORT, 'no'); END",
    )

    ran = run(*PRUNE, "--format=json")

    assert ran.status == 1
    assert "refused a statement (no)" in sentence(ran)
    assert ran.document["removed"]["thread_count"] == 4
    left = {f"t{number}" for number in range(4, 9)}
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == left
    assert (len(rows_of(store)["checkpoints"]), len(rows_of(store)["checkpoint_writes"])) == (
        15,
        10,
    )


@pytest.mark.parametrize("deferred", ["", " DEFERRABLE INITIALLY DEFERRED"])
def test_a_foreign_key_on_a_checkpoint_keeps_its_whole_thread(store: Path, deferred: str) -> None:
    execute(
        store,
        "CREATE TABLE bookmarks (thread_id TEXT, ns TEXT, checkpoint_id TEXT, FOREIGN KEY"
        " (thread_id, ns, checkpoint_id) REFERENCES checkpoints"
        f" (thread_id, checkpoint_ns, checkpoint_id){deferred})",
        "INSERT INTO bookmarks SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints"
        " WHERE thread_id = 't0' LIMIT 1",
    )
    before = rows_of(store)

    ran = run(*PRUNE)

    assert ran.status == 1
    assert "FOREIGN KEY constraint failed" in sentence(ran)
    assert rows_of(store) == before


@pytest.mark.parametrize(
    "answer",
    [
        "DELETE FROM checkpoints WHERE thread_id = 'fresh'",
        "DELETE FROM conversations WHERE thread_id = OLD.thread_id",
        "UPDATE conversations SET thread_id = NULL",
        "INSERT OR IGNORE INTO checkpoint_writes"
        " SELECT OLD.thread_id, '', 'id', 'task', 0, '', '', ''",
    ],
    ids=["another thread", "the transcript", "other names", "the thread again"],
)
@BOTH_TABLES
def test_a_trigger_that_changes_more_than_the_plan_shows_undoes_the_delete(
    store: Path, answer: str, table: str
) -> None:
    add_threads(store, [ThreadRows(thread_id="fresh", age=timedelta(hours=1))])
    execute(
        store,
        f"CREATE TRIGGER answering AFTER DELETE ON {table} WHEN OLD.thread_id = 't0'"
        f" BEGIN {answer}; END",
    )
    before = rows_of(store)

    ran = run(*PRUNE)

    assert ran.status == 1
    assert "was undone and nothing more was done" in sentence(ran)
    assert rows_of(store) == before


def test_a_foreign_key_that_cascades_undoes_the_delete(store: Path) -> None:
    execute(
        store,
        "CREATE TABLE bookmarks (thread_id TEXT, ns TEXT, checkpoint_id TEXT, FOREIGN KEY"
        " (thread_id, ns, checkpoint_id) REFERENCES checkpoints"
        " (thread_id, checkpoint_ns, checkpoint_id) ON DELETE CASCADE)",
        "INSERT INTO bookmarks SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints"
        " WHERE thread_id = 't0' LIMIT 1",
    )
    before = rows_of(store)

    ran = run(*PRUNE)

    assert ran.status == 1
    assert "deleting 3 rows of a thread from checkpoints changed 4 rows" in sentence(ran)
    assert rows_of(store) == before


def test_a_trigger_that_only_reads_is_none_of_our_business(store: Path) -> None:
    execute(
        store,
        "CREATE TRIGGER reading AFTER DELETE ON checkpoints BEGIN SELECT COUNT(*) FROM sessions;"
        " END",
        "CREATE TRIGGER elsewhere AFTER DELETE ON sessions BEGIN DELETE FROM conversations; END",
    )

    assert run(*PRUNE).status == 0
    assert threads_in(store) == set()
