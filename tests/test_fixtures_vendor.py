"""A store that LangGraph writes while the test runs: pruned here, resumed there."""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from history_retention import services
from history_retention.facts import Ending, SkipReason
from history_retention.policy import Bounds
from history_retention.services import Trigger

from .store_files import rows_of, threads_in
from .vendor_reader import delete_threads, read_back

THREADS = ("plain", "nested", "waiting", "answered", "größe ☃ 'x'", "")
GONE = ("nested", "waiting", "")
KEPT = ("answered", "größe ☃ 'x'", "plain")


class Talk(TypedDict):
    said: Annotated[list[str], operator.add]


def say(state: Talk) -> dict[str, list[str]]:
    return {"said": [f"word {len(state['said'])}"]}


def ask(state: Talk) -> dict[str, list[str]]:
    return {"said": [f"answer {interrupt('may I?')}"]}


def graph(saver: BaseCheckpointSaver[Any] | None, *, asks: bool) -> CompiledStateGraph[Any]:
    """Two steps, the second a graph of its own with a namespace of its own."""
    inner = StateGraph(Talk)
    inner.add_node("inner_say", say)
    inner.add_node("inner_ask", ask if asks else say)
    inner.add_edge(START, "inner_say")
    inner.add_edge("inner_say", "inner_ask")
    outer = StateGraph(Talk)
    outer.add_node("say", say)
    outer.add_node("nested", inner.compile())
    outer.add_edge(START, "say")
    outer.add_edge("say", "nested")
    outer.add_edge("nested", END)
    return outer.compile(checkpointer=saver)


def config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


@pytest.fixture
def live_store(point_at: Callable[[Path], Path], tmp_path: Path) -> Path:
    """Six threads, one of them waiting for an answer inside its subgraph."""
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        for thread_id in THREADS:
            run = graph(saver, asks=thread_id in ("waiting", "answered"))
            run.invoke({"said": ["hello"]}, config(thread_id))
            if thread_id == "answered":
                run.invoke(Command(resume="yes"), config(thread_id))
    return point_at(path)


def plan_of(*thread_ids: str) -> Any:
    return services.plan_prune(
        "history", Bounds(thread_ids=frozenset(thread_ids)), now=datetime.now(UTC)
    )


def test_a_live_store_is_read_with_its_namespaces_and_its_waiting_thread(live_store: Path) -> None:
    rows = rows_of(live_store)

    readout = services.measure("history", now=datetime.now(UTC), top=9)

    assert readout.layout == "langgraph_sqlite"
    assert {thread.thread_id for thread in readout.largest_threads} == set(THREADS)
    assert readout.checkpoint_count == len(rows["checkpoints"])
    assert readout.write_count == len(rows["writes"])
    assert {row[1] for row in rows["checkpoints"]} > {""}


def test_a_live_thread_is_as_old_as_its_last_step(live_store: Path) -> None:
    day = timedelta(days=1)
    before = services.measure("history", now=datetime.now(UTC), top=9).largest_threads
    newest = max(thread.last_activity for thread in before if thread.last_activity)

    at_a_day = services.plan_prune("history", Bounds(older_than_days=1), now=newest + day)
    later = services.plan_prune(
        "history", Bounds(older_than_days=1), now=newest + day + timedelta(seconds=1)
    )

    assert timedelta(0) <= datetime.now(UTC) - newest < timedelta(minutes=5)
    assert len(at_a_day.prunable) == len(THREADS) - 1
    assert {thread.thread_id for thread in later.prunable} == set(THREADS)


def test_what_stays_of_a_live_store_is_what_the_vendor_reads_and_resumes(live_store: Path) -> None:
    before = read_back(live_store, THREADS)

    outcome = services.execute(plan_of(*GONE), trigger=Trigger.CODE)

    after = read_back(live_store, THREADS)
    assert outcome.removed.thread_count == len(GONE)
    assert {i: after[i] for i in KEPT} == {i: before[i] for i in KEPT}
    assert {i: after[i] for i in GONE} == dict.fromkeys(GONE, (None, []))


def test_a_prune_leaves_the_rows_that_the_vendors_removal_leaves(
    live_store: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs.db"
    with closing(sqlite3.connect(live_store)) as source, closing(sqlite3.connect(theirs)) as copy:
        source.backup(copy)
    delete_threads(theirs, GONE)

    services.execute(plan_of(*GONE), trigger=Trigger.CODE)

    assert rows_of(live_store) == rows_of(theirs)


def test_a_waiting_thread_that_was_kept_is_answered_after_the_prune(live_store: Path) -> None:
    services.execute(plan_of("nested", "plain"), trigger=Trigger.CODE)

    with closing(sqlite3.connect(live_store, check_same_thread=False)) as connection:
        run = graph(SqliteSaver(connection), asks=True)
        answered = run.invoke(Command(resume="no"), config("waiting"))

    assert answered["said"][-1] == "answer no"


def test_a_step_between_plan_and_prune_keeps_its_thread(live_store: Path) -> None:
    plan = plan_of("plain", "waiting")
    with closing(sqlite3.connect(live_store, check_same_thread=False)) as connection:
        graph(SqliteSaver(connection), asks=True).invoke(Command(resume="go"), config("waiting"))
    before = read_back(live_store, ["waiting"])

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [(s.thread_id, s.reason) for s in outcome.skipped] == [("waiting", SkipReason.ACTIVE)]
    assert outcome.removed.thread_count == 1
    assert read_back(live_store, ["waiting"]) == before


def test_a_thread_that_the_vendor_removed_meanwhile_is_reported_as_gone(live_store: Path) -> None:
    plan = plan_of("plain", "nested")
    delete_threads(live_store, ["plain"])

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [(s.thread_id, s.reason) for s in outcome.skipped] == [("plain", SkipReason.GONE)]
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 1)
    assert threads_in(live_store) == set(THREADS) - {"plain", "nested"}


def test_a_new_turn_of_a_pruned_thread_starts_anew(live_store: Path) -> None:
    services.execute(plan_of("plain"), trigger=Trigger.CODE)

    with closing(sqlite3.connect(live_store, check_same_thread=False)) as connection:
        said = graph(SqliteSaver(connection), asks=False).invoke(
            {"said": ["again"]}, config("plain")
        )

    assert said["said"][0] == "again"


def test_a_store_is_pruned_beside_an_open_asynchronous_saver(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = point_at(tmp_path / "async.db")
    opening = AsyncSqliteSaver.from_conn_string(str(path))

    async def talk(saver: AsyncSqliteSaver) -> None:
        for thread_id in "abc":
            await graph(saver, asks=False).ainvoke({"said": ["hello"]}, config(thread_id))

    async def listed(saver: AsyncSqliteSaver) -> dict[str, Any]:
        return {i: [item async for item in saver.alist(config(i))] for i in "abc"}

    with asyncio.Runner() as runner:
        saver = runner.run(opening.__aenter__())
        runner.run(talk(saver))
        before = runner.run(listed(saver))
        services.execute(plan_of("b"), trigger=Trigger.CODE)
        after = runner.run(listed(saver))
        runner.run(opening.__aexit__(None, None, None))

    assert len(before["b"]) > 0
    assert after == {"a": before["a"], "b": [], "c": before["c"]}
