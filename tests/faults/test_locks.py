"""Other processes that hold the file, or the store's sweep, while this one wants it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from history_retention import services
from history_retention.exceptions import StoreBusy
from history_retention.facts import Ending
from history_retention.models import Measurement, Sweep, Thread
from history_retention.policy import Bounds

from ..commands import run
from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, rows_of, threads_in
from .children import hold, started
from .commands import PRUNE, READING_COMMANDS, RECLAIM, VACUUM, refusal, sentence

THREADS = [ThreadRows(thread_id=f"t{number:02}", writes=2) for number in range(20)]
NAMES = [ConversationRow(thread_id=thread.thread_id) for thread in THREADS[:10]]
SHORT = 0.2
"""Seconds that the connection waits for a lock."""

READER = ("BEGIN", "SELECT * FROM checkpoints")
WRITER = ("BEGIN IMMEDIATE",)
EXCLUSIVE = ("BEGIN EXCLUSIVE",)
LOCKED = "is locked by another process that did not let go in time"


@pytest.fixture
def store(written_store: WriteStore, name_store: Callable[..., None], frozen_clock: object) -> Path:
    """A store in rollback-journal mode that is not waited for long."""
    path = written_store(THREADS, NAMES)
    name_store(str(path), timeout=SHORT)
    return path


@pytest.mark.parametrize("words", [PRUNE, RECLAIM], ids=lambda words: words[0])
@pytest.mark.parametrize("statements", [WRITER, READER], ids=["writer", "reader"])
def test_a_lock_that_outlasts_the_timeout_costs_no_row_and_the_next_run_finishes(
    store: Path, words: list[str], statements: tuple[str, ...]
) -> None:
    before = rows_of(store)

    with started(hold, store, *statements) as holder:
        assert holder.heard() == "held"
        ran = run(*words)

    assert ran.status == 1
    assert LOCKED in sentence(ran)
    assert rows_of(store) == before
    record = Sweep.objects.get()
    assert (record.ending, record.removed_threads) == ("failed", 0)
    assert LOCKED in record.error
    assert run(*words).status == 0
    assert len(threads_in(store)) == (0 if words is PRUNE else 10)


@READING_COMMANDS
def test_a_file_locked_for_readers_too_is_said(store: Path, words: list[str]) -> None:
    before = rows_of(store)

    with started(hold, store, *EXCLUSIVE) as holder:
        assert holder.heard() == "held"
        ran = run(*words)

    assert LOCKED in refusal(ran)
    assert rows_of(store) == before


def test_a_write_ahead_reader_costs_the_prune_nothing_and_the_vacuum_its_log(
    written_store: WriteStore, name_store: Callable[..., None], frozen_clock: object
) -> None:
    path = written_store(THREADS, NAMES, journal_mode="wal")
    name_store(str(path), timeout=SHORT)

    with started(hold, path, *READER) as holder:
        assert holder.heard() == "held"
        ran = run(*PRUNE, "--format=json")

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 20)
    assert "keeps its size until that process is done" in ran.document["vacuum"]["reason"]


@pytest.mark.parametrize("statements", [WRITER, READER], ids=["writer", "reader"])
def test_a_vacuum_of_a_locked_file_leaves_it_as_it_is(
    store: Path, statements: tuple[str, ...]
) -> None:
    assert run(*PRUNE, "--no-vacuum").status == 0
    before = store.read_bytes()

    with started(hold, store, *statements) as holder:
        assert holder.heard() == "held"
        ran = run(*VACUUM)

    assert ran.status == 1
    assert LOCKED in sentence(ran)
    assert store.read_bytes() == before


@pytest.mark.parametrize("statements", [WRITER, EXCLUSIVE], ids=["writer", "exclusive"])
def test_a_lock_taken_in_the_middle_leaves_a_true_report(
    store: Path, retention: Callable[..., None], statements: tuple[str, ...]
) -> None:
    retention(BOX_SECONDS=0)
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    with ExitStack() as holders:

        def locked_after_three(verb: str, done: int, total: int) -> None:
            if verb == "removing" and done == 3:
                holder = holders.enter_context(started(hold, store, *statements))
                assert holder.heard() == "held"

        outcome = services.execute(plan, trigger=Sweep.Trigger.CODE, progress=locked_after_three)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.PARTIAL, 3)
    assert LOCKED in outcome.error
    assert len(threads_in(store)) == len(threads_in(store, "checkpoint_writes")) == 17
    record = Sweep.objects.get()
    assert (record.ending, record.removed_threads) == ("partial", 3)


def test_a_store_that_is_locked_while_it_is_measured_is_not_blamed_on_the_ledger(
    store: Path,
) -> None:
    with ExitStack() as holders:

        def locked_after_the_first_chunk(verb: str, done: int, total: int) -> None:
            if done == 20:
                holder = holders.enter_context(started(hold, store, *EXCLUSIVE))
                assert holder.heard() == "held"

        with pytest.raises(StoreBusy, match=LOCKED):
            services.measure("history", now=NOW, progress=locked_after_the_first_chunk)

    assert Measurement.objects.count() == Thread.objects.count() == 0
