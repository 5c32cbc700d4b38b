"""What a vacuum of a SQLite file takes, as it was said before and as it is found after."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from django.db import connections

from history_retention import services
from history_retention.stores import open_store
from history_retention.stores.sqlite_space import SQLiteStore

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows

WITHIN = 0.05


@contextmanager
def opened() -> Iterator[SQLiteStore]:
    with open_store("history") as store:
        assert isinstance(store, SQLiteStore)
        yield store


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize("share_gone", [0.1, 0.5, 0.9])
def test_the_peak_of_disk_is_what_was_said_within_5_percent(
    written_store: WriteStore,
    monkeypatch: pytest.MonkeyPatch,
    journal_mode: str,
    share_gone: float,
) -> None:
    # Both copies are there at once when the vacuum commits: the temporary one, which is as large
    # as the file is afterwards, and a journal that is made to stay, or a log that a reader keeps.
    threads = [ThreadRows(thread_id=f"t{n:03}", checkpoints=4, size=20_000) for n in range(100)]
    kept = [ConversationRow(thread_id=f"t{n:03}") for n in range(round(100 * share_gone), 100)]
    path = written_store(threads, kept, journal_mode=journal_mode)
    options = {"init_command": "PRAGMA journal_mode = PERSIST"} if journal_mode == "delete" else {}
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", options)
    services.execute(
        services.plan_reclaim("history", now=NOW),
        trigger=services.Trigger.CODE,
        vacuum=False,
    )
    path.with_name("store.db-journal").unlink(missing_ok=True)

    with closing(sqlite3.connect(path, isolation_level=None)) as reader, opened() as store:
        reader.execute("BEGIN" if journal_mode == "wal" else "SELECT 1")
        reader.execute("SELECT COUNT(*) FROM checkpoints").fetchone()
        before = path.stat().st_size
        result = store.vacuum()
        copy = store.live_bytes()
        beside = path.with_name("store.db-wal" if journal_mode == "wal" else "store.db-journal")
        measured = copy + beside.stat().st_size

    assert (result.ran, result.wal_busy) == (True, True if journal_mode == "wal" else None)
    assert result.needed_bytes == pytest.approx(measured, rel=WITHIN)
    assert before + result.needed_bytes == pytest.approx(before + measured, rel=WITHIN)


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_trial_tells_a_speed_and_leaves_nothing_behind(
    written_store: WriteStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    journal_mode: str,
) -> None:
    path = written_store([ThreadRows(thread_id="t", size=400_000)], journal_mode=journal_mode)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("SQLITE_TMPDIR", str(folder))
    before = path.read_bytes()

    with opened() as store:
        rate = store.vacuum_rate()

    assert rate is not None
    assert rate > 0
    assert list(folder.iterdir()) == []
    assert path.read_bytes() == before


def test_pages_are_freed_until_the_deadline_and_at_least_one(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="t", size=400_000)])
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("PRAGMA auto_vacuum = INCREMENTAL")
        agent.execute("VACUUM")
        agent.execute("DELETE FROM checkpoints")

    with opened() as store:
        free = store.space().free_bytes
        with store.removing():
            first = store.free_some(0)
        with store.removing():
            rest = store.free_some(float("inf"))
        with store.removing():
            none = store.free_some(float("inf"))
        left = store.space().free_bytes

    assert (first, rest, none, left) == (4096, free - 4096, 0, 0)
    assert free > 380_000
