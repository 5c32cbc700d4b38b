"""Reading a store back with LangGraph's own savers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

Reading = tuple[CheckpointTuple | None, list[CheckpointTuple]]


class Serde(JsonPlusSerializer):
    """LangGraph's own, but what needs a key or a pickle is compared as stored."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] == "pickle" or "+" in data[0]:
            return data
        return super().loads_typed(data)


def read_back(path: Path, thread_ids: Iterable[str]) -> dict[str, Reading]:
    """Return of each thread its head and the list of all its checkpoints, newest first."""
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection, serde=Serde())
        return read_by(saver, thread_ids)


def read_by(saver: BaseCheckpointSaver[Any], thread_ids: Iterable[str]) -> dict[str, Reading]:
    """Return of each thread its head and the list of all its checkpoints, newest first."""
    return {
        thread_id: (
            saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}),
            list(saver.list({"configurable": {"thread_id": thread_id}})),
        )
        for thread_id in thread_ids
    }


def delete_threads(path: Path, thread_ids: Iterable[str]) -> None:
    """Remove threads as LangGraph itself does."""
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        for thread_id in thread_ids:
            saver.delete_thread(thread_id)
