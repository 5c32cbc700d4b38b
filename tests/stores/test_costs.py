from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from project.checkpoint_ids import checkpoint_id_at

from ..store_files import NOW, write_store

ROOT = Path(__file__).resolve().parents[2]
THREADS = 1_500
SHARE = 3
"""One thread in so many is named by no conversation."""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/io").exists(), reason="only Linux counts a process's bytes in /proc"
)


def cost(name: str, store: Path, folder: Path | None) -> dict[str, int]:
    """Run a reading in a process of its own and return what it says it cost.

    Without a folder for it, the ledger lies in memory.
    """
    ledger = folder / "ledger.sqlite3" if folder else ":memory:"
    done = subprocess.run(
        [sys.executable, "-m", "tests.stores.costs", name],
        cwd=ROOT,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "HISTORY_DATABASE_URL": f"sqlite:///{store}",
            "DATABASE_URL": f"sqlite:///{ledger}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    costs: dict[str, int] = json.loads(done.stdout)
    return costs


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 30 MB: payloads of 20 KB, four small writes to each, threads interleaved."""
    path = write_store(tmp_path_factory.mktemp("costs") / "store.db")
    ids = [checkpoint_id_at(NOW - timedelta(days=100 - n % 90), n) for n in range(THREADS)]
    threads = [f"{n * 7919 % 10**9:09}-7f3a-4c2b-9d1e-a0b1c2d3e4f5" for n in range(THREADS)]
    payload, metadata, value = b"x" * 20_000, b"y" * 120, b"z" * 400
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata)"
            " VALUES (?, ?, ?, ?)",
            ((thread, each, payload, metadata) for thread, each in zip(threads, ids, strict=True)),
        )
        connection.executemany(
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, value)"
            " VALUES (?, ?, '3f0c1d2e-task', ?, 'messages', ?)",
            (
                (thread, each, index, value)
                for index in range(4)
                for thread, each in zip(threads, ids, strict=True)
            ),
        )
        connection.executemany(
            "INSERT INTO conversations (started_ts, thread_id) VALUES ('2026-10-01T00:00:00Z', ?)",
            [(thread,) for n, thread in enumerate(threads) if n % SHARE],
        )
    return path


@pytest.fixture
def pages_of(written: Path) -> Callable[..., int]:
    """Count pages of a kind that tables and indexes take; their size is 4,096 bytes."""

    def pages(*names: str, kinds: tuple[str, ...] = ("leaf", "internal")) -> int:
        with closing(sqlite3.connect(written)) as connection:
            try:
                (found,) = connection.execute(
                    "SELECT COUNT(*) FROM dbstat WHERE pagetype IN"
                    f" ({', '.join('?' * len(kinds))}) AND name IN ({', '.join('?' * len(names))})",
                    [*kinds, *names],
                ).fetchone()
            except sqlite3.OperationalError as error:
                pytest.skip(f"this build of SQLite cannot count pages: {error}")
        return int(found)

    return pages


TABLES = ("checkpoints", "checkpoint_writes")
INDEXES = tuple(f"sqlite_autoindex_{table}_1" for table in TABLES)
NAMES = ("conversations", "sessions")
PAGE = 4_096


def test_a_reading_reads_no_overflow_page_and_each_of_its_own_once(
    written: Path, pages_of: Callable[..., int], tmp_path: Path
) -> None:
    overflow = pages_of(*TABLES, kinds=("overflow",))
    rows, keys, names = pages_of(*TABLES), pages_of(*INDEXES), pages_of(*NAMES)

    read = cost("pages", written, tmp_path)

    assert overflow == 4 * THREADS > 2 * (rows + keys)
    assert rows + names <= read["measuring"] / PAGE <= 1.06 * (rows + names)
    assert keys + names <= read["choosing"] / PAGE <= 1.06 * (keys + names)


def test_measuring_again_reads_the_key_indexes_and_no_rows(
    written: Path, pages_of: Callable[..., int]
) -> None:
    keys, names, rows = pages_of(*INDEXES), pages_of(*NAMES), pages_of(*TABLES)

    read = cost("recalling", written, None)

    assert read["recalled"] == THREADS
    assert keys + names <= read["read"] / PAGE <= 1.06 * (keys + names) < rows / 2


def test_choosing_costs_the_same_without_an_index_on_the_naming_column(
    written: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.db"
    shutil.copy(written, bare)
    with closing(sqlite3.connect(bare)) as connection:
        connection.execute("DROP INDEX idx_conversations_thread_id")

    read = cost("pages", bare, tmp_path)

    indexed = cost("pages", written, tmp_path)
    assert {name: size // PAGE for name, size in read.items()} == {
        name: size // PAGE for name, size in indexed.items()
    }


def test_a_removal_writes_little_more_than_one_plain_transaction(
    written: Path, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours.db", tmp_path / "theirs.db"
    shutil.copy(written, ours)
    shutil.copy(written, theirs)

    removal = cost("removal", ours, tmp_path)
    plain = cost("plain_removal", theirs, tmp_path)

    assert removal["removed"] == THREADS // SHARE
    assert removal["written"] <= 1.2 * plain["written"]


def test_two_hundred_thousand_threads_are_measured_and_planned_in_fifty_megabytes(
    tmp_path: Path,
) -> None:
    path = write_store(tmp_path / "many.db")
    new, old = (checkpoint_id_at(NOW - timedelta(days=days)) for days in (0.5, 40))
    threads = [f"{number:08x}-7f3a-4c2b-9d1e-a0b1c2d3e4f5" for number in range(200_000)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES (?, ?, x'00')",
            ((thread, old if n % 40 == 0 else new) for n, thread in enumerate(threads)),
        )
        connection.executemany(
            "INSERT INTO conversations (started_ts, command, thread_id)"
            " VALUES ('2026-10-01T00:00:00Z', 'chat', ?)",
            ((thread,) for n, thread in enumerate(threads) if n % 10 == 5),
        )

    added = cost("memory", path, tmp_path)

    assert added["planned"] == 200_000 // 40
    assert added["measuring"] < 50 * 10**6
    assert added["saving"] < 50 * 10**6
    assert added["planning"] < 50 * 10**6
