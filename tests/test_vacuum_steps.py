"""Giving space back in steps, and changing a file so that it can."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from history_retention import services
from history_retention.facts import Ending
from history_retention.models import Sweep
from history_retention.outcomes import Outcome
from history_retention.services import Trigger

from .conftest import WriteStore
from .store_files import NOW, ThreadRows, add_threads, rows_of

MODES = pytest.mark.parametrize("journal_mode", ["delete", "wal"])
KEPT = ThreadRows(thread_id="kept", size=30_000)
GONE = ThreadRows(thread_id="gone", size=400_000)
PAGE = 4096


def value(path: Path, pragma: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {pragma}").fetchone()[0]


def half_free(path: Path, auto_vacuum: str = "INCREMENTAL") -> Path:
    """Make the store's file one of that kind, and leave free pages before those in use."""
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute(f"PRAGMA auto_vacuum = {auto_vacuum}")
        agent.execute("VACUUM")
        agent.execute("DELETE FROM checkpoints WHERE thread_id = 'gone'")
    return path


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """A file that allows steps, with some 97 free pages."""
    return half_free(written_store([GONE, KEPT]))


def freed(
    stop: Callable[[], bool] = services.never, progress: Callable[..., object] = services.silent
) -> Outcome:
    def told(*words: object) -> None:
        progress(*words)

    return services.vacuum_incrementally(
        "history", now=NOW, trigger=Trigger.CODE, stop=stop, progress=told
    )


@MODES
def test_steps_give_back_all_that_is_free_and_keep_every_row(
    written_store: WriteStore, journal_mode: str
) -> None:
    path = half_free(written_store([GONE, KEPT], journal_mode=journal_mode))
    rows, size, free = rows_of(path), path.stat().st_size, value(path, "freelist_count") * PAGE

    outcome = freed()

    assert (outcome.ending, outcome.error, outcome.vacuum.ran) == (Ending.DONE, "", True)
    assert outcome.vacuum.reason.startswith(f"history: gave {free:,} bytes back in ")
    assert outcome.vacuum.wal_busy is (False if journal_mode == "wal" else None)
    assert path.stat().st_size == outcome.space_after.file_bytes == size - free
    assert (outcome.space_after.free_bytes, outcome.space_after.wal_bytes) == (0, 0)
    assert rows_of(path) == rows
    assert value(path, "integrity_check") == "ok"
    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.ending, sweep.vacuumed) == ("vacuum", "done", True)
    assert (sweep.bounds, sweep.vacuum_seconds) == ({"incremental": True}, None)
    assert (sweep.file_bytes_before, sweep.file_bytes_after) == (size, size - free)


def test_a_step_is_a_transaction_of_its_own(store: Path, retention: Callable[..., None]) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    pages = value(store, "freelist_count")
    sizes: list[int] = []

    outcome = freed(progress=lambda _verb, _done, _all: sizes.append(store.stat().st_size))

    assert outcome.vacuum.reason == (f"history: gave {pages * PAGE:,} bytes back in {pages} steps.")
    assert [a - b for a, b in pairwise(sizes)] == [PAGE] * (pages - 1)


def test_a_wish_to_stop_ends_it_after_the_step_and_the_next_run_goes_on(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    rows, size, pages = rows_of(store), store.stat().st_size, value(store, "freelist_count")
    steps: list[int] = []

    stopped = freed(stop=lambda: len(steps) == 5, progress=lambda *_args: steps.append(1))
    left = value(store, "freelist_count")
    finished = freed()

    assert (stopped.ending, stopped.vacuum.ran) == (Ending.INTERRUPTED, True)
    assert stopped.vacuum.reason.startswith(f"history: gave {5 * PAGE:,} bytes back in 5 steps.")
    assert stopped.space_after.file_bytes == size - 5 * PAGE
    assert (left, finished.ending) == (pages - 5, Ending.DONE)
    assert store.stat().st_size == size - pages * PAGE
    assert rows_of(store) == rows
    assert [sweep.ending for sweep in Sweep.objects.order_by("pk")] == ["interrupted", "done"]


def test_steps_that_are_cancelled_in_the_ledger_end(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    monkeypatch.setattr("history_retention.recording.SIGN_OF_LIFE_SECONDS", 0)

    outcome = freed(progress=lambda *_args: Sweep.objects.update(cancelled_at=NOW))

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.INTERRUPTED, True)
    assert value(store, "freelist_count") > 0


def test_what_an_agent_fills_meanwhile_is_not_waited_for(
    store: Path, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)

    def write(*_args: object) -> None:
        if value(store, "freelist_count"):
            add_threads(
                store, [ThreadRows(thread_id="new", size=value(store, "freelist_count") * PAGE)]
            )

    outcome = freed(progress=write)

    assert outcome.ending is Ending.DONE
    assert outcome.vacuum.reason == f"history: gave {PAGE:,} bytes back in 1 step."
    assert "new" in {row[0] for row in rows_of(store)["checkpoints"]}


def test_a_writer_that_does_not_let_go_ends_it_with_a_true_report(
    store: Path, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    retention(BOX_SECONDS=0, GAP_SECONDS=0)
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 0.05})
    pages = value(store, "freelist_count")
    with closing(sqlite3.connect(store, isolation_level=None)) as agent:

        def lock(*_args: object) -> None:
            agent.execute("BEGIN IMMEDIATE")

        outcome = freed(progress=lock)
        agent.execute("ROLLBACK")

    assert outcome.ending is Ending.PARTIAL
    assert "is locked by another process" in outcome.error
    assert outcome.vacuum.reason == f"history: gave {PAGE:,} bytes back in 1 step."
    assert value(store, "freelist_count") == pages - 1
    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.error, sweep.vacuumed) == ("partial", outcome.error, True)


def test_a_reader_of_the_old_pages_keeps_the_log_and_that_is_told(
    written_store: WriteStore,
) -> None:
    path = half_free(written_store([GONE, KEPT], journal_mode="wal"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM checkpoints").fetchone()

        outcome = freed()

    assert (outcome.ending, outcome.vacuum.wal_busy) == (Ending.DONE, True)
    assert "another process reads the old pages" in outcome.vacuum.reason
    assert outcome.space_after.wal_bytes > 0


def test_a_file_that_does_not_allow_steps_is_left_and_the_way_is_named(
    written_store: WriteStore,
) -> None:
    path = half_free(written_store([GONE, KEPT]), "NONE")
    before = path.read_bytes()

    outcome = freed()

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.FAILED, False)
    assert outcome.error == outcome.vacuum.reason
    assert "history_vacuum --enable-incremental" in outcome.error
    assert path.read_bytes() == before


@pytest.mark.parametrize("auto_vacuum", ["INCREMENTAL", "FULL"])
def test_steps_with_nothing_free_do_nothing(written_store: WriteStore, auto_vacuum: str) -> None:
    path = half_free(written_store([KEPT]), auto_vacuum)
    before = path.read_bytes()

    outcome = freed()

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.DONE, False)
    assert "nothing is free" in outcome.vacuum.reason
    assert path.read_bytes() == before


@MODES
def test_enabling_makes_the_file_incremental_and_keeps_every_row(
    written_store: WriteStore, journal_mode: str
) -> None:
    path = half_free(written_store([GONE, KEPT], journal_mode=journal_mode), "NONE")
    rows, size = rows_of(path), path.stat().st_size

    outcome = services.enable_incremental("history", now=NOW, trigger=Trigger.COMMAND)

    assert (outcome.ending, outcome.error, outcome.vacuum.ran) == (Ending.DONE, "", True)
    assert "auto_vacuum is INCREMENTAL now" in outcome.vacuum.reason
    assert value(path, "auto_vacuum") == 2
    assert value(path, "journal_mode") == journal_mode
    assert rows_of(path) == rows
    assert path.stat().st_size < size / 2
    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.ending, sweep.bounds) == (
        "vacuum", "done", {"enable_incremental": True},
    )  # fmt: skip
    assert sweep.vacuum_seconds == outcome.vacuum.seconds

    add_threads(path, [ThreadRows(thread_id="later", size=400_000)])
    with closing(sqlite3.connect(path)) as agent, agent:
        agent.execute("DELETE FROM checkpoints WHERE thread_id = 'later'")
    assert freed().vacuum.ran
    assert value(path, "freelist_count") == 0


@pytest.mark.parametrize("auto_vacuum", ["INCREMENTAL", "FULL"])
def test_what_gives_space_back_already_is_not_changed(
    written_store: WriteStore, auto_vacuum: str
) -> None:
    path = half_free(written_store([GONE, KEPT]), auto_vacuum)
    before = path.read_bytes()

    outcome = services.enable_incremental("history", now=NOW, trigger=Trigger.COMMAND)

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.DONE, False)
    assert f"auto_vacuum is {auto_vacuum}" in outcome.vacuum.reason
    assert path.read_bytes() == before


def test_an_enabling_that_a_writer_keeps_out_changes_nothing(
    written_store: WriteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = half_free(written_store([GONE, KEPT]), "NONE")
    monkeypatch.setitem(connections["history"].settings_dict, "OPTIONS", {"timeout": 0.05})
    with closing(sqlite3.connect(path, isolation_level=None)) as agent:
        agent.execute("BEGIN IMMEDIATE")

        outcome = services.enable_incremental("history", now=NOW, trigger=Trigger.COMMAND)

    assert (outcome.ending, outcome.vacuum.ran) == (Ending.FAILED, False)
    assert value(path, "auto_vacuum") == 0


def test_nothing_but_enabling_changes_what_the_file_is(written_store: WriteStore) -> None:
    path = half_free(written_store([GONE, KEPT]), "NONE")

    services.vacuum_forecast("history")
    freed()
    services.vacuum("history", now=NOW, trigger=Trigger.CODE, force=True)

    assert value(path, "auto_vacuum") == 0
