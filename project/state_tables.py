"""The state tables of LangGraph's SQLite savers, for stores that are written without them."""

from __future__ import annotations


def state_tables(writes: str, *, task_path: bool) -> str:
    """Return the statements that create ``checkpoints`` and a table of writes of that name.

    ``task_path`` is a column of LangGraph's newer savers in Python alone.
    """
    path = "task_path TEXT NOT NULL DEFAULT '', " if task_path else ""
    return f"""
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE {writes} (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, {path}idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
