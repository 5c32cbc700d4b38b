"""``kill -9`` at random moments, and signals that ask: threads are whole or gone, reports true."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from ..commands import PROJECT, environment, manage
from ..store_files import ThreadRows, rows_of, write_store
from .children import PATIENCE_SECONDS, started, sweep
from .commands import PRUNE, STEPS, sweeps_in

pytestmark = pytest.mark.endurance

Journal = Literal["delete", "wal"]
MODES = pytest.mark.parametrize("journal_mode", ["delete", "wal"])

THREADS = 1_200
KILLS = 23
COMMAND_KILLS = 2
STATE_TABLES = ("checkpoints", "checkpoint_writes")
HASTE = {"BOX_SECONDS": 0.025, "GAP_SECONDS": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process loses nothing that it wrote there.

    What the kernel has not written to a disk yet only a power cut could lose.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of many threads in either journal mode, to be copied."""
    folder = tmp_path_factory.mktemp("templates")
    threads = [
        ThreadRows(thread_id=f"t{number:04}", size=300, writes=2) for number in range(THREADS)
    ]
    modes: tuple[Journal, ...] = ("delete", "wal")
    return {
        mode: write_store(
            folder / f"{mode}.db", threads, [], now=datetime.now(UTC), journal_mode=mode
        )
        for mode in modes
    }


def left_after_a_kill(store: Path, template: dict[str, list[tuple[Any, ...]]]) -> int:
    """Return how many threads are left, each of them whole and the file sound.

    Looks at a copy, so that the next run still has to recover the file itself.
    """
    copy = store.with_name("copy.db")
    for suffix in ("", "-journal", "-wal"):
        if (part := Path(f"{store}{suffix}")).exists():
            shutil.copyfile(part, f"{copy}{suffix}")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = rows_of(copy)
    left = {row[0] for table in STATE_TABLES for row in rows[table]}
    for table in STATE_TABLES:
        assert rows[table] == [row for row in template[table] if row[0] in left]
    for part in copy.parent.glob("copy.db*"):
        part.unlink()
    return len(left)


def is_true(ledger: Path, left: int, *, earlier: int = 0) -> bool:
    """Tell whether the newest sweep on record claims no more than what is gone.

    One that was killed before it was on record, after the ``earlier`` ones, took nothing.
    """
    on_record = sweeps_in(ledger, "ending", "removed_threads")
    if len(on_record) == earlier:
        return left == THREADS
    ending, removed = on_record[-1]
    gone = THREADS - left
    return bool(removed == gone if ending == "done" else ending == "running" and removed <= gone)


def finished(store: Path, ledger: Path, left: int) -> bool:
    """Run a sweep to its end; it removes what is left and closes the record of the killed one."""
    with started(sweep, store, ledger, BOX_SECONDS=1, GAP_SECONDS=0) as child:
        assert child.heard() == left
        child.told()
        outcome = child.heard()
    assert not any(rows_of(store)[table] for table in STATE_TABLES)
    sweeps_on_record = sweeps_in(ledger, "ending", "finished_at IS NULL", "removed_threads")
    assert {row[:2] for row in sweeps_on_record[:-1]} <= {("interrupted", 0), ("done", 0)}
    return bool(outcome["ending"] == "done" and sweeps_on_record[-1] == ("done", 0, left))


@MODES
def test_a_killed_sweep_leaves_threads_whole_or_gone_and_the_next_run_finishes(
    templates: dict[str, Path], folder: Path, migrated_ledger: Path, journal_mode: Journal
) -> None:
    random = Random(f"killed in mode {journal_mode}")
    template = rows_of(templates[journal_mode])
    store, ledger = folder / "history.db", folder / "ledger.sqlite3"
    shutil.copyfile(templates[journal_mode], store)
    shutil.copyfile(migrated_ledger, ledger)
    with started(sweep, store, ledger, **HASTE) as child:
        child.heard()
        begun = time.monotonic()
        child.told()
        assert child.heard()["removed"] == THREADS
        whole_run = time.monotonic() - begun

    lefts = []
    for _ in range(KILLS):
        shutil.copyfile(templates[journal_mode], store)
        earlier = len(sweeps_in(ledger, "ending"))
        with started(sweep, store, ledger, **HASTE) as child:
            assert child.heard() == THREADS
            child.told()
            child.pipe.poll(random.random() * whole_run)
            child.process.kill()
            child.ended()

        lefts.append(left := left_after_a_kill(store, template))
        assert is_true(ledger, left, earlier=earlier)
        assert finished(store, ledger, left)

    assert len(set(lefts)) > 2  # the kills met the sweep at different moments


@MODES
def test_a_killed_command_leaves_threads_whole_or_gone_and_the_next_one_finishes(
    templates: dict[str, Path], tmp_path: Path, ledger: Path, journal_mode: Journal
) -> None:
    random = Random(f"command killed in mode {journal_mode}")
    template = rows_of(templates[journal_mode])
    store = tmp_path / "history.db"
    for _ in range(COMMAND_KILLS):
        shutil.copyfile(templates[journal_mode], store)
        with subprocess.Popen(
            [sys.executable, "manage.py", *PRUNE, "--no-vacuum"],
            cwd=PROJECT,
            env=environment(store, ledger),
            stdout=subprocess.DEVNULL,
        ) as process:
            wait_until_removed(process, ledger, random.randrange(1, THREADS // 2))
            process.kill()

        left = left_after_a_kill(store, template)
        assert 0 < left < THREADS
        assert is_true(ledger, left)
        ran = manage(*PRUNE, "--format=json", store=store, ledger=ledger)
        assert (ran.status, ran.document["removed"]["thread_count"]) == (0, left)
        assert sweeps_in(ledger, "ending")[-2:] == ["interrupted", "done"]
        assert not any(rows_of(store)[table] for table in STATE_TABLES)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_asked_to_stop_does_not_vacuum_before_it_does(
    templates: dict[str, Path], tmp_path: Path, ledger: Path, number: signal.Signals
) -> None:
    store = tmp_path / "history.db"
    shutil.copyfile(templates["delete"], store)
    size = store.stat().st_size
    with subprocess.Popen(
        [sys.executable, "manage.py", *PRUNE, "--vacuum", "--format=json"],
        cwd=PROJECT,
        env=environment(store, ledger),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until_removed(process, ledger, 1)
        process.send_signal(number)
        status = process.wait(PATIENCE_SECONDS)

    assert status == 1
    assert sweeps_in(ledger, "ending", "vacuumed") == [("interrupted", 0)]
    assert 0 < len(rows_of(store)["checkpoints"]) < THREADS
    assert store.stat().st_size == size


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_steps_that_are_asked_to_stop_end_after_one_and_the_next_run_goes_on(
    tmp_path: Path, ledger: Path, number: signal.Signals
) -> None:
    store = write_store(tmp_path / "history.db", [ThreadRows(thread_id="kept")], [])
    with closing(sqlite3.connect(store, isolation_level=None)) as agent:
        agent.execute("PRAGMA auto_vacuum = INCREMENTAL")
        agent.execute("VACUUM")
        agent.execute("CREATE TABLE filler (bytes BLOB)")
        agent.execute("INSERT INTO filler VALUES (zeroblob(100000000))")
        agent.execute("DROP TABLE filler")
    rows, size = rows_of(store), store.stat().st_size
    with subprocess.Popen(
        [sys.executable, "manage.py", *STEPS, "--format=json"],
        cwd=PROJECT,
        env=environment(store, ledger),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while store.stat().st_size == size and time.monotonic() < give_up_at:
            time.sleep(0.001)
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_SECONDS)

    found = json.loads(out)
    assert (process.returncode, sweeps_in(ledger, "ending", "vacuumed")) == (
        1,
        [("interrupted", 1)],
    )
    assert error == f"CommandError: {found['vacuum']['reason']}\n"
    assert "run the same command again to go on" in error
    assert 0 < found["free_bytes_after"] < found["free_bytes_before"]
    assert found["file_bytes_after"] == store.stat().st_size
    assert manage(*STEPS, store=store, ledger=ledger).status == 0
    assert store.stat().st_size <= size - found["free_bytes_before"]
    assert rows_of(store) == rows


def wait_until_removed(process: subprocess.Popen[bytes], ledger: Path, threads: int) -> None:
    """Wait until the command has so many threads on record as removed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    newest: list[Any] = []
    while not newest or newest[0][0] != "running" or newest[0][1] < threads:
        assert process.poll() is None, "the command has ended"
        assert time.monotonic() < deadline, newest
        time.sleep(0.002)
        newest = sweeps_in(ledger, "ending", "removed_threads")[-1:]
