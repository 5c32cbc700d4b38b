"""A wrapper for LangGraph's savers that leases the threads they work on."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache, wraps
from typing import Any, cast, final

from langgraph.checkpoint.base import BaseCheckpointSaver

from .heartbeat import heartbeat
from .in_use import MOST_THREADS, in_use
from .leasing import store_named

logger = logging.getLogger("history_retention.guard")

CONFIGURED = frozenset({"get", "get_tuple", "put", "put_writes", "get_delta_channel_history"})
"""Methods that read a state to go on from it or add to it: their config names the thread."""

NAMED = frozenset({"copy_thread"})
"""Methods whose arguments are thread ids."""

ENDS = frozenset({"__exit__", "__aexit__"})
"""Methods after which the saver is closed."""

CONTEXT = ENDS | {"__enter__", "__aenter__"}
"""What only some savers have."""


@final
class GuardedSaver(BaseCheckpointSaver[Any]):
    """Any saver of LangGraph, whose threads no sweep removes while they are open.

    ``GuardedSaver(SqliteSaver(connection))`` goes wherever the saver did. A thread counts as open
    from the moment a graph first reads or writes its state until the wrapper is left, garbage
    collected or its process ends, however long the agent is idle; ``release`` ends that sooner,
    and ``idle`` does for every thread that was not used for so long, as a server needs it that
    never ends.
    Whatever else is asked of it, the saver itself does. It waits for no database of its own.
    """

    def __init__(
        self,
        saver: BaseCheckpointSaver[Any],
        *,
        using: str | None = None,
        idle: timedelta | None = None,
    ) -> None:
        """Wrap a saver of the store of that alias, by default the first of the settings.

        Raises TypeError for what is no saver, UsageError for what is no store.
        """
        if not isinstance(saver, BaseCheckpointSaver):
            raise TypeError(
                f"GuardedSaver wraps a saver of LangGraph, not {type(saver).__name__}; a saver's "
                "from_conn_string() is entered with `with` or `async with` first."
            )
        self._guarded = saver
        self._open_threads = in_use.opened(store_named(using), idle)
        self.__class__ = _class_for(saver)

    def release(self, thread_id: object) -> None:
        """Say that the agent of the thread has ended; using the thread again opens it again."""
        self._open_threads.close(str(thread_id))

    def release_all(self) -> None:
        """Say that all agents of this saver have ended."""
        self._open_threads.close_all()

    def __getattr__(self, name: str) -> Any:
        """Return what the saver has beyond the methods of every saver."""
        if name in {"_guarded", "_open_threads"} or name.startswith("__"):
            raise AttributeError(name)  # of a copy in the making, or a protocol
        return getattr(self._guarded, name)

    def _before(self, name: str, thread_ids: Sequence[object]) -> None:
        """Lease the threads that a method works on before it does, or let all go at the end."""
        if name in ENDS:
            self.release_all()
        for thread_id in thread_ids:
            heartbeat.ensure()
            if not self._open_threads.touch(str(thread_id)):
                _say_it_is_full()

    def _wrapped(self, result: Any) -> Any:
        """Return a guarded saver for a saver that a method of it returned."""
        if result is self._guarded:
            return self
        if not isinstance(result, BaseCheckpointSaver):
            return result
        clone = object.__new__(GuardedSaver)
        clone._guarded = result
        clone._open_threads = self._open_threads
        clone.__class__ = _class_for(result)
        return clone


@cache
def _say_it_is_full() -> None:
    logger.warning(
        "A saver has more than %s threads open: those that were used longest ago are no longer "
        "leased. Pass idle= to GuardedSaver, or release() threads whose agents have ended.",
        f"{MOST_THREADS:,}",
    )


def _class_for(saver: object) -> type[GuardedSaver]:
    saver_type: Any = type(saver)
    return _class_over(saver_type)


@cache
def _class_over(saver_type: Any) -> type[GuardedSaver]:
    """Return a class that has just those methods of a saver that this type of saver has.

    What a saver can do is told by which methods of the base class its own class replaces, so the
    wrapper must replace the same ones.
    """
    names = [name for name in dir(BaseCheckpointSaver) if not name.startswith("_")]
    members: dict[str, Any] = {}
    for name in [*names, *sorted(CONTEXT)]:
        base, own = getattr(BaseCheckpointSaver, name, None), getattr(saver_type, name, None)
        if not callable(own):
            if base is not None:
                members[name] = _attribute(name)
        elif own is not base or name == "with_allowlist":
            members[name] = _method(name, own)
    return cast("type[GuardedSaver]", type(GuardedSaver.__name__, (GuardedSaver,), members))


def _attribute(name: str) -> property:
    """Return an attribute that is the saver's."""

    def read(self: GuardedSaver) -> Any:
        return getattr(self._guarded, name)

    def write(self: GuardedSaver, value: Any) -> None:
        setattr(self._guarded, name, value)

    return property(read, write)


def _method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that opens the threads it works on, if any, and calls the saver's."""
    threads_of = _finding_threads(name)
    if inspect.iscoroutinefunction(own):

        @wraps(own)
        async def call_later(self: GuardedSaver, *args: Any, **kwargs: Any) -> Any:
            self._before(name, threads_of(args, kwargs))
            return self._wrapped(await getattr(self._guarded, name)(*args, **kwargs))

        return call_later

    @wraps(own)
    def call(self: GuardedSaver, *args: Any, **kwargs: Any) -> Any:
        self._before(name, threads_of(args, kwargs))
        return self._wrapped(getattr(self._guarded, name)(*args, **kwargs))

    return call


Arguments = tuple[Any, ...]
Keywords = Mapping[str, Any]


def _finding_threads(name: str) -> Callable[[Arguments, Keywords], Sequence[object]]:
    """Return what finds the threads that somebody goes on with among a method's arguments.

    With what is deleted, pruned or merely listed nobody goes on.
    """
    plain = name if name in CONFIGURED | NAMED else name.removeprefix("a")
    if plain in CONFIGURED:
        return _in_config
    return _in_arguments if plain in NAMED else lambda _args, _kwargs: ()


def _in_config(args: Arguments, kwargs: Keywords) -> Sequence[object]:
    """Return the thread of a config; one that has none the saver itself will refuse."""
    config = args[0] if args else kwargs.get("config")
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if isinstance(configurable, Mapping) and "thread_id" in configurable:
        return [configurable["thread_id"]]
    return ()


def _in_arguments(args: Arguments, kwargs: Keywords) -> Sequence[object]:
    return [*args, *kwargs.values()]
