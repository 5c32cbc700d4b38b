"""Two sweeps of one store at once: the second leaves, and would be harmless if it did not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from ..commands import manage
from ..store_files import ThreadRows, threads_in, write_store
from .children import Child, go_on, started, sweep
from .commands import PRUNE, RECLAIM, VACUUM, sentence, sweeps_in

pytestmark = pytest.mark.endurance

MODES = pytest.mark.parametrize("journal_mode", ["delete", "wal"])
THREADS = [ThreadRows(thread_id=f"t{number:02}", checkpoints=2, writes=3) for number in range(40)]


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Forty threads that no conversation names."""
    mode: Literal["delete", "wal"] = request.getfixturevalue("journal_mode")
    return write_store(
        tmp_path / "history.db", THREADS, [], now=datetime.now(UTC), journal_mode=mode
    )


@pytest.fixture
def sweeper(store: Path, ledger: Path) -> Iterator[Child]:
    """Another process in the middle of a sweep: one thread is gone, 39 are to go."""
    with started(sweep, store, ledger, stepwise=True, BOX_SECONDS=0, GAP_SECONDS=0) as child:
        assert child.heard() == 40
        child.told()
        assert child.heard() == 1
        yield child


@MODES
@pytest.mark.parametrize("words", [PRUNE, RECLAIM, VACUUM], ids=lambda words: words[0])
def test_the_second_sweep_of_a_store_says_so_and_leaves(
    store: Path, ledger: Path, sweeper: Child, journal_mode: str, words: list[str]
) -> None:
    ran = manage(*words, store=store, ledger=ledger)

    assert ran.status == 1
    assert "another sweep of this store is running, so this one left" in sentence(ran)
    assert len(threads_in(store)) == len(threads_in(store, "checkpoint_writes")) == 39
    assert go_on(sweeper)["removed"] == 40
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == set()
    assert sweeps_in(ledger, "ending", "error") == [("done", "")]


@MODES
def test_a_sweep_under_another_lock_takes_what_is_left_and_the_first_finds_it_gone(
    store: Path, ledger: Path, tmp_path: Path, sweeper: Child, journal_mode: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    ran = manage(
        *PRUNE, "--format=json", store=store, ledger=ledger, env={"TMPDIR": str(elsewhere)}
    )

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 39)
    assert sweeps_in(ledger, "ending", "error") == [("running", ""), ("done", "")]
    outcome = go_on(sweeper)
    assert (outcome["ending"], outcome["removed"]) == ("done", 1)
    assert set(outcome["skipped"].values()) == {"gone"}
    assert len(outcome["skipped"]) == 39


@MODES
def test_two_sweeps_side_by_side_remove_every_row_once(
    store: Path, ledger: Path, tmp_path: Path, journal_mode: str
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    pace = {"BOX_SECONDS": 0, "GAP_SECONDS": 0.001, "vacuum": False}
    with (
        started(sweep, store, ledger, temporary_folder=folders[0], **pace) as one,
        started(sweep, store, ledger, temporary_folder=folders[1], **pace) as two,
    ):
        assert (one.heard(), two.heard()) == (40, 40)
        one.told()
        two.told()
        outcomes = [one.heard(), two.heard()]

    assert [outcome["ending"] for outcome in outcomes] == ["done", "done"]
    assert sum(outcome["removed"] for outcome in outcomes) == 40
    assert sum(outcome["rows"] for outcome in outcomes) == 200
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == set()
    assert sweeps_in(ledger, "ending") == ["done", "done"]
