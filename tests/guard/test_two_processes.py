"""An agent in one process, sweeps in another: what is open stays, however idle it is."""

from __future__ import annotations

import sqlite3
import subprocess
from collections import Counter
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ..commands import manage
from ..faults.children import PATIENCE_SECONDS, started, sweep
from ..store_files import ConversationRow, ThreadRows, threads_in, write_store
from ..vendor_reader import read_back
from .agents import agent, leased_in, leases_in, let_leases_run_out, running, wait_until

RECLAIM = ("history_reclaim", "--no-input", "--format=json")
PRUNE = ("history_prune", "--all", "--no-input", "--format=json")
READOUT = ("history_readout", "--format=json")

pytestmark = pytest.mark.endurance

LEASES_AND_ENDS = """
import sys
import django
from django.conf import settings
settings.DATABASES["default"]["OPTIONS"]["timeout"] = {ledger_timeout}
django.setup()
from history_retention.guard import lease
with lease("open"):
    print("in", flush=True)
    sys.stdin.readline()
{ending}
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two threads that no one names and one that somebody does, all still for forty days."""
    return write_store(
        tmp_path / "history.db",
        [ThreadRows(thread_id=name, checkpoints=2) for name in ("open", "dead", "named")],
        [ConversationRow(thread_id="named")],
        layout="langgraph_sqlite",
        now=datetime.now(UTC),
    )


def ids(document: dict[str, Any], key: str = "kept") -> dict[str, str]:
    return {thread["thread_id"]: thread["reason"] for thread in document[key]}


def test_an_open_agent_idle_beyond_the_grace_keeps_its_thread_from_reclaim_and_prune(
    store: Path, ledger: Path
) -> None:
    before = read_back(store, ["open"])
    with started(agent, store, ledger) as child:
        child.told(("open", "open"))
        assert child.heard() != [None]
        wait_until(lambda: leased_in(ledger) == {"open"})

        reclaimed = manage(*RECLAIM, store=store, ledger=ledger)
        pruned = manage(*PRUNE, store=store, ledger=ledger)
        readout = manage(*READOUT, store=store, ledger=ledger)

    assert (reclaimed.status, pruned.status) == (0, 0)
    assert reclaimed.document["removed"]["thread_count"] == 1
    assert ids(reclaimed.document) == ids(pruned.document) == {"open": "leased"}
    assert pruned.document["removed"]["thread_count"] == 1
    assert [each["state"] for each in readout.document["largest_threads"]] == ["leased"]
    assert threads_in(store) == threads_in(store, "writes") == {"open"}
    assert read_back(store, ["open"]) == before


def test_a_named_thread_that_is_open_is_kept_from_a_prune(store: Path, ledger: Path) -> None:
    with started(agent, store, ledger) as child:
        child.told(("open", "named"))
        child.heard()
        wait_until(lambda: leased_in(ledger) == {"named"})

        pruned = manage(*PRUNE, "--no-reclaim", store=store, ledger=ledger)

    assert ids(pruned.document) == {"named": "leased"}
    assert threads_in(store) == {"open", "dead", "named"}


def test_a_thread_that_is_opened_after_the_plan_was_made_is_skipped(
    tmp_path: Path, ledger: Path
) -> None:
    store = write_store(
        tmp_path / "history.db",
        [ThreadRows(thread_id=name) for name in ("open", "dead", "named")],
        [ConversationRow(thread_id="named")],
        layout="langgraph_sqlite",
    )
    with started(sweep, store, ledger) as sweeper, started(agent, store, ledger) as child:
        assert sweeper.heard() == 3
        child.told(("open", "open"))
        child.heard()
        wait_until(lambda: leased_in(ledger) == {"open"})
        sweeper.told()
        outcome: dict[str, Any] = sweeper.heard()

    assert outcome["skipped"] == {"open": "leased"}
    assert (outcome["ending"], outcome["removed"]) == ("done", 2)
    assert threads_in(store) == {"open"}


def test_a_killed_agents_thread_is_kept_until_its_lease_runs_out_and_then_reclaimed(
    store: Path, ledger: Path
) -> None:
    with started(agent, store, ledger) as child:
        child.told(("open", "open"))
        child.heard()
        wait_until(lambda: leased_in(ledger) == {"open"})
        child.process.kill()
        child.ended()

    first = manage(*RECLAIM, store=store, ledger=ledger)
    let_leases_run_out(ledger)
    second = manage(*RECLAIM, store=store, ledger=ledger)
    manage(*READOUT, store=store, ledger=ledger)

    assert (first.document["removed"]["thread_count"], ids(first.document)) == (
        1,
        {"open": "leased"},
    )
    assert (second.document["removed"]["thread_count"], ids(second.document)) == (1, {})
    assert threads_in(store) == threads_in(store, "writes") == {"named"}
    assert leased_in(ledger) == set()


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ValueError"])
def test_a_process_that_ends_by_itself_gives_its_leases_up(
    store: Path, ledger: Path, ending: str
) -> None:
    with ending_process(store, ledger, ending) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        wait_until(lambda: leased_in(ledger) == {"open"})
        process.communicate("\n", timeout=PATIENCE_SECONDS)

    assert leased_in(ledger) == set()
    assert manage(*RECLAIM, store=store, ledger=ledger).document["removed"]["thread_count"] == 2


def test_a_process_ends_although_the_ledger_is_locked_for_longer_than_anyone_waits(
    store: Path, ledger: Path
) -> None:
    with closing(sqlite3.connect(ledger, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with ending_process(store, ledger, "", ledger_timeout=600) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "in\n"
            process.communicate("\n", timeout=PATIENCE_SECONDS)
            assert process.returncode == 0
        other.execute("ROLLBACK")

    assert leased_in(ledger) == set()


def test_threads_that_a_forked_process_goes_on_with_are_leased_by_it_too(
    store: Path, ledger: Path
) -> None:
    script = """
import os, sys, django
django.setup()
from history_retention.guard import lease
with lease("open"):
    sys.stdin.readline()
    pid = os.fork()
    if not pid:
        with lease("dead"):
            print("in", flush=True)
            sys.stdin.readline()
        os._exit(0)
    os.waitpid(pid, 0)
"""
    with running(script, store, ledger) as process:
        wait_until(lambda: leased_in(ledger) == {"open"})
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: owners_in(ledger) == [("dead", 1), ("open", 2)])
        process.communicate("\n", timeout=PATIENCE_SECONDS)
        assert process.returncode == 0

    # The child was cut off, so what it left runs out; the parent's own lease is given up.
    assert owners_in(ledger) == [("dead", 1), ("open", 1)]


def test_an_agent_far_in_the_future_of_another_hosts_clock_is_still_seen(
    store: Path, ledger: Path
) -> None:
    with started(agent, store, ledger) as child:
        child.told(("open", "open"))
        child.heard()
        wait_until(lambda: leased_in(ledger) == {"open"})

        later = datetime.now(UTC) + timedelta(days=3)
        words = ("--dry-run", f"--as-of={later.isoformat()}")
        planned = manage(*RECLAIM, *words, store=store, ledger=ledger)

    assert ids(planned.document) == {"open": "leased"}
    assert planned.document["reclaimable"]["thread_ids"] == ["dead"]


def owners_in(ledger: Path) -> list[tuple[str, int]]:
    """Return the leased threads with how many have each."""
    return sorted(Counter(thread_id for thread_id, _, _ in leases_in(ledger)).items())


def ending_process(
    store: Path, ledger: Path, ending: str, *, ledger_timeout: int = 20
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a process that leases a thread until it is told to end, in this way."""
    script = LEASES_AND_ENDS.format(ending=ending, ledger_timeout=ledger_timeout)
    return running(script, store, ledger)
