"""What the ledger is told, and that no agent waits for it or fails with it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from history_retention.guard.heartbeat import Heartbeat
from history_retention.guard.in_use import InUse

from ..faults.children import PATIENCE_SECONDS, Child, started
from ..store_files import ThreadRows, rows_of, write_store
from .agents import agent, expiries_in, leased_in, let_leases_run_out, running, wait_until

HASTE = {"PAUSE_SECONDS": 0.01, "RETRY_SECONDS": 0.01, "BEAT_SECONDS": 0.02}


LEASES = "SELECT COUNT(*) FROM history_retention_lease"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """An empty store of LangGraph's."""
    return write_store(tmp_path / "history.db", layout="langgraph_sqlite", now=datetime.now(UTC))


def asked(child: Child, *words: str) -> list[Any]:
    """Tell the agent what to do and return what it says."""
    child.told(words)
    heard = child.heard()
    assert isinstance(heard, list)
    return heard


def missing_folder(ledger: Path) -> None:
    ledger.unlink()
    ledger.mkdir()


def not_migrated(ledger: Path) -> None:
    ledger.write_bytes(b"")


def not_a_database(ledger: Path) -> None:
    ledger.write_bytes(b"no database, but more than a hundred bytes of something else" * 10)


def repaired(ledger: Path, content: bytes) -> None:
    if ledger.is_dir():
        ledger.rmdir()
    whole = ledger.with_suffix(".whole")
    whole.write_bytes(content)
    whole.replace(ledger)


@pytest.mark.parametrize("breaks", [missing_folder, not_migrated, not_a_database])
def test_a_ledger_that_is_down_costs_the_agent_nothing_and_is_told_once_it_works(
    store: Path, ledger: Path, breaks: Callable[[Path], None]
) -> None:
    content = ledger.read_bytes()
    breaks(ledger)

    with started(agent, store, ledger, pace=HASTE) as child:
        assert [asked(child, "step", "t") for _ in range(3)] == [[1], [2], [3]]
        wait_until(lambda: asked(child, "log") == ["WARNING"])
        assert asked(child, "step", "other", "t") == [1, 4]
        asked(child, "release", "other")
        repaired(ledger, content)
        wait_until(lambda: leased_in(ledger) == {"t"})
        wait_until(lambda: asked(child, "log") == ["WARNING", "INFO"])
        assert asked(child, "step", "t") == [5]


def test_a_locked_ledger_costs_the_agent_nothing_and_is_told_once_it_is_free(
    store: Path, ledger: Path
) -> None:
    with (
        closing(sqlite3.connect(ledger, isolation_level=None)) as other,
        started(agent, store, ledger, pace=HASTE, ledger_timeout=0.01) as child,
    ):
        other.execute("BEGIN EXCLUSIVE")
        assert [asked(child, "step", "t") for _ in range(3)] == [[1], [2], [3]]
        wait_until(lambda: asked(child, "log") == ["WARNING"])
        assert asked(child, "step", "t") == [4]
        assert other.execute(LEASES).fetchone() == (0,)
        other.execute("ROLLBACK")
        wait_until(lambda: leased_in(ledger) == {"t"})
        wait_until(lambda: asked(child, "log") == ["WARNING", "INFO"])


def test_an_agent_takes_its_steps_while_the_ledger_takes_its_time(
    store: Path, ledger: Path
) -> None:
    with (
        closing(sqlite3.connect(ledger, isolation_level=None)) as other,
        started(agent, store, ledger, pace=HASTE, ledger_timeout=600) as child,
    ):
        other.execute("BEGIN EXCLUSIVE")  # the heartbeat waits for its end, ten minutes if need be
        for number in range(1, 6):
            assert asked(child, "step", "t", f"t{number}") == [number, 1]
        assert asked(child, "release", "t1") == []
        assert asked(child, "log") == []
        assert other.execute(LEASES).fetchone() == (0,)
        other.execute("ROLLBACK")
        wait_until(lambda: leased_in(ledger) == {"t", "t2", "t3", "t4", "t5"})
        assert asked(child, "log") == []


def test_leases_are_renewed_for_as_long_as_an_idle_agent_is_open(store: Path, ledger: Path) -> None:
    with started(agent, store, ledger, pace=HASTE) as child:
        asked(child, "open", "t", "other")
        wait_until(lambda: leased_in(ledger) == {"t", "other"})
        first = expiries_in(ledger)

        wait_until(lambda: min(expiries_in(ledger)) > max(first))


@pytest.mark.parametrize("lose", ["DELETE FROM history_retention_lease", "run out"])
def test_leases_that_were_lost_while_a_process_slept_are_taken_again(
    store: Path, ledger: Path, lose: str
) -> None:
    with started(agent, store, ledger, pace=HASTE) as child:
        asked(child, "open", "t", "other")
        wait_until(lambda: leased_in(ledger) == {"t", "other"})
        last = max(expiries_in(ledger))
        if lose == "run out":
            let_leases_run_out(ledger)
        else:
            with (
                closing(sqlite3.connect(ledger, timeout=PATIENCE_SECONDS)) as connection,
                connection,
            ):
                connection.execute(lose)

        wait_until(
            lambda: (
                leased_in(ledger) == {"t", "other"} and min(expiries_in(ledger), default="") > last
            )
        )
        assert asked(child, "log") == []


def test_a_thread_that_is_released_is_free_long_before_its_lease_runs_out(
    store: Path, ledger: Path
) -> None:
    with started(agent, store, ledger, pace=HASTE) as child:
        asked(child, "open", "t", "other")
        wait_until(lambda: leased_in(ledger) == {"t", "other"})

        asked(child, "release", "t")

        wait_until(lambda: leased_in(ledger) == {"other"})
        asked(child, "open", "t")
        wait_until(lambda: leased_in(ledger) == {"t", "other"})


def test_thousands_of_threads_of_one_process_are_leased(store: Path, ledger: Path) -> None:
    names = [f"t{number}" for number in range(3_000)]
    with started(agent, store, ledger) as child:
        asked(child, "open", *names)

        wait_until(lambda: len(expiries_in(ledger)) == 3_000)

    assert leased_in(ledger) == set(names)


def test_what_other_processes_left_behind_is_forgotten_by_whoever_writes_next(
    store: Path, ledger: Path
) -> None:
    with started(agent, store, ledger) as killed:
        asked(killed, "open", "left")
        wait_until(lambda: leased_in(ledger) == {"left"})
        killed.process.kill()
        killed.ended()
    let_leases_run_out(ledger)

    with started(agent, store, ledger) as child:
        asked(child, "open", "t")
        wait_until(lambda: leased_in(ledger) == {"t"})


def test_a_ledger_in_the_stores_own_file_is_written_beside_the_agent(ledger: Path) -> None:
    write_store(ledger, [ThreadRows(thread_id="t")], layout="langgraph_sqlite")
    before = rows_of(ledger)["checkpoints"]

    with started(agent, ledger, ledger, pace=HASTE) as child:
        for number in range(1, 20):
            assert asked(child, "step", "other") == [number]
        wait_until(lambda: leased_in(ledger) == {"other"})
        assert asked(child, "log") == []

    assert [row for row in rows_of(ledger)["checkpoints"] if row[0] == "t"] == before


def test_processes_that_are_forked_while_the_ledger_is_written_can_write_it_too(
    store: Path, ledger: Path
) -> None:
    script = """
import os, sys, django
django.setup()
from history_retention.guard import heartbeat, lease
from history_retention.models import Lease
heartbeat.PAUSE_SECONDS = heartbeat.BEAT_SECONDS = 0
with lease("t"):
    statuses = []
    for number in range(30):
        if not (pid := os.fork()):
            Lease.objects.take(f"{number} child", [("history", "forked")])
            os._exit(0)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(statuses)
"""
    with running(script, store, ledger) as process:
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert out == f"{[0] * 30}\n"
    assert len(expiries_in(ledger)) == 30


def test_an_agent_that_runs_while_the_interpreter_ends_ends_well(store: Path, ledger: Path) -> None:
    script = """
import atexit, sys, django
django.setup()
from history_retention.guard import lease
@atexit.register
def last():
    with lease("t"):
        print("ran", flush=True)
"""
    with running(script, store, ledger) as process:
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert (out, process.returncode) == ("ran\n", 0)


def test_an_agent_goes_on_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    uses = InUse()
    heartbeat = Heartbeat(uses)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(3):
            heartbeat.ensure()
    (record,) = caplog.records
    assert "can't start new thread" in record.getMessage()

    uses.begin("history", "t")
    heartbeat.ensure()
    wait_until(lambda: not uses.news.is_set())
    heartbeat.stop()
