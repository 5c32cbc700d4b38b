"""LangGraph's own conformance tests, on savers with and without the wrapper."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from history_retention.guard import GuardedSaver

Saver = BaseCheckpointSaver[Any]
Wrap = Callable[[Saver], Saver]
Factory = Callable[[Wrap], AsyncGenerator[Saver, None]]


class Synchronous(BaseCheckpointSaver[Any]):
    """Another saver's synchronous methods behind the names that the conformance tests call."""

    def __init__(self, saver: Saver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    async def aget_tuple(self, config: Any) -> Any:
        return self._saver.get_tuple(config)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self._saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._saver.put_writes(config, writes, task_id, task_path)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for each in self._saver.list(config, **options):
            yield each

    async def adelete_thread(self, thread_id: str) -> None:
        self._saver.delete_thread(thread_id)


async def in_memory(wrap: Wrap) -> AsyncGenerator[Saver, None]:
    yield wrap(InMemorySaver())


async def in_memory_synchronous(wrap: Wrap) -> AsyncGenerator[Saver, None]:
    yield Synchronous(wrap(InMemorySaver()))


async def sqlite_synchronous(wrap: Wrap) -> AsyncGenerator[Saver, None]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield Synchronous(wrap(SqliteSaver(connection)))


async def sqlite_asynchronous(wrap: Wrap) -> AsyncGenerator[Saver, None]:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        yield wrap(saver)


def as_it_is(saver: Saver) -> Saver:
    return saver


def report(factory: Factory, wrap: Wrap) -> dict[str, tuple[bool, bool | None, int, list[str]]]:
    """Return of each capability whether it was found and passed, with how many tests."""
    registered = checkpointer_test(name=f"{factory.__name__} {wrap.__name__}")(
        lambda: factory(wrap)
    )
    results = asyncio.run(validate(registered)).results
    return {
        name: (result.detected, result.passed, result.tests_passed, result.failures or [])
        for name, result in results.items()
    }


@pytest.mark.parametrize(
    "factory", [in_memory, in_memory_synchronous, sqlite_synchronous, sqlite_asynchronous]
)
def test_a_guarded_saver_passes_what_the_saver_passes(factory: Factory) -> None:
    guarded, bare = report(factory, GuardedSaver), report(factory, as_it_is)

    assert guarded == bare
    for name in ("put", "put_writes", "get_tuple", "list", "delete_thread"):
        detected, passed, count, failures = guarded[name]
        assert (detected, passed, failures) == (True, True, [])
        assert count >= 4
    assert sum(count for _, _, count, _ in guarded.values()) > 50
