"""What ``history_vacuum`` needs, does and says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections

from history_retention.models import Sweep
from history_retention.stores.sqlite import VACUUM_MARGIN

from .commands import run
from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows, rows_of

pytestmark = pytest.mark.usefixtures("frozen_clock")

AS_OF = "--as-of=2026-11-30T12:00:00Z"
KEYS = [
    "database", "layout", "as_of", "dry_run", "file_bytes_before", "file_bytes_after",
    "wal_bytes_after", "free_bytes_before", "needed_bytes", "vacuum",
]  # fmt: skip


@pytest.fixture
def half_free(fixture_store: Callable[[str], Path]) -> Path:
    """The vendor's store after a prune that left its free pages in the file."""
    path = fixture_store("gaunt_sloth/history.db")
    run("history_prune", AS_OF, "--older-than=30", "--no-input", "--no-vacuum")
    return path


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a lock only as long as a test may take."""
    monkeypatch.setitem(connections.databases["history"], "OPTIONS", {"timeout": 0.05})


def test_it_gives_the_free_space_back_and_says_before_and_after(half_free: Path) -> None:
    rows, size = rows_of(half_free), half_free.stat().st_size

    ran = run("history_vacuum", AS_OF, "--no-input", "--format=json")

    found, after = ran.document, half_free.stat().st_size
    assert (ran.status, ran.err) == (0, "")
    assert list(found) == KEYS
    assert (found["layout"], found["dry_run"]) == ("gaunt_sloth", False)
    assert found["as_of"] == "2026-11-30T12:00:00.000Z"
    assert (found["file_bytes_before"], found["file_bytes_after"]) == (size, after)
    assert found["free_bytes_before"] > size / 2 > after
    assert found["needed_bytes"] == 2 * (size - found["free_bytes_before"])
    assert found["wal_bytes_after"] == 0
    assert found["vacuum"] == {"ran": True, "reason": "history: vacuumed.", "wal_busy": None}
    assert rows_of(half_free) == rows


def test_the_text_is_these_sentences(half_free: Path) -> None:
    free_bytes = _free_bytes(half_free)
    free = f"{free_bytes / 1024:.1f} KB"
    needed = f"{2 * (half_free.stat().st_size - free_bytes) / 1024**2:.1f} MB"

    ran = run("history_vacuum", AS_OF, "--no-input")

    size = f"{half_free.stat().st_size / 1024:.1f} KB"
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"history: file 1.4 MB, of which {free} free inside",
        f"history: a vacuum needs up to {needed} of free disk and blocks writers for its whole "
        "length",
        f"history: file 1.4 MB before, {size} after, of which 0 bytes free inside",
        "history: vacuumed.",
    ]


def test_verbosity_0_says_the_outcome_alone(half_free: Path) -> None:
    ran = run("history_vacuum", AS_OF, "--no-input", verbosity=0)

    assert len(ran.out.splitlines()) == 2


def test_a_dry_run_changes_no_byte_and_has_null_for_what_it_cannot_know(half_free: Path) -> None:
    before = half_free.read_bytes()

    ran = run("history_vacuum", AS_OF, "--dry-run", "--format=json")

    assert list(ran.document) == KEYS
    assert ran.document["vacuum"]["ran"] is False
    assert (ran.document["file_bytes_after"], ran.document["wal_bytes_after"]) == (None, None)
    assert half_free.read_bytes() == before
    assert not Sweep.objects.filter(kind="vacuum").exists()


def test_nothing_free_is_nothing_to_do_and_no_failure(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="t")], [ConversationRow(thread_id="t")])
    before = path.read_bytes()

    ran = run("history_vacuum", "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (0, False)
    assert ran.document["file_bytes_after"] == ran.document["file_bytes_before"]
    assert path.read_bytes() == before


def test_a_write_ahead_log_is_truncated_and_that_is_told(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id="t", size=200_000)],
        [ConversationRow(thread_id="t")],
        journal_mode="wal",
    )
    with closing(sqlite3.connect(path)) as agent:
        agent.execute("SELECT 1 FROM checkpoints").fetchall()
        run("history_prune", "--all", "--no-input", "--no-vacuum")

        ran = run("history_vacuum", "--no-input", "--format=json")

    assert ran.document["vacuum"]["ran"] is True
    assert ran.document["vacuum"]["wal_busy"] is False
    assert ran.document["wal_bytes_after"] == 0
    assert ran.document["file_bytes_after"] < 100_000


def test_a_reader_that_keeps_the_log_busy_is_told_and_no_failure(
    written_store: WriteStore, impatient: None
) -> None:
    path = written_store(
        [ThreadRows(thread_id="t", size=200_000)],
        [ConversationRow(thread_id="t")],
        journal_mode="wal",
    )
    run("history_prune", "--all", "--no-input", "--no-vacuum")
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("BEGIN")
        agent.execute("SELECT 1 FROM conversations").fetchall()

        ran = run("history_vacuum", "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (0, True)
    assert ran.document["vacuum"]["wal_busy"] is True
    assert "another process" in ran.document["vacuum"]["reason"]


def test_a_disk_without_room_is_a_refusal_before_anything_is_asked(
    half_free: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.sqlite.VACUUM_MARGIN", VACUUM_MARGIN * 10**12)
    before = half_free.read_bytes()

    ran = run("history_vacuum", AS_OF, "--no-input", "--format=json")
    rehearsed = run("history_vacuum", AS_OF, "--dry-run")

    assert (ran.status, rehearsed.status) == (1, 1)
    assert ran.document["vacuum"]["ran"] is False
    assert ran.document["vacuum"]["reason"] == ran.err.strip()
    assert "bytes free in" in ran.err
    assert half_free.read_bytes() == before


def test_a_store_locked_by_another_writer_is_a_sentence_and_status_1(
    half_free: Path, impatient: None
) -> None:
    with closing(sqlite3.connect(half_free, isolation_level=None)) as agent:
        agent.execute("BEGIN IMMEDIATE")

        ran = run("history_vacuum", AS_OF, "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (1, False)
    assert len(ran.err.splitlines()) == 1
    assert Sweep.objects.filter(kind="vacuum", ending="failed").count() == 1


def test_without_a_terminal_and_without_no_input_nothing_happens(half_free: Path) -> None:
    before = half_free.read_bytes()

    ran = run("history_vacuum", AS_OF)

    assert (ran.status, ran.out, half_free.read_bytes()) == (1, "", before)
    assert "--no-input" in ran.err


def _free_bytes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
