"""Agents that run in processes of their own, and a wait for what they do there."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from history_retention.guard import GuardedSaver, heartbeat
from history_retention.models import Lease

from ..faults.children import PATIENCE_SECONDS, use_files
from ..store_files import rows_of


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
    pipe: Connection, store: Path, ledger: Path, *, retry_seconds: float = 15.0, **options: Any
) -> None:
    """Do what it is told: open a thread, take a step in one, or say what the log has."""
    use_files(store, ledger, **options)
    heartbeat.RETRY_SECONDS = retry_seconds
    heard = Heard()
    with closing(sqlite3.connect(store, check_same_thread=False)) as connection:
        graph = counting().compile(checkpointer=GuardedSaver(SqliteSaver(connection)))
        while True:
            word, *thread_ids = pipe.recv()
            if word == "open":
                pipe.send([graph.get_state(config_of(each)).created_at for each in thread_ids])
            elif word == "step":
                pipe.send([graph.invoke({}, config_of(each))["steps"] for each in thread_ids])
            elif word == "log":
                pipe.send(heard.levels)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something another process does."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < give_up_at, "it never came to be so"
        time.sleep(0.01)


def leased_in(ledger: Path) -> set[str]:
    """Return the threads that have a lease in the ledger, run out or not."""
    columns = [field.column for field in Lease._meta.concrete_fields]
    rows = rows_of(ledger)[Lease._meta.db_table]
    return {Lease.thread_id_of(row[columns.index("thread_id")]) for row in rows}


def let_leases_run_out(ledger: Path) -> None:
    """Move every expiry into the past, as time does."""
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute(f"UPDATE {Lease._meta.db_table} SET expires_at = '2026-01-01 00:00:00'")
