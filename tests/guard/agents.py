"""Agents that run in processes of their own, and a wait for what they do there."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from history_retention.guard import GuardedSaver, heartbeat
from history_retention.models import Lease
from history_retention.models.thread_ids import thread_id_of

from ..commands import PROJECT, environment
from ..faults.children import PATIENCE_SECONDS, use_files


class Steps(TypedDict):
    """What the agent keeps: how many steps it took."""

    steps: int


def counting() -> Any:
    """Return a graph, to be compiled, that counts how often it ran."""
    graph = StateGraph(Steps)
    graph.add_node("step", lambda state: {"steps": state.get("steps", 0) + 1})
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


class Heard(logging.Handler):
    """The records of the guard's own log."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[str] = []
        logger = logging.getLogger("history_retention.guard")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.levels.append(record.levelname)


def agent(
    pipe: Connection,
    store: Path,
    ledger: Path,
    *,
    pace: Mapping[str, float] = MappingProxyType({}),
    **options: Any,
) -> None:
    """Do what it is told: open or release threads, take a step in them, say what the log has."""
    use_files(store, ledger, **options)
    for name, seconds in pace.items():
        setattr(heartbeat, name, seconds)
    heard = Heard()
    with closing(sqlite3.connect(store, check_same_thread=False)) as connection:
        saver = GuardedSaver(SqliteSaver(connection))
        graph = counting().compile(checkpointer=saver)
        while True:
            word, *thread_ids = pipe.recv()
            if word == "open":
                pipe.send([graph.get_state(config_of(each)).created_at for each in thread_ids])
            elif word == "step":
                pipe.send([graph.invoke({}, config_of(each))["steps"] for each in thread_ids])
            elif word == "release":
                for each in thread_ids:
                    saver.release(each)
                pipe.send([])
            elif word == "log":
                pipe.send(heard.levels)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something another process does."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < give_up_at, "it never came to be so"
        time.sleep(0.01)


def leases_in(ledger: Path) -> list[tuple[str, str, str]]:
    """Return thread, owner and expiry of each lease in the ledger, run out or not."""
    with closing(sqlite3.connect(ledger, timeout=PATIENCE_SECONDS)) as connection:
        rows = connection.execute(
            f"SELECT thread_id, owner, expires_at FROM {Lease._meta.db_table}"
        ).fetchall()
    return [(thread_id_of(thread_id), owner, at) for thread_id, owner, at in rows]


def leased_in(ledger: Path) -> set[str]:
    """Return the threads that have a lease in the ledger, run out or not."""
    return {thread_id for thread_id, _, _ in leases_in(ledger)}


def expiries_in(ledger: Path) -> list[str]:
    """Return when the leases run out, as SQLite keeps it."""
    return [at for _, _, at in leases_in(ledger)]


def let_leases_run_out(ledger: Path) -> None:
    """Move every expiry into the past, as time does."""
    with closing(sqlite3.connect(ledger, timeout=PATIENCE_SECONDS)) as connection, connection:
        connection.execute(f"UPDATE {Lease._meta.db_table} SET expires_at = '2026-01-01 00:00:00'")


@contextmanager
def running(script: str, store: Path, ledger: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the bundled project; one that is left over is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=PROJECT,
        env=environment(store, ledger) | {"DJANGO_SETTINGS_MODULE": "project.settings"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
