"""What the newest checkpoints of threads in PostgreSQL say: their own time, and what they await."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ..facts import Awaiting
from .instants import instant_of_id, instant_of_text, later_of
from .postgres import PostgresDatabase
from .postgres_rows import StateTable, odd_rows

OWN_TIME = "checkpoint->>'ts'"


def odd_instants(
    database: PostgresDatabase,
    checkpoints: StateTable,
    writes: StateTable,
    thread_ids: Sequence[str],
) -> dict[str, list[datetime | None]]:
    """Date the rows of the threads whose ids are no version-6 UUIDs in lower case.

    A write bears the id of its checkpoint, so it is as old as that checkpoint says it is.
    """
    instants: dict[tuple[str, str, object], datetime | None] = {}
    for thread_id, namespace, checkpoint_id, own in odd_rows(
        database, checkpoints, OWN_TIME, thread_ids
    ):
        told = later_of(instant_of_id(str(checkpoint_id)), instant_of_text(own))
        instants[thread_id, namespace, checkpoint_id] = told
    for thread_id, namespace, checkpoint_id, _ in odd_rows(database, writes, "NULL", thread_ids):
        key = thread_id, namespace, checkpoint_id
        instants.setdefault(key, instant_of_id(str(checkpoint_id)))
    found: dict[str, list[datetime | None]] = {thread_id: [] for thread_id in thread_ids}
    for (thread_id, _, _), instant in instants.items():
        found[thread_id].append(instant)
    return found


def own_instants(
    database: PostgresDatabase, checkpoints: StateTable, newest_ids: Mapping[str, str]
) -> dict[str, datetime]:
    """Return when the threads' newest checkpoints say they were made, the latest namespace's."""
    found: dict[str, datetime] = {}
    for thread_id, own in database.rows(
        f"SELECT c.thread_id, {OWN_TIME} FROM {database.name(checkpoints.name)} AS c"
        " JOIN unnest(%s::text[], %s::text[]) AS n (thread_id, newest)"
        f" ON n.thread_id = c.thread_id AND n.newest = {checkpoints.checkpoint_id}"
        " WHERE c.thread_id = ANY(%s)",
        [list(newest_ids), list(newest_ids.values()), list(newest_ids)],
    ):
        instant = instant_of_text(own)
        if instant is not None:
            found[thread_id] = max(instant, found.get(thread_id, instant))
    return found


def awaited(
    database: PostgresDatabase,
    checkpoints: StateTable,
    writes: StateTable,
    thread_ids: Sequence[str],
) -> dict[str, Awaiting]:
    """Tell what those of the threads wait for that are unfinished.

    The head is the newest checkpoint as the savers themselves find it, by its id as text.
    """
    head = (
        f"SELECT DISTINCT ON (thread_id) thread_id, {checkpoints.checkpoint_id} AS id,"
        " checkpoint->'channel_values' AS channels"
        f" FROM {database.name(checkpoints.name)}"
        " WHERE thread_id = ANY(%s) AND checkpoint_ns = ''"
        f" ORDER BY thread_id, {checkpoints.checkpoint_id} DESC"
    )
    names = database.name(writes.name)
    rows = database.rows(
        f"SELECT h.thread_id, EXISTS (SELECT 1 FROM {names} AS w"
        " WHERE w.thread_id = h.thread_id AND w.checkpoint_ns = '' AND w.checkpoint_id = h.id"
        " AND w.channel = '__interrupt__' AND NOT EXISTS"
        f" (SELECT 1 FROM {names} AS r WHERE r.thread_id = w.thread_id"
        " AND r.checkpoint_ns = w.checkpoint_ns AND r.checkpoint_id = w.checkpoint_id"
        " AND r.task_id = w.task_id AND r.channel = '__resume__')),"
        " EXISTS (SELECT 1 FROM jsonb_each(CASE jsonb_typeof(h.channels)"
        " WHEN 'object' THEN h.channels ELSE '{}' END) AS v"
        " WHERE starts_with(v.key, 'branch:to:') OR v.key = '__start__'"
        " OR (v.key = '__pregel_tasks' AND v.value NOT IN ('[]', 'null')))"
        f" FROM ({head}) AS h",
        [list(thread_ids)],
    )
    return {
        thread_id: Awaiting.INTERRUPT if is_interrupted else Awaiting.TASKS
        for thread_id, is_interrupted, has_tasks in rows
        if is_interrupted or has_tasks
    }
