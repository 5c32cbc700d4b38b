"""Files and folders that this user may not write, or not even read."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from ..commands import Ran
from ..store_files import ConversationRow, ThreadRows, rows_of, write_store
from .children import NOBODY, command, started
from .commands import PRUNE, READOUT, VACUUM, refusal, sentence

THREADS = [ThreadRows(thread_id="named"), ThreadRows(thread_id="unnamed", size=9_000)]
NAMES = [ConversationRow(thread_id="named")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        path = Path(name).resolve()
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


def run_as_nobody(store: Path, ledger: Path, *words: str) -> Ran:
    """Run a command as a user without privileges, who owns the files."""
    if os.geteuid() == 0:
        for path in (ledger, *store.parent.iterdir(), store.parent):
            os.chown(path, NOBODY, NOBODY)
    with started(command, store, ledger, *words, as_nobody=True) as child:
        ran: Ran = child.heard()
        return ran


@pytest.fixture
def own_ledger(ledger: Path, folder: Path) -> Iterator[Path]:
    """The ledger in a folder of its own, which stays writable."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o777)
        yield ledger.rename(path / "ledger.sqlite3")


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize(
    ("file_mode", "folder_mode"), [(0o444, 0o755), (0o644, 0o555), (0o444, 0o555)]
)
def test_a_store_that_may_not_be_written_loses_nothing_and_says_what_to_grant(
    folder: Path,
    own_ledger: Path,
    journal_mode: Literal["delete", "wal"],
    file_mode: int,
    folder_mode: int,
) -> None:
    path = write_store(
        folder / "history.db", THREADS, NAMES, now=datetime.now(UTC), journal_mode=journal_mode
    )
    before = rows_of(path)
    path.chmod(file_mode)
    folder.chmod(folder_mode)

    ran = run_as_nobody(path, own_ledger, *PRUNE)

    assert ran.status == 1
    assert str(path) in sentence(ran)
    folder.chmod(0o755)
    assert rows_of(path) == before


@pytest.mark.parametrize("file_mode", [0o444, 0o000])
def test_a_store_that_may_only_be_read_is_read_and_one_that_may_not_is_said(
    folder: Path, own_ledger: Path, file_mode: int
) -> None:
    path = write_store(folder / "history.db", THREADS, [], now=datetime.now(UTC))
    path.chmod(file_mode)

    ran = run_as_nobody(path, own_ledger, *READOUT)

    if file_mode:
        assert (ran.status, ran.out.partition(" with")[0]) == (0, "history: 2 threads")
    else:
        assert f"{path} cannot be opened" in refusal(ran)


def test_a_folder_that_may_not_be_entered_is_said(folder: Path, own_ledger: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    path = write_store(inner / "history.db", THREADS, [], now=datetime.now(UTC))
    inner.chmod(0o000)

    ran = run_as_nobody(path, own_ledger, *PRUNE)

    assert f"{path} cannot be looked at" in refusal(ran)
    inner.chmod(0o755)
    assert len(rows_of(path)["checkpoints"]) == 2


def test_a_store_that_may_not_be_written_is_not_vacuumed_and_says_why(
    folder: Path, own_ledger: Path
) -> None:
    path = write_store(folder / "history.db", THREADS, [], now=datetime.now(UTC))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
    before = path.read_bytes()
    path.chmod(0o444)

    ran = run_as_nobody(path, own_ledger, *VACUUM)

    assert ran.status == 1
    assert f"{path} is read-only" in sentence(ran)
    assert path.read_bytes() == before


def test_a_ledger_that_may_not_be_written_is_said_before_anything_is_removed(
    folder: Path, own_ledger: Path
) -> None:
    path = write_store(folder / "history.db", THREADS, [], now=datetime.now(UTC))
    before = rows_of(path)
    own_ledger.chmod(0o444)

    ran = run_as_nobody(path, own_ledger, *PRUNE)

    assert ran.status == 1
    assert "'default'" in ran.err
    assert "read" in ran.err
    assert rows_of(path) == before
