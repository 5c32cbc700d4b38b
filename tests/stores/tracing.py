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


@contextmanager
def longest_statement() -> Iterator[list[int]]:
    """Count what SQLite does for the longest statement, in hundreds of its machine's steps."""
    longest = [0]
    steps = 0

    def begun(_sql: str) -> None:
        nonlocal steps
        steps = 0

    def stepped() -> None:
        nonlocal steps
        steps += 1
        longest[0] = max(longest[0], steps)

    def listen(connection: BaseDatabaseWrapper, **_kwargs: Any) -> None:
        if connection.alias == "history":
            connection.connection.set_trace_callback(begun)
            connection.connection.set_progress_handler(stepped, 100)

    connection_created.connect(listen)
    try:
        yield longest
    finally:
        connection_created.disconnect(listen)
