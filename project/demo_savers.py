"""Two ways to write LangGraph's state tables: its own saver, and SQL where that is missing."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any, Protocol

from .state_tables import state_tables

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


class Saver(Protocol):
    """Where checkpoints and writes go."""

    def put(self, thread_id: str, namespace: str, parent: str, state: dict[str, Any]) -> None:
        """Write one checkpoint."""

    def put_write(self, thread_id: str, namespace: str, checkpoint_id: str, value: object) -> None:
        """Write one pending write of the ``messages`` channel."""


class LangGraphSaver:
    """LangGraph's own saver over the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        self._saver = SqliteSaver(connection)
        self._saver.setup()

    def put(self, thread_id: str, namespace: str, parent: str, state: dict[str, Any]) -> None:
        self._saver.put(
            _config(thread_id, namespace, parent),
            state,  # type: ignore[arg-type]  # a TypedDict where the saver asks for one
            {"source": "loop", "step": len(state["channel_values"]["messages"]), "parents": {}},
            state["channel_versions"],
        )

    def put_write(self, thread_id: str, namespace: str, checkpoint_id: str, value: object) -> None:
        self._saver.put_writes(
            _config(thread_id, namespace, checkpoint_id), [("messages", value)], "model"
        )


class PlainSaver:
    """The same tables without LangGraph; payloads are JSON, as its older versions wrote them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(state_tables("writes", task_path=True))

    def put(self, thread_id: str, namespace: str, parent: str, state: dict[str, Any]) -> None:
        step = len(state["channel_values"]["messages"])
        metadata = json.dumps({"source": "loop", "step": step, "parents": {}}).encode()
        self._connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, 'json', ?, ?)",
            (thread_id, namespace, state["id"], parent or None, _packed(state), metadata),
        )

    def put_write(self, thread_id: str, namespace: str, checkpoint_id: str, value: object) -> None:
        self._connection.execute(
            "INSERT INTO writes VALUES (?, ?, ?, 'model', '', 0, 'messages', 'json', ?)",
            (thread_id, namespace, checkpoint_id, _packed(value)),
        )


def open_saver(connection: sqlite3.Connection) -> Saver:
    """Create the state tables and return what writes them."""
    try:
        return LangGraphSaver(connection)
    except ImportError:
        return PlainSaver(connection)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    configurable = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def _packed(value: object) -> bytes:
    return json.dumps(value).encode()
