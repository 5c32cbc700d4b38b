"""Which threads still wait for somebody, by the vendor's own stores and by rows of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from history_retention import services
from history_retention.facts import Awaiting, KeepReason, KeptThread
from history_retention.policy import Bounds

from ..commands import run
from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, threads_in

pytestmark = pytest.mark.django_db(databases=["default", "history"])


def awaiting() -> dict[str, Awaiting]:
    """Tell what the threads wait for that wait for anything, by a plan that would take all."""
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    return {thread.thread_id: thread.awaiting for thread in plan.threads if thread.awaiting}


@pytest.mark.parametrize("name", ["lg-sqlite.db", "lg-sqlite-with-conversations.db"])
def test_in_the_vendors_store_the_two_that_were_never_answered_are_awaiting(
    fixture_store: Callable[[str], Path], name: str
) -> None:
    fixture_store(f"langgraph/{name}")

    assert awaiting() == {
        "interrupt-pending": Awaiting.INTERRUPT,
        "subgraph-pending": Awaiting.INTERRUPT,
    }


class Asked(TypedDict, total=False):
    """The state of a graph that asks twice."""

    first: str
    second: str


def graph_that_asks_twice(connection: sqlite3.Connection) -> Any:
    graph = StateGraph(Asked)
    graph.add_node("one", lambda _state: {"first": interrupt("first?")})
    graph.add_node("two", lambda _state: {"second": interrupt("second?")})
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    return graph.compile(checkpointer=SqliteSaver(connection))


def test_a_graph_waits_until_its_last_question_is_answered(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = point_at(tmp_path / "store.db")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        graph = graph_that_asks_twice(connection)
        for answers in range(3):
            config = {"configurable": {"thread_id": f"{answers} answers"}}
            graph.invoke({}, config)
            for number in range(answers):
                graph.invoke(Command(resume=f"answer {number}"), config)

    assert awaiting() == {"0 answers": Awaiting.INTERRUPT, "1 answers": Awaiting.INTERRUPT}


def test_an_unfinished_thread_is_kept_from_a_prune_that_skips_those(
    fixture_store: Callable[[str], Path],
) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    bounds = Bounds(older_than_days=30, skip_unfinished=True)

    plan = services.plan_prune("history", bounds, now=NOW)
    services.execute(plan, trigger=services.Trigger.CODE)

    assert set(plan.kept) == {
        KeptThread(thread_id=thread_id, reason=KeepReason.UNFINISHED)
        for thread_id in ("interrupt-pending", "subgraph-pending")
    }
    assert len(plan.prunable) == 7
    assert {"interrupt-pending", "subgraph-pending"} <= threads_in(path)


def test_an_unfinished_thread_that_no_one_can_resume_is_reclaimed_along_with_the_prune(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="named", writes=0), ThreadRows(thread_id="lost", writes=0)],
        [ConversationRow(thread_id="named")],
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx,"
            " channel) SELECT thread_id, checkpoint_ns, checkpoint_id, 't', -3, '__interrupt__'"
            " FROM checkpoints"
        )

    ran = run("history_prune", "--all", "--skip-unfinished", "--no-input", "--format=json")

    document = ran.document
    assert document["bounds"]["skip_unfinished"] is True
    assert document["kept"] == [{"thread_id": "named", "reason": "unfinished"}]
    assert threads_in(path) == {"named"}


def test_a_plan_says_who_still_waits(fixture_store: Callable[[str], Path]) -> None:
    fixture_store("langgraph/lg-sqlite.db")
    prune = ("history_prune", "--older-than=90", "--as-of=2026-11-30T12:00Z", "--dry-run")

    document = run(*prune, "--format=json").document
    text = run(*prune).out

    awaited = {thread["thread_id"]: thread.get("awaiting") for thread in document["prunable"]}
    assert len(awaited) == 5
    assert {name: what for name, what in awaited.items() if what} == {
        "interrupt-pending": "interrupt",
        "subgraph-pending": "interrupt",
    }
    assert [line.split()[0] for line in text.splitlines() if "awaiting an answer" in line] == [
        name for name, what in awaited.items() if what
    ]
