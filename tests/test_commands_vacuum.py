"""What ``history_vacuum`` needs, does and says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections

from history_retention.models import Sweep
from history_retention.stores.sqlite_space import VACUUM_MARGIN

from .commands import run
from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows, rows_of

pytestmark = pytest.mark.usefixtures("frozen_clock")

AS_OF = "--as-of=2026-11-30T12:00:00Z"
KEYS = [
    "database", "layout", "as_of", "dry_run", "way", "file_bytes_before", "file_bytes_after",
    "wal_bytes_after", "free_bytes_before", "free_bytes_after", "needed_bytes", "forecast",
    "blocked_seconds", "vacuum",
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
    assert (found["layout"], found["dry_run"], found["way"]) == ("gaunt_sloth", False, "vacuum")
    assert found["as_of"] == "2026-11-30T12:00:00.000Z"
    assert (found["file_bytes_before"], found["file_bytes_after"]) == (size, after)
    assert found["free_bytes_before"] > size / 2 > after
    assert found["needed_bytes"] == 2 * (size - found["free_bytes_before"])
    assert (found["wal_bytes_after"], found["free_bytes_after"]) == (0, 0)
    assert found["forecast"] == {
        "blocked_seconds": round(found["needed_bytes"] / 2 / 100_000_000, 3),
        "bytes_per_second": 100_000_000,
        "rate_source": "ordinary_disk",
        "is_worthwhile": True,
        "is_incremental": False,
    }
    assert found["blocked_seconds"] > 0
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
        f"history: a vacuum needs up to {needed} of free disk and blocks writers for well under a "
        "second",
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
    assert (ran.document["free_bytes_after"], ran.document["blocked_seconds"]) == (None, None)
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
    monkeypatch.setattr(
        "history_retention.stores.sqlite_space.VACUUM_MARGIN", VACUUM_MARGIN * 10**12
    )
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


@pytest.fixture
def slow(half_free: Path) -> Path:
    """A store whose vacuums take long: 1.4 MB in two minutes."""
    Sweep.objects.create(
        kind=Sweep.Kind.VACUUM, store="history", layout="gaunt_sloth", trigger="command",
        as_of=NOW, started_at=NOW, vacuumed=True, vacuum_seconds=1_000,
        file_bytes_before=10_485_761, file_bytes_after=10_485_760,
    )  # fmt: skip
    return half_free


@pytest.fixture
def incremental(half_free: Path) -> Path:
    """The store in a file that allows steps, half of it free."""
    with closing(sqlite3.connect(half_free, isolation_level=None)) as agent:
        agent.execute("PRAGMA auto_vacuum = INCREMENTAL")
        agent.execute("VACUUM")
        agent.execute("CREATE TABLE filler (bytes BLOB)")
        agent.execute("INSERT INTO filler VALUES (zeroblob(700000))")
        agent.execute("DROP TABLE filler")
    return half_free


def test_too_little_to_gain_is_said_with_what_a_vacuum_would_take_and_is_no_failure(
    slow: Path,
) -> None:
    free = _free_bytes(slow)
    before = slow.read_bytes()

    ran = run("history_vacuum", AS_OF, "--no-input")

    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"history: file 1.4 MB, of which {free / 1024:.1f} KB free inside",
        f"history: a vacuum needs up to {2 * (len(before) - free) / 1024**2:.1f} MB of free disk "
        f"and blocks writers for about {round((len(before) - free) / 10_485.76)} s (at 10.2 KB a "
        "second, as its last vacuums ran)",
        f"history: not vacuumed: {free:,} bytes are free inside the file, less than 67,108,864 "
        "(VACUUM_FREE_BYTES), and agents fill them again; history_vacuum --force vacuums all the "
        "same.",
    ]
    assert slow.read_bytes() == before


def test_force_vacuums_all_the_same(slow: Path) -> None:
    skipped = run("history_vacuum", AS_OF, "--no-input", "--format=json").document
    forced = run("history_vacuum", AS_OF, "--no-input", "--force", "--format=json").document

    assert (skipped["vacuum"]["ran"], forced["vacuum"]["ran"]) == (False, True)
    assert skipped["forecast"]["is_worthwhile"] is forced["forecast"]["is_worthwhile"] is False
    assert forced["forecast"]["rate_source"] == "earlier_vacuums"
    assert forced["forecast"]["bytes_per_second"] == 10_486
    assert slow.stat().st_size == forced["file_bytes_after"] < forced["file_bytes_before"] / 2


def test_steps_say_what_they_gave_back(incremental: Path) -> None:
    free, size = _free_bytes(incremental), incremental.stat().st_size
    rows = rows_of(incremental)

    ran = run("history_vacuum", AS_OF, "--incremental", "--no-input")

    lines = ran.out.splitlines()
    assert (ran.status, ran.err, len(lines)) == (0, "", 4)
    assert lines[1] == (
        "history: gives that back in steps of about 25 ms, between which writers go on"
    )
    assert lines[3].startswith(f"history: gave {free:,} bytes back in ")
    assert (incremental.stat().st_size, rows_of(incremental)) == (size - free, rows)


def test_steps_as_json_need_no_disk_and_block_nobody(incremental: Path) -> None:
    ran = run("history_vacuum", AS_OF, "--incremental", "--no-input", "--format=json")

    found = ran.document
    assert (ran.status, list(found), found["way"]) == (0, KEYS, "incremental")
    assert (found["needed_bytes"], found["blocked_seconds"]) == (0, None)
    assert (found["vacuum"]["ran"], found["forecast"]["is_incremental"]) == (True, True)
    assert found["free_bytes_after"] == 0 < found["free_bytes_before"]


def test_a_file_without_steps_is_one_sentence_and_status_1(half_free: Path) -> None:
    before = half_free.read_bytes()

    ran = run("history_vacuum", AS_OF, "--incremental", "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["reason"]) == (1, ran.err.strip())
    assert len(ran.err.splitlines()) == 1
    assert "history_vacuum --enable-incremental" in ran.err
    assert half_free.read_bytes() == before
    assert not Sweep.objects.filter(kind="vacuum").exists()


def test_enabling_says_what_it_changes_and_then_the_file_allows_steps(half_free: Path) -> None:
    ran = run("history_vacuum", AS_OF, "--enable-incremental", "--no-input")
    again = run("history_vacuum", AS_OF, "--enable-incremental", "--no-input", "--format=json")
    steps = run("history_vacuum", AS_OF, "--incremental", "--no-input", "--format=json")

    lines = ran.out.splitlines()
    assert (ran.status, ran.err, len(lines)) == (0, "", 5)
    assert "sets auto_vacuum = INCREMENTAL in the header of the vendor's own file" in lines[1]
    assert "blocks writers for well under a second" in lines[2]
    assert "auto_vacuum is INCREMENTAL now" in lines[4]
    assert (again.status, again.document["vacuum"]["ran"]) == (0, False)
    assert "INCREMENTAL already" in again.document["vacuum"]["reason"]
    assert (steps.status, steps.document["forecast"]["is_incremental"]) == (0, True)


@pytest.mark.parametrize("way", ["--incremental", "--enable-incremental"])
def test_a_dry_run_of_the_other_ways_changes_no_byte(incremental: Path, way: str) -> None:
    if way == "--enable-incremental":
        with closing(sqlite3.connect(incremental, isolation_level=None)) as agent:
            agent.execute("PRAGMA auto_vacuum = NONE")
            agent.execute("VACUUM")
    before = incremental.read_bytes()

    ran = run("history_vacuum", AS_OF, "--dry-run", way, "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (0, False)
    assert ran.document["vacuum"]["reason"] == "history: dry run: not vacuumed."
    assert incremental.read_bytes() == before
    assert not Sweep.objects.filter(kind="vacuum").exists()


def test_enabling_without_the_disk_for_it_is_refused(
    half_free: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.sqlite_space.VACUUM_MARGIN", 10**12)
    before = half_free.read_bytes()

    ran = run("history_vacuum", AS_OF, "--enable-incremental", "--no-input")

    assert ran.status == 1
    assert "bytes free in" in ran.err
    assert half_free.read_bytes() == before


@pytest.mark.parametrize("way", ["--incremental", "--enable-incremental"])
def test_the_other_ways_ask_too(incremental: Path, way: str) -> None:
    before = incremental.read_bytes()

    ran = run("history_vacuum", AS_OF, way)

    assert (ran.status, ran.out, incremental.read_bytes()) == (1, "", before)
    assert "--no-input" in ran.err


def _free_bytes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA freelist_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])
