"""A ledger that refuses: before anything was removed, in the middle, and at the very end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ..commands import Ran
from ..store_files import ConversationRow, ThreadRows, rows_of, threads_in, write_store
from .children import command, started
from .commands import PRUNE, READOUT, VACUUM

THREADS = [ThreadRows(thread_id=f"t{number:02}", writes=2) for number in range(20)]
NAMES = [ConversationRow(thread_id=thread.thread_id) for thread in THREADS[:10]]
NOT_TODAY = "The ledger in database 'default' cannot be used (not today)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of twenty threads."""
    return write_store(tmp_path / "history.db", THREADS, NAMES, now=datetime.now(UTC))


def run(store: Path, ledger: Path, *words: str, **retention: object) -> Ran:
    """Run a command with its ledger in a file."""
    with started(command, store, ledger, *words, **retention) as child:
        ran: Ran = child.heard()
        return ran


def refuse(ledger: Path, change: str, on: str, when: str = "1") -> None:
    """Have the ledger refuse a change from now on."""
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(
            f"CREATE TRIGGER refusing BEFORE {change} ON history_retention_{on} WHEN {when}"
            " BEGIN SELECT RAISE(ABORT, 'not today'); END"
        )


def test_a_sweep_that_cannot_be_recorded_removes_nothing(store: Path, ledger: Path) -> None:
    before = rows_of(store)
    refuse(ledger, "INSERT", on="sweep")

    ran = run(store, ledger, *PRUNE)

    assert ran.status == 1
    assert NOT_TODAY in ran.err
    assert rows_of(store) == before


def test_a_ledger_that_refuses_in_the_middle_ends_the_sweep_with_a_true_report(
    store: Path, ledger: Path
) -> None:
    refuse(ledger, "UPDATE", on="sweep", when="NEW.removed_threads = 3")

    ran = run(store, ledger, *PRUNE, "--format=json", BOX_SECONDS=0)

    assert ran.status == 1
    assert NOT_TODAY in ran.err
    assert ran.document["removed"] == {
        "thread_count": 3, "checkpoint_count": 3, "write_count": 6, "bytes": ran_bytes(3),
    }  # fmt: skip
    assert len(threads_in(store)) == len(threads_in(store, "checkpoint_writes")) == 17


@pytest.mark.parametrize("change", ["UPDATE ON sweep", "DELETE ON thread"])
def test_a_ledger_that_refuses_at_the_end_costs_no_report(
    store: Path, ledger: Path, change: str
) -> None:
    assert run(store, ledger, *READOUT).status == 0
    kind, on = change.split(" ON ")
    refuse(ledger, kind, on=on, when="NEW.ending != 'running'" if on == "sweep" else "1")

    ran = run(store, ledger, *PRUNE, "--format=json")

    assert ran.status == (1 if on == "sweep" else 0)
    assert ran.document["removed"]["thread_count"] == 20
    assert ran.document["vacuum"]["ran"] is True
    assert threads_in(store) == set()


def test_a_vacuum_that_cannot_be_recorded_as_done_says_so(store: Path, ledger: Path) -> None:
    assert run(store, ledger, *PRUNE, "--no-vacuum").status == 0
    refuse(ledger, "UPDATE", on="sweep")

    ran = run(store, ledger, *VACUUM, "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (1, True)
    assert NOT_TODAY in ran.err


def test_a_readout_that_cannot_be_kept_says_so_and_one_that_need_not_be_works(
    store: Path, ledger: Path
) -> None:
    refuse(ledger, "INSERT", on="thread")

    ran = run(store, ledger, *READOUT)

    assert ran.status == 1
    assert NOT_TODAY in ran.err
    assert rows_of(ledger)["history_retention_measurement"] == []
    assert run(store, ledger, *READOUT, "--no-save").status == 0


def ran_bytes(threads: int) -> int:
    """Return the bytes of that many of this store's threads."""
    metadata = len(b'{"source": "loop", "step": 0, "parents": {}}')
    return threads * (1_000 + metadata + 2 * 100)
