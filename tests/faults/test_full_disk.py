"""No room: for the journal of a delete, for a vacuum, for the ledger, for temporary files.

A full disk is a small one of this test's own where the system lets us mount it, and a limit on
the size of every file elsewhere; a limit also refuses in places where a disk would not.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from history_retention.stores.row_scan import THREADS_IN_MEMORY
from history_retention.vacuuming import QUICK_VACUUM_BYTES

from ..commands import Ran
from ..store_files import ThreadRows, rows_of, threads_in, write_store
from .children import command, started
from .commands import PRUNE, READOUT, STEPS, VACUUM, sentence

pytestmark = pytest.mark.endurance

DISK_BYTES = 24 * 1024 * 1024
LARGEST_FILE = 1_500_000
"""Enough for the ledger, and too little for the store or the journal of its large thread."""

LEDGER_BYTES = 400_000
"""Enough for the ledger, and less than any store here."""

THREADS = [
    ThreadRows(thread_id="after"),
    ThreadRows(thread_id="before"),
    ThreadRows(thread_id="large", writes=10_000, write_size=200),
    ThreadRows(thread_id="next"),
]


@dataclass(slots=True)
class Disk:
    """A folder with little room; ``largest_file`` where a limit stands in for a disk."""

    folder: Path
    largest_file: int | None = None

    def fill(self, leaving: int = 100_000) -> None:
        """Take all the room but so many bytes."""
        if self.largest_file is None:
            usage = os.statvfs(self.folder)
            free = usage.f_bavail * usage.f_frsize
            (self.folder / "filler").write_bytes(bytes(free - leaving))

    def empty(self) -> None:
        """Give the room back."""
        (self.folder / "filler").unlink(missing_ok=True)
        self.largest_file = None


@pytest.fixture(params=["disk", "limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A small disk, or a limit where nobody may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if request.param == "limit" or subprocess.run(mount, check=False).returncode:
        yield Disk(folder, LARGEST_FILE)
        return
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run(store: Path, ledger: Path, *words: str, largest_file: int | None = None) -> Ran:
    """Run a command with every thread in a batch of its own."""
    with started(
        command, store, ledger, *words, largest_file=largest_file, BOX_SECONDS=0, GAP_SECONDS=0
    ) as child:
        ran: Ran = child.heard()
        return ran


def is_sound(store: Path) -> bool:
    """Ask SQLite whether the whole file hangs together."""
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_disk_that_is_full_while_deleting_leaves_every_thread_whole_or_gone(
    disk: Disk, ledger: Path, journal_mode: Literal["delete", "wal"]
) -> None:
    store = write_store(
        disk.folder / "history.db", THREADS, [], now=datetime.now(UTC), journal_mode=journal_mode
    )
    before = rows_of(store)
    disk.fill()

    ran = run(store, ledger, *PRUNE, "--format=json", largest_file=disk.largest_file)

    assert ran.status == 1
    assert str(store) in sentence(ran)
    disk.empty()
    assert is_sound(store)
    left = threads_in(store)
    assert "large" in left
    assert ran.document["removed"]["thread_count"] == 4 - len(left)
    for table in ("checkpoints", "checkpoint_writes"):
        assert rows_of(store)[table] == [row for row in before[table] if row[0] in left]
    assert run(store, ledger, *PRUNE).status == 0
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == set()


def test_a_vacuum_that_runs_out_of_room_gives_nothing_back_and_loses_nothing(
    tmp_path: Path, ledger: Path
) -> None:
    store = write_store(tmp_path / "history.db", THREADS, [], now=datetime.now(UTC))
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM checkpoint_writes WHERE rowid % 5 = 0")
    before = rows_of(store)

    ran = run(store, ledger, *VACUUM, largest_file=LARGEST_FILE)

    assert ran.status == 1
    assert str(store) in sentence(ran)
    assert is_sound(store)
    assert rows_of(store) == before
    assert run(store, ledger, *VACUUM).status == 0
    assert rows_of(store) == before


def test_a_trial_that_has_no_room_leaves_the_forecast_to_an_ordinary_disk(
    tmp_path: Path, ledger: Path
) -> None:
    store = write_store(tmp_path / "history.db", [ThreadRows(thread_id="one")], [])
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = zeroblob(?)", [QUICK_VACUUM_BYTES])

    rates = [
        run(store, ledger, *VACUUM, "--dry-run", "--format=json", largest_file=largest_file)
        .document["forecast"]["rate_source"]
        for largest_file in (None, LARGEST_FILE)
    ]  # fmt: skip

    assert rates == ["trial", "ordinary_disk"]


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_steps_that_run_out_of_room_lose_nothing_and_the_next_ones_go_on(
    tmp_path: Path, ledger: Path, journal_mode: Literal["delete", "wal"]
) -> None:
    large = ThreadRows(thread_id="large", writes=10_000, write_size=200)
    store = write_store(
        tmp_path / "history.db", [ThreadRows(thread_id="kept"), large], [], now=datetime.now(UTC),
        journal_mode=journal_mode,
    )  # fmt: skip
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM")
        connection.execute("DELETE FROM checkpoint_writes WHERE rowid % 500 < 250")
    before, size = rows_of(store), store.stat().st_size

    ran = run(store, ledger, *STEPS, largest_file=LEDGER_BYTES)
    again = run(store, ledger, *STEPS)

    assert (ran.status, again.status) == (1, 0)
    assert str(store) in sentence(ran)
    assert is_sound(store)
    assert rows_of(store) == before
    assert store.stat().st_size < size * 0.6


def test_a_prune_whose_vacuum_runs_out_of_room_is_done_and_says_why_it_was_not_vacuumed(
    tmp_path: Path, ledger: Path
) -> None:
    fresh = ThreadRows(thread_id="fresh", age=None, writes=10_000, write_size=200)
    idle = [ThreadRows(thread_id=f"a{number}", size=20_000) for number in range(2)]
    store = write_store(tmp_path / "history.db", [*idle, fresh], [], now=datetime.now(UTC))

    ran = run(store, ledger, *PRUNE, "--format=json", largest_file=LARGEST_FILE)

    assert ran.status == 0
    assert ran.document["removed"]["thread_count"] == 2
    assert ran.document["vacuum"]["ran"] is False
    assert str(store) in ran.document["vacuum"]["reason"]
    assert threads_in(store) == {"fresh"}
    assert is_sound(store)


def test_a_readout_that_has_no_room_for_sorting_says_so(tmp_path: Path, ledger: Path) -> None:
    ids = (f"{number:0200}" for number in range(THREADS_IN_MEMORY + 1))
    threads = [ThreadRows(thread_id=thread_id, writes=0) for thread_id in ids]
    store = write_store(tmp_path / "history.db", threads, [], now=datetime.now(UTC))

    ran = run(store, ledger, *READOUT, "--no-save", largest_file=LARGEST_FILE)

    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("The folder for temporary files has no room to sort")


def test_a_full_disk_under_the_ledger_removes_nothing(disk: Disk, ledger: Path) -> None:
    store = write_store(ledger.with_name("history.db"), THREADS, [], now=datetime.now(UTC))
    before = rows_of(store)
    own = disk.folder / "ledger.sqlite3"
    shutil.copyfile(ledger, own)
    disk.fill(leaving=0)

    ran = run(store, own, *PRUNE, largest_file=disk.largest_file and 8_192)

    assert ran.status == 1
    assert "The ledger in database 'default' cannot be used" in ran.err
    assert rows_of(store) == before


def test_a_machine_without_room_for_the_smallest_file_says_so(tmp_path: Path, ledger: Path) -> None:
    store = write_store(tmp_path / "history.db", THREADS[:2], [], now=datetime.now(UTC))
    before = rows_of(store)

    ran = run(store, ledger, *PRUNE, largest_file=0)

    assert ran.status == 1
    assert "cannot be opened (No usable temporary directory" in sentence(ran)
    assert rows_of(store) == before
