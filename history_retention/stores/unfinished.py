"""Which threads of a SQLite store still wait for a person's answer."""

from __future__ import annotations

from collections.abc import Sequence

from .sqlite import SQLiteFile, encoded


def interrupted(file: SQLiteFile, writes_table: str, thread_ids: Sequence[str]) -> set[str]:
    """Return those of the threads whose newest checkpoint is interrupted and not resumed.

    The savers read the newest checkpoint by its id as text, and so does this. An interrupt and
    the answer to it are writes of one task, on channels of these names in every version.
    """
    marks = ", ".join(["CAST(%s AS TEXT)"] * len(thread_ids))
    return {
        thread_id
        for (thread_id,) in file.rows(
            f"SELECT DISTINCT w.thread_id FROM {writes_table} AS w"
            f" WHERE w.thread_id IN ({marks}) AND w.checkpoint_ns = ''"
            " AND w.checkpoint_id = (SELECT MAX(c.checkpoint_id) FROM checkpoints AS c"
            " WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = '')"
            " AND w.channel = '__interrupt__'"
            f" AND NOT EXISTS (SELECT 1 FROM {writes_table} AS r"
            " WHERE r.thread_id = w.thread_id AND r.checkpoint_ns = w.checkpoint_ns"
            " AND r.checkpoint_id = w.checkpoint_id AND r.task_id = w.task_id"
            " AND r.channel = '__resume__')",
            [encoded(thread_id) for thread_id in thread_ids],
        )
    }
