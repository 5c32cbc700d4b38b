"""An agent in another process that writes every ten milliseconds while its store is swept."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from ..commands import PROJECT, run
from ..conftest import WriteStore
from ..store_files import ThreadRows, add_threads
from .commands import PRUNE, READOUT

pytestmark = pytest.mark.endurance

MODES = pytest.mark.parametrize("journal_mode", ["delete", "wal"])
THREADS = {5: 3_000, 2: 12_000, 0: 1_500}
"""How many threads go, by the seconds that the agent waits: one transaction of 12,000 holds the
lock for longer than two seconds, as boxes without gaps between them do."""

FILLER_BYTES = 120_000_000
"""Freed in one transaction, that holds the lock for longer than a second."""


@contextmanager
def writing(store: Path, patience_seconds: float) -> Iterator[dict[str, Any]]:
    """Have an agent write to the store meanwhile; then tell what became of its transactions."""
    written: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.writer", str(store), str(patience_seconds)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield written
        out, _ = writer.communicate()
        written.update(json.loads(out))


def rows_of_live(store: Path) -> tuple[int, int]:
    """Count the agent's own rows in both tables."""
    with closing(sqlite3.connect(store)) as connection:
        (counts,) = connection.execute(
            "SELECT (SELECT COUNT(*) FROM checkpoints WHERE thread_id = 'live'),"
            " (SELECT COUNT(*) FROM checkpoint_writes WHERE thread_id = 'live')"
        )
    return tuple(counts)


@MODES
@pytest.mark.parametrize("patience_seconds", THREADS)
def test_an_agent_that_writes_during_a_sweep_loses_nothing_and_is_never_locked_out(
    written_store: WriteStore,
    record_property: Callable[[str, object], None],
    journal_mode: Literal["delete", "wal"],
    patience_seconds: int,
) -> None:
    number = THREADS[patience_seconds]
    threads = (ThreadRows(thread_id=f"t{n:05}", size=600, writes=3) for n in range(number))
    store = written_store(threads, [], journal_mode=journal_mode)

    with writing(store, patience_seconds) as written:
        readout = run(*READOUT, "--format=json")
        pruned = run(*PRUNE, "--format=json")

    assert (readout.status, pruned.status) == (0, 0)
    assert readout.document["thread_count"] in (number, number + 1)
    assert pruned.document["removed"]["thread_count"] == number
    assert written["transactions"] > 0
    assert rows_of_live(store) == (written["transactions"], 2 * written["transactions"])
    assert patience_seconds == 0 or written["busy"] == 0
    for name, value in written.items():
        record_property(name, value)
    sys.stdout.write(f"{journal_mode}, {patience_seconds} s of patience: {written}\n")


@MODES
def test_an_agent_that_writes_while_space_goes_back_in_steps_is_never_locked_out(
    written_store: WriteStore,
    record_property: Callable[[str, object], None],
    journal_mode: Literal["delete", "wal"],
) -> None:
    store = written_store([ThreadRows(thread_id="kept", size=1_000)], journal_mode=journal_mode)
    with closing(sqlite3.connect(store, isolation_level=None)) as agent:
        agent.execute("PRAGMA auto_vacuum = INCREMENTAL")
        agent.execute("VACUUM")
        agent.execute("CREATE TABLE filler (bytes BLOB)")
        agent.execute("INSERT INTO filler VALUES (zeroblob(?))", [FILLER_BYTES])
        add_threads(store, [ThreadRows(thread_id="last", size=FILLER_BYTES)])
        agent.execute("DROP TABLE filler")

    with writing(store, 2) as written:
        ran = run("history_vacuum", "--incremental", "--no-input", "--format=json")

    assert (ran.status, ran.document["vacuum"]["ran"]) == (0, True)
    assert store.stat().st_size < 2 * FILLER_BYTES
    assert written["busy"] == 0 < written["transactions"]
    assert rows_of_live(store) == (written["transactions"], 2 * written["transactions"])
    for name, value in written.items():
        record_property(name, value)
    sys.stdout.write(f"{journal_mode}: {written}\n")
