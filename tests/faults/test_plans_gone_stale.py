"""What other processes do between the plan and a thread's own batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from ..store_files import (
    ConversationRow,
    ThreadRows,
    add_conversations,
    add_threads,
    rows_of,
    threads_in,
    write_store,
)
from .children import go_on, started, sweep

THREADS = [ThreadRows(thread_id=f"t{number}", checkpoints=2, writes=2) for number in range(8)]
NAMES = [ConversationRow(thread_id=f"t{number}") for number in range(4)]
MODES = pytest.mark.parametrize("journal_mode", ["delete", "wal"])
Journal = Literal["delete", "wal"]
Change = Callable[[Path, Path], None]


def gain_a_checkpoint(store: Path, ledger: Path) -> None:
    add_threads(store, [ThreadRows(thread_id="t5", age=timedelta(0))])


def gain_a_write(store: Path, ledger: Path) -> None:
    add_threads(store, [ThreadRows(thread_id="t5", age=timedelta(0), checkpoints=0)])


def lose_a_checkpoint(store: Path, ledger: Path) -> None:
    changed(store, "DELETE FROM checkpoints WHERE rowid = (SELECT MAX(rowid) FROM checkpoints"
            " WHERE thread_id = 't5')")  # fmt: skip


def replace_a_checkpoint(store: Path, ledger: Path) -> None:
    changed(store, "REPLACE INTO checkpoints SELECT * FROM checkpoints WHERE thread_id = 't5'")


def gain_a_conversation(store: Path, ledger: Path) -> None:
    add_conversations(store, [ConversationRow(thread_id="t5")])


def gain_another_conversation(store: Path, ledger: Path) -> None:
    add_conversations(store, [ConversationRow(thread_id="t3")])


def gain_a_turn(store: Path, ledger: Path) -> None:
    changed(store, "INSERT INTO sessions (ts, conversation_id) VALUES ('2026-11-30T12:00:00Z', 4)")


def lose_its_conversation(store: Path, ledger: Path) -> None:
    changed(store, "UPDATE conversations SET thread_id = NULL WHERE thread_id = 't3'")


def gain_a_hold(store: Path, ledger: Path) -> None:
    changed(
        ledger,
        "INSERT INTO history_retention_hold (store, thread_id, reason, created_at)"
        f" VALUES ('history', 't5', 'asked for', '{datetime.now(UTC):%Y-%m-%d %H:%M:%S}')",
    )


def vanish(store: Path, ledger: Path) -> None:
    changed(store, "DELETE FROM checkpoints WHERE thread_id = 't5'")
    changed(store, "DELETE FROM checkpoint_writes WHERE thread_id = 't5'")


def changed(path: Path, statement: str) -> None:
    """Change a file from this process, while another has it planned."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


CHANGES: list[tuple[Change, str, str]] = [
    (gain_a_checkpoint, "t5", "active"),
    (gain_a_write, "t5", "active"),
    (lose_a_checkpoint, "t5", "active"),
    (replace_a_checkpoint, "t5", "active"),
    (gain_a_conversation, "t5", "named"),
    (gain_another_conversation, "t3", "named"),
    (lose_its_conversation, "t3", "named"),
    (gain_a_turn, "t3", "active"),
    (gain_a_hold, "t5", "held"),
    (vanish, "t5", "gone"),
]


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Eight threads, four of them named, in the journal mode that the test asks for."""
    mode = request.getfixturevalue("journal_mode")
    return write_store(tmp_path / "history.db", THREADS, NAMES, journal_mode=mode)


@MODES
@pytest.mark.parametrize(
    ("change", "thread_id", "reason"), CHANGES, ids=[change.__name__ for change, *_ in CHANGES]
)
def test_a_thread_that_changes_after_the_plan_is_skipped_and_all_others_go(
    store: Path, ledger: Path, journal_mode: Journal, change: Change, thread_id: str, reason: str
) -> None:
    with started(sweep, store, ledger) as sweeper:
        assert sweeper.heard() == 8
        change(store, ledger)
        before = rows_of(store)
        sweeper.told()
        outcome: dict[str, Any] = sweeper.heard()

    assert outcome["skipped"] == {thread_id: reason}
    assert (outcome["ending"], outcome["removed"], outcome["rows"]) == ("done", 7, 28)
    for table in ("checkpoints", "checkpoint_writes"):
        assert rows_of(store)[table] == [row for row in before[table] if row[0] == thread_id]
    for table in ("conversations", "sessions"):
        assert rows_of(store)[table] == before[table]


@MODES
def test_a_thread_that_changes_between_two_batches_is_skipped(
    store: Path, ledger: Path, journal_mode: Journal
) -> None:
    with started(sweep, store, ledger, stepwise=True, BOX_SECONDS=0) as sweeper:
        assert sweeper.heard() == 8
        sweeper.told()
        for done in range(1, 4):
            assert sweeper.heard() == done
            sweeper.told()
        assert sweeper.heard() == 4
        gain_a_checkpoint(store, ledger)
        add_conversations(store, [ConversationRow(thread_id="t6")])
        changed(
            ledger,
            "INSERT INTO history_retention_hold (store, thread_id, reason, created_at)"
            " VALUES ('history', 't7', 'asked for', '2026-01-01')",
        )
        outcome = go_on(sweeper)

    assert outcome["skipped"] == {"t5": "active", "t6": "named", "t7": "held"}
    assert (outcome["ending"], outcome["removed"]) == ("done", 5)
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == {"t5", "t6", "t7"}


@MODES
def test_a_thread_that_another_process_writes_again_stays_as_it_was_written(
    store: Path, ledger: Path, journal_mode: Journal
) -> None:
    with started(sweep, store, ledger, stepwise=True, BOX_SECONDS=0) as sweeper:
        assert sweeper.heard() == 8
        sweeper.told()
        assert sweeper.heard() == 1
        add_threads(store, [ThreadRows(thread_id="t0", age=timedelta(0))])
        outcome = go_on(sweeper)

    assert (outcome["ending"], outcome["removed"], outcome["skipped"]) == ("done", 8, {})
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == {"t0"}
