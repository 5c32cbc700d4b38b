"""Seeing which statements a store runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect what is run on the store's own connections."""
    seen: list[str] = []

    def listen(connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
        if connection.alias == "history":
            connection.connection.set_trace_callback(seen.append)

    connection_created.connect(listen)
    try:
        yield seen
    finally:
        connection_created.disconnect(listen)
