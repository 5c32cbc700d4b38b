"""Real graphs: what they do, keep and show is the same with the wrapper and without it."""

from __future__ import annotations

import asyncio
import operator
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt

from history_retention.guard import GuardedSaver
from history_retention.guard.in_use import in_use

from .agents import config_of

Saver = BaseCheckpointSaver[Any]
Wrap = Callable[[Saver], Saver]
MODES: list[Any] = ["values", "updates", "checkpoints", "tasks", "debug"]
FLEETING = {"id", "checkpoint_id", "created_at", "timestamp", "checkpoint_map", "ts", "thread_id"}
"""What differs between any two runs."""


AN_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Inner(TypedDict):
    total: Annotated[int, operator.add]


class Outer(TypedDict):
    total: Annotated[int, operator.add]
    words: Annotated[list[str], operator.add]


def sub() -> Any:
    graph = StateGraph(Inner)
    graph.add_node("double", lambda state: {"total": state["total"]})
    graph.add_edge(START, "double")
    graph.add_edge("double", END)
    return graph.compile(checkpointer=True)


def ask(state: Outer) -> dict[str, Any]:
    return {"words": [interrupt("and then?")]}


def spread(state: Outer) -> list[Send]:
    return [Send("shout", {"words": [word]}) for word in state["words"]]


def graph_over(saver: Saver) -> Any:
    """Compile a graph with a subgraph, a question and steps that run side by side."""
    graph = StateGraph(Outer)
    graph.add_node("sub", sub())
    graph.add_node("ask", ask)
    graph.add_node("shout", lambda state: {"words": [state["words"][0].upper()], "total": 1})
    graph.add_edge(START, "sub")
    graph.add_edge("sub", "ask")
    graph.add_conditional_edges("ask", spread, ["shout"])
    graph.add_edge("shout", END)
    return graph.compile(checkpointer=saver)


def lasting(value: Any) -> Any:
    """Return a value without what differs between any two runs."""
    if isinstance(value, Interrupt):
        return ["interrupt", value.value]
    if hasattr(value, "_asdict"):
        return lasting(value._asdict())
    if isinstance(value, dict):
        return {key: lasting(each) for key, each in value.items() if key not in FLEETING}
    if isinstance(value, list | tuple):
        return [lasting(each) for each in value]
    return type(value).__name__ if hasattr(value, "__dict__") else _without_ids(value)


def _without_ids(value: Any) -> Any:
    """Return a text without the ids in it, as "sub:6f0a…", the name of a namespace, has one."""
    return AN_ID.sub("", value) if isinstance(value, str) else value


def in_any_order(chunks: Iterable[Any]) -> list[Any]:
    """Return what steps that run side by side streamed, which they do as they end."""
    return sorted(map(lasting, chunks), key=repr)


START_WITH = {"total": 2, "words": ["a", "b"]}
T, OTHER = config_of("t"), config_of("other")


def invoked(graph: Any) -> list[Any]:
    first = graph.invoke(START_WITH, T)
    waiting = graph.get_state(T, subgraphs=True)
    second = graph.invoke(Command(resume="c"), T)
    graph.update_state(T, {"words": ["d"]}, as_node="ask")
    third = graph.invoke(None, T)
    history = list(graph.get_state_history(T))
    graph.batch([START_WITH, START_WITH], [OTHER, config_of("third")])
    fork = graph.invoke(None, history[-2].config)
    graph.checkpointer.delete_thread("other")
    gone = graph.get_state(OTHER)
    return [first, waiting, second, third, history, fork, gone, graph.get_state(T)]


def streamed(graph: Any) -> list[Any]:
    return [
        list(graph.stream(START_WITH, T, stream_mode=MODES, subgraphs=True)),
        in_any_order(graph.stream(Command(resume="c"), T, stream_mode=MODES, subgraphs=True)),
        list(graph.stream(START_WITH, OTHER, stream_mode="updates", durability="exit")),
    ]


async def ainvoked(graph: Any) -> list[Any]:
    first = await graph.ainvoke(START_WITH, T)
    waiting = await graph.aget_state(T, subgraphs=True)
    second = await graph.ainvoke(Command(resume="c"), T)
    await graph.aupdate_state(T, {"words": ["d"]}, as_node="ask")
    third = await graph.ainvoke(None, T)
    history = [each async for each in graph.aget_state_history(T)]
    await asyncio.gather(*(graph.ainvoke(START_WITH, config_of(f"t{n}")) for n in range(20)))
    fork = await graph.ainvoke(None, history[-2].config)
    await graph.checkpointer.adelete_thread("t0")
    gone = await graph.aget_state(config_of("t0"))
    return [first, waiting, second, third, history, fork, gone, await graph.aget_state(T)]


async def astreamed(graph: Any) -> list[Any]:
    async def listed(given: Any, config: Any, **options: Any) -> list[Any]:
        return [each async for each in graph.astream(given, config, **options)]

    events = [
        event["event"] async for event in graph.astream_events(START_WITH, OTHER, version="v2")
    ]
    return [
        await listed(START_WITH, T, stream_mode=MODES, subgraphs=True),
        in_any_order(await listed(Command(resume="c"), T, stream_mode=MODES, subgraphs=True)),
        events,
    ]


def as_it_is(saver: Saver) -> Saver:
    return saver


def ran(run: Callable[[Any], list[Any]], kind: str, wrap: Wrap) -> tuple[Any, set[str]]:
    """Run a graph over a saver of this kind; return what lasts, and what was open at the end."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        saver: Saver = SqliteSaver(connection) if kind == "sqlite" else InMemorySaver()
        graph = graph_over(wrap(saver))
        return lasting(run(graph)), set(in_use.thread_ids("history"))


async def aran(run: Callable[[Any], Any], kind: str, wrap: Wrap) -> tuple[Any, set[str]]:
    """Do the same in an event loop."""
    async with opened(kind) as saver:
        graph = graph_over(wrap(saver))
        return lasting(await run(graph)), set(in_use.thread_ids("history"))


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[Saver]:
    if kind == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@KINDS
@pytest.mark.parametrize(
    ("run", "threads"), [(invoked, {"t", "other", "third"}), (streamed, {"t", "other"})]
)
def test_a_guarded_graph_does_what_a_bare_one_does(
    kind: str, run: Callable[[Any], list[Any]], threads: set[str]
) -> None:
    bare, opened_without = ran(run, kind, as_it_is)
    guarded, opened_threads = ran(run, kind, GuardedSaver)

    assert guarded == bare
    assert (opened_threads, opened_without) == (threads, set())


@KINDS
@pytest.mark.parametrize(
    ("run", "threads"),
    [(ainvoked, {"t", *(f"t{n}" for n in range(20))}), (astreamed, {"t", "other"})],
)
def test_a_guarded_graph_in_an_event_loop_does_what_a_bare_one_does(
    kind: str, run: Callable[[Any], Any], threads: set[str]
) -> None:
    bare, opened_without = asyncio.run(aran(run, kind, as_it_is))
    guarded, opened_threads = asyncio.run(aran(run, kind, GuardedSaver))

    assert guarded == bare
    assert (opened_threads, opened_without) == (threads, set())


def test_the_graph_answers_and_waits_as_it_was_written_to() -> None:
    (first, _, second, *_), _ = ran(invoked, "memory", GuardedSaver)

    assert (first["total"], first["words"]) == (6, ["a", "b"])
    assert second["words"] == ["a", "b", "c", "A", "B", "C"]
