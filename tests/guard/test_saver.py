"""What the wrapper opens, and that it is otherwise the saver it wraps."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from history_retention.exceptions import UsageError
from history_retention.guard import GuardedSaver
from history_retention.guard import in_use as module
from history_retention.guard.in_use import in_use
from history_retention.guard.saver import _say_it_is_full

from .agents import config_of, counting

Saver = BaseCheckpointSaver[Any]

PUBLIC = [name for name in dir(BaseCheckpointSaver) if not name.startswith("_")]


def config(thread_id: object) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def saved() -> Checkpoint:
    return empty_checkpoint()


OPENING: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
    "get": ([config("t")], {}),
    "get_tuple": ([config("t")], {}),
    "put": ([config("t"), saved(), {}, {}], {}),
    "put_writes": (
        [{"configurable": {**config("t")["configurable"], "checkpoint_id": "1"}}, [("a", 1)], "x"],
        {},
    ),
    "get_delta_channel_history": ([], {"config": config("t"), "channels": ["a"]}),
}
NOT_OPENING: dict[str, tuple[Sequence[Any], dict[str, Any]]] = {
    "list": ([config("t")], {}),
    "delete_thread": (["t"], {}),
    "get_next_version": ([None, None], {}),
}


@pytest.fixture
def sqlite() -> Iterator[SqliteSaver]:
    """A saver over a file of its own in memory."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


def called(saver: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a method, in a loop when it is one of those whose name starts with an a."""

    async def call() -> Any:
        result = getattr(saver, name)(*args, **kwargs)
        if hasattr(result, "__aiter__"):
            return [each async for each in result]
        return await result

    if name.removeprefix("a") in OPENING | NOT_OPENING and name not in OPENING | NOT_OPENING:
        return asyncio.run(call())
    result = getattr(saver, name)(*args, **kwargs)
    return list(result) if name == "list" else result


@pytest.mark.parametrize("prefix", ["", "a"])
@pytest.mark.parametrize("name", OPENING)
def test_reading_a_state_to_go_on_and_writing_one_open_the_thread(prefix: str, name: str) -> None:
    saver = GuardedSaver(InMemorySaver())

    called(saver, prefix + name, *OPENING[name])

    assert in_use.thread_ids("history") == ["t"]


@pytest.mark.parametrize("name", [*NOT_OPENING, "alist", "adelete_thread"])
def test_listing_and_deleting_open_nothing(name: str) -> None:
    saver = GuardedSaver(InMemorySaver())

    called(saver, name, *NOT_OPENING[name if name in NOT_OPENING else name[1:]])

    assert in_use.thread_ids("history") == []


@pytest.mark.parametrize("keywords", [False, True])
def test_copying_a_thread_opens_both(keywords: bool) -> None:
    class Copying(InMemorySaver):
        copied: tuple[str, str] | None = None

        def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
            self.copied = (source_thread_id, target_thread_id)

    saver = Copying()
    guarded = GuardedSaver(saver)

    if keywords:
        guarded.copy_thread(source_thread_id="from", target_thread_id="to")
    else:
        guarded.copy_thread("from", "to")

    assert saver.copied == ("from", "to")
    assert sorted(in_use.thread_ids("history")) == ["from", "to"]


def test_the_thread_is_open_before_the_saver_reads_it() -> None:
    class Looking(InMemorySaver):
        open_then: list[str] | None = None

        def get_tuple(self, config: Any) -> Any:
            self.open_then = in_use.thread_ids("history")
            return super().get_tuple(config)

    saver = Looking()
    guarded = GuardedSaver(saver)

    guarded.get_tuple(config("t"))

    assert saver.open_then == ["t"]


@pytest.mark.parametrize(
    ("thread_id", "name"), [("", ""), ("x" * 300, "x" * 300), (7, "7"), ("\0\udcff", "\0\udcff")]
)
def test_any_thread_id_is_opened_by_the_text_that_savers_make_of_it(
    thread_id: object, name: str
) -> None:
    guarded = GuardedSaver(InMemorySaver())

    guarded.get_tuple(config(thread_id))

    assert in_use.thread_ids("history") == [name]


@pytest.mark.parametrize("wrong", [None, {}, {"configurable": None}, {"configurable": {}}, 7])
def test_a_config_without_a_thread_meets_the_savers_own_error(wrong: Any) -> None:
    def met(saver: Saver) -> type[BaseException]:
        with pytest.raises((KeyError, TypeError)) as error:
            saver.get_tuple(wrong)
        return error.type

    assert met(GuardedSaver(InMemorySaver())) is met(InMemorySaver())


@pytest.mark.parametrize("saver_type", [InMemorySaver, SqliteSaver, AsyncSqliteSaver])
def test_it_replaces_just_the_methods_that_the_saver_replaces(saver_type: type[Saver]) -> None:
    def replaced(kind: type[Saver]) -> set[str]:
        return {
            name
            for name in PUBLIC
            if callable(getattr(kind, name))
            and getattr(kind, name) is not getattr(BaseCheckpointSaver, name)
        }

    async def wrapped() -> Saver:
        options: Any = sqlite3.connect(":memory:") if saver_type is SqliteSaver else None
        if saver_type is AsyncSqliteSaver:
            async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
                return GuardedSaver(saver)
        if saver_type is SqliteSaver:
            with closing(options):
                return GuardedSaver(SqliteSaver(options))
        return GuardedSaver(saver_type())

    kind = type(asyncio.run(wrapped()))

    assert replaced(kind) == replaced(saver_type) | {"with_allowlist"}
    for name in replaced(saver_type):
        theirs = getattr(saver_type, name)
        assert inspect.iscoroutinefunction(getattr(kind, name)) is inspect.iscoroutinefunction(
            theirs
        )
        assert inspect.signature(getattr(kind, name)) == inspect.signature(theirs)


def test_what_a_saver_has_beyond_all_savers_is_reached_through_the_wrapper(
    sqlite: SqliteSaver,
) -> None:
    guarded: Any = GuardedSaver(sqlite)

    assert isinstance(guarded, BaseCheckpointSaver)
    assert isinstance(guarded, GuardedSaver)
    assert (guarded.conn, guarded.lock) == (sqlite.conn, sqlite.lock)
    assert guarded.setup() is None
    assert guarded.config_specs == sqlite.config_specs
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = guarded.nothing


def test_the_serializer_is_the_savers_own(sqlite: SqliteSaver) -> None:
    guarded = GuardedSaver(sqlite)
    mine = JsonPlusSerializer(pickle_fallback=True)

    assert guarded.serde is sqlite.serde
    guarded.serde = mine

    assert sqlite.serde is mine


def test_versions_are_numbered_as_the_saver_numbers_them(sqlite: SqliteSaver) -> None:
    guarded = GuardedSaver(sqlite)

    assert (
        guarded.get_next_version(None, None).partition(".")[0] == "00000000000000000000000000000001"
    )
    with pytest.raises(NotImplementedError):
        guarded.prune(["t"])


def test_a_clone_with_an_allowlist_is_guarded_and_shares_what_is_open(
    sqlite: SqliteSaver,
) -> None:
    sqlite.serde = JsonPlusSerializer(allowed_msgpack_modules=[("a", "B")])
    guarded = GuardedSaver(sqlite)

    clone = guarded.with_allowlist([("c", "D")])
    clone.get_tuple(config("t"))

    assert isinstance(clone, GuardedSaver)
    assert clone is not guarded
    assert clone.serde is not guarded.serde
    assert guarded.serde is sqlite.serde
    del clone
    gc.collect()
    assert in_use.thread_ids("history") == ["t"]


def test_a_method_that_returns_the_saver_itself_returns_the_wrapper() -> None:
    guarded: Any = GuardedSaver(InMemorySaver())

    with guarded as entered:
        assert entered is guarded
        entered.get_tuple(config("t"))
        assert in_use.thread_ids("history") == ["t"]

    assert in_use.thread_ids("history") == []


def test_an_asynchronous_saver_that_is_left_lets_its_threads_go() -> None:
    saver: Any = GuardedSaver(InMemorySaver())

    async def left() -> list[str]:
        async with saver as guarded:
            await guarded.aget_tuple(config("t"))
            return in_use.thread_ids("history")

    assert asyncio.run(left()) == ["t"]
    assert in_use.thread_ids("history") == []


def test_a_saver_that_cannot_be_entered_makes_a_wrapper_that_cannot(sqlite: SqliteSaver) -> None:
    guarded = GuardedSaver(sqlite)

    assert not hasattr(type(guarded), "__enter__")


def test_a_wrapper_that_is_copied_is_guarded_as_well(sqlite: SqliteSaver) -> None:
    guarded = GuardedSaver(sqlite)

    copied = copy.copy(guarded)
    del guarded
    gc.collect()
    copied.get_tuple(config("t"))

    assert in_use.thread_ids("history") == ["t"]


def test_a_wrapper_may_be_wrapped_again() -> None:
    guarded = GuardedSaver(GuardedSaver(InMemorySaver()))

    graph = counting().compile(checkpointer=guarded)

    assert graph.invoke({}, config_of("t")) == {"steps": 1}
    assert in_use.thread_ids("history") == ["t"]


@pytest.mark.parametrize("end", ["release", "release_all", "collect"])
def test_threads_are_let_go_when_their_agents_end(end: str) -> None:
    guarded = GuardedSaver(InMemorySaver())
    guarded.get_tuple(config("t"))
    guarded.get_tuple(config(7))

    if end == "release":
        guarded.release("t")
        guarded.release("never opened")
        assert in_use.thread_ids("history") == ["7"]
        guarded.release(7)
    elif end == "release_all":
        guarded.release_all()
    else:
        del guarded
        gc.collect()

    assert in_use.thread_ids("history") == []


def test_a_thread_that_is_used_again_after_it_was_let_go_is_open_again() -> None:
    guarded = GuardedSaver(InMemorySaver())
    guarded.get_tuple(config("t"))
    guarded.release("t")

    guarded.get_tuple(config("t"))

    assert in_use.thread_ids("history") == ["t"]


def test_two_savers_that_have_the_same_thread_open_must_both_let_it_go() -> None:
    one, other = GuardedSaver(InMemorySaver()), GuardedSaver(InMemorySaver())
    one.get_tuple(config("t"))
    other.get_tuple(config("t"))

    one.release_all()
    assert in_use.thread_ids("history") == ["t"]
    other.release_all()

    assert in_use.thread_ids("history") == []


def test_what_is_no_saver_is_refused_with_what_to_do(sqlite: SqliteSaver) -> None:
    wrong: Any = SqliteSaver.from_conn_string(":memory:")

    with pytest.raises(
        TypeError, match=r"not _GeneratorContextManager; a saver's from_conn_string"
    ):
        GuardedSaver(wrong)


def test_a_store_that_is_not_in_the_settings_is_refused() -> None:
    with pytest.raises(UsageError, match="'elsewhere' is no store"):
        GuardedSaver(InMemorySaver(), using="elsewhere")


def test_the_store_that_is_named_is_the_one_whose_threads_are_kept(
    retention: Callable[..., None], settings: Any
) -> None:
    retention(STORES={"history": {}, "default": {}})
    guarded = GuardedSaver(InMemorySaver(), using="default")

    guarded.get_tuple(config("t"))

    assert in_use.thread_ids("default") == ["t"]
    assert in_use.thread_ids("history") == []


def test_a_saver_says_once_that_it_has_more_open_than_memory_is_given(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_THREADS", 3)
    _say_it_is_full.cache_clear()
    guarded = GuardedSaver(InMemorySaver())

    for number in (1, 2, 3, 1, 4, 5):
        guarded.get_tuple(config(number))

    assert in_use.thread_ids("history") == ["1", "4", "5"]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "those that were used longest ago are no longer leased" in record.getMessage()


def test_with_idle_a_thread_that_is_left_alone_for_that_long_is_let_go() -> None:
    kept = GuardedSaver(InMemorySaver())
    guarded = GuardedSaver(InMemorySaver(), idle=timedelta(0))

    kept.get_tuple(config("kept"))
    guarded.get_tuple(config("t"))

    assert in_use.thread_ids("history") == ["kept"]
