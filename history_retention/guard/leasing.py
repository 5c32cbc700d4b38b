"""A lease by hand, for agents that LangGraph's savers know nothing of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..conf import default_store, store_options
from .heartbeat import heartbeat
from .in_use import in_use


@contextmanager
def lease(thread_id: object, using: str | None = None) -> Iterator[None]:
    """Keep a thread from every sweep for as long as the block runs; blocks may be nested.

    ``using`` is the store's alias, by default the first one; UsageError when there is none. Waits
    for no database, so it may be used in an event loop.
    """
    store, name = store_named(using), str(thread_id)
    in_use.begin(store, name)
    try:
        heartbeat.ensure()
        yield
    finally:
        in_use.end(store, name)


def store_named(using: str | None) -> str:
    """Return the alias of the store that is meant; UsageError when it is none."""
    return store_options(default_store() if using is None else using).alias
