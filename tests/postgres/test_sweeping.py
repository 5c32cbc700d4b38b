"""What happens to a thread between its plan and its turn, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest

from history_retention import services
from history_retention.exceptions import StoreBusy
from history_retention.facts import Ending, SkipReason
from history_retention.models import Sweep
from history_retention.outcomes import SkippedThread
from history_retention.services import Trigger
from history_retention.stores import open_store
from history_retention.stores.langgraph_postgres import LangGraphPostgresStore
from history_retention.stores.postgres import PostgresDatabase

from ..changes import (
    NAMES,
    Agent,
    Change,
    every_change,
    new_checkpoint,
    new_write,
    planned,
    require_that_only_the_other_goes,
)
from ..store_files import NOW, ThreadRows
from .stores import NAMING_TABLES, TABLES, add_threads, rows_of, threads_in

pytestmark = pytest.mark.django_db(databases=["default", "history"])


@pytest.fixture
def store(database: str) -> str:
    """Two resumable threads, each idle for forty days, with three rows and a blob."""
    run_sql(
        database,
        NAMING_TABLES,
        "INSERT INTO conversations (started_ts, thread_id)"
        " SELECT '2026-10-21T12:00Z', name FROM unnest(ARRAY['changed', 'still']) AS t (name)",
        "INSERT INTO sessions (ts, conversation_id) SELECT started_ts, id FROM conversations",
    )
    add_threads(database, [ThreadRows(thread_id=name, checkpoints=2) for name in NAMES])
    return database


def run_sql(url: str, *statements: str) -> None:
    """Change the store from outside, as its agent or a person would."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def rows_of_thread(url: str, thread_id: str) -> list[str]:
    """Return the thread's rows in the state tables, as text."""
    rows = rows_of(url)
    return [
        text for table in TABLES for (text,) in rows[table] if text.startswith(f"({thread_id},")
    ]


def agent_of(url: str) -> Agent:
    """Return somebody else at work on the database."""
    return Agent(
        run=partial(run_sql, url),
        add=partial(add_threads, url),
        rows_of=lambda thread_id: [*rows_of_thread(url, thread_id)],
        tables=TABLES,
        rewrite="UPDATE checkpoints SET checkpoint = checkpoint || '{\"more\": true}'"
        " WHERE thread_id = 'changed'",
    )


@every_change
def test_a_thread_that_changed_since_the_plan_stays_and_the_other_goes(
    store: str, change: Change, reason: SkipReason
) -> None:
    require_that_only_the_other_goes(agent_of(store), change, reason)


def test_an_unresumable_thread_is_reclaimed_and_the_named_ones_stay(store: str) -> None:
    add_threads(store, [ThreadRows(thread_id="lost"), ThreadRows(thread_id="new", age=timedelta())])

    plan = services.plan_reclaim("history", now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [thread.thread_id for thread in plan.reclaimable] == ["lost"]
    assert outcome.removed.thread_count == 1
    left = {"changed", "still", "new"}
    assert [threads_in(store, table) for table in TABLES] == [left, left, left]


@pytest.mark.parametrize("layout", ["row", "thread"])
def test_a_row_that_somebody_has_locked_keeps_its_thread(store: str, layout: str) -> None:
    plan = planned()
    which = "LIMIT 1" if layout == "row" else ""
    with psycopg.connect(store) as agent:
        agent.execute(
            f"SELECT 1 FROM checkpoints WHERE thread_id = 'changed' {which} FOR UPDATE".encode()
        )

        outcome = services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    assert outcome.skipped == (SkippedThread(thread_id="changed", reason=SkipReason.ACTIVE),)
    assert threads_in(store) == {"changed"}


def test_a_thread_to_which_an_open_transaction_adds_a_row_stays_whole(store: str) -> None:
    """The row is seen by nobody when the batch begins; the agent commits while it waits."""
    plan = planned()
    agent = psycopg.connect(store)
    agent.execute(
        "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
        " VALUES ('changed', '1f1cd46f-1044-6630-8007-806a4fc03c2c', '{}')"
    )
    asked: list[int] = []

    def stop() -> bool:
        """Is asked before every try; the agent commits before the second."""
        asked.append(1)
        if len(asked) == 2:
            agent.commit()
        return False

    outcome = services.execute(plan, trigger=Trigger.CODE, stop=stop, vacuum=False)
    agent.close()

    assert len(asked) > 1
    assert outcome.skipped == (SkippedThread(thread_id="changed", reason=SkipReason.ACTIVE),)
    assert len(rows_of_thread(store, "changed")) == 5
    assert rows_of_thread(store, "still") == []


def test_a_writer_that_does_not_end_is_told_and_costs_no_thread(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.langgraph_postgres.PATIENCE_SECONDS", 0)
    plan = planned()
    with psycopg.connect(store) as agent:
        agent.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'another'")

        outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.FAILED, 0)
    assert outcome.skipped == tuple(
        SkippedThread(thread_id=name, reason=SkipReason.BUSY) for name in NAMES
    )
    assert "a transaction that writes to the tables does not end" in outcome.error
    assert outcome.error.endswith("Left whole for that: changed, still.")
    assert threads_in(store) == set(NAMES)
    assert Sweep.objects.get().ending == "failed"


def test_a_sweep_goes_on_when_a_writer_ends_that_had_kept_threads_from_it(
    store: str, monkeypatch: pytest.MonkeyPatch, retention: Callable[..., None]
) -> None:
    """Nobody can tell whose rows an open transaction adds; here they are those of one thread."""
    monkeypatch.setattr("history_retention.stores.langgraph_postgres.PATIENCE_SECONDS", 0)
    monkeypatch.setattr(LangGraphPostgresStore, "threads_a_removal", 1)
    retention(BOX_SECONDS=0)
    plan = planned()
    agent = psycopg.connect(store)
    agent.execute(
        "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
        " VALUES ('changed', '1f1cd46f-1044-6630-8007-806a4fc03c2c', '{}')"
    )
    asked = count()

    def stop() -> bool:
        """Is asked before every box; the agent is over before the second."""
        if next(asked) == 1:
            agent.commit()
        return False

    outcome = services.execute(plan, trigger=Trigger.CODE, stop=stop)
    agent.close()

    assert outcome.skipped == (SkippedThread(thread_id="changed", reason=SkipReason.BUSY),)
    assert (outcome.ending, outcome.removed_ids) == (Ending.PARTIAL, ("still",))
    assert len(rows_of_thread(store, "changed")) == 5


def test_beside_a_writer_known_not_to_end_nothing_is_deleted_only_to_be_undone(
    store: str, monkeypatch: pytest.MonkeyPatch, retention: Callable[..., None]
) -> None:
    monkeypatch.setattr("history_retention.stores.langgraph_postgres.PATIENCE_SECONDS", 0)
    monkeypatch.setattr(LangGraphPostgresStore, "threads_a_removal", 1)
    retention(BOX_SECONDS=0)
    deleted: list[str] = []
    plain_run = PostgresDatabase.run

    def run(self: PostgresDatabase, sql: str, params: Sequence[Any] = ()) -> int:
        deleted.extend(*params) if sql.startswith("DELETE") else None
        return plain_run(self, sql, params)

    monkeypatch.setattr(PostgresDatabase, "run", run)
    plan = planned()
    with psycopg.connect(store) as agent:
        agent.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'another'")

        outcome = services.execute(plan, trigger=Trigger.CODE)

    assert len(outcome.skipped) == 2
    assert deleted == ["changed"] * 3


def test_a_trigger_that_ignores_a_delete_leaves_the_thread_whole(store: str) -> None:
    run_sql(
        store,
        "CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER no BEFORE DELETE ON checkpoints FOR EACH ROW"
        " WHEN (OLD.thread_id = 'changed') EXECUTE FUNCTION ignored()",
    )
    before = rows_of(store)

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert outcome.ending is Ending.FAILED
    assert "Look for a trigger, a rule or a row-level security policy" in outcome.error
    assert rows_of(store) == before


@pytest.mark.parametrize("change", [new_checkpoint, new_write], ids=lambda each: each.__name__)
def test_a_row_that_comes_between_the_look_and_the_delete_is_a_busy_store_and_no_fault_of_it(
    store: str, change: Change
) -> None:
    plan = planned()

    def remove() -> None:
        with open_store("history") as opened, opened.removing():
            assert opened.rechecked(plan.prunable, plan.naming_mark) == {}
            change(agent_of(store))
            opened.remove(plan.prunable)

    with pytest.raises(StoreBusy, match="a thread was written to"):
        remove()

    assert len(rows_of_thread(store, "changed")) == 5
    assert len(rows_of_thread(store, "still")) == 4


def test_large_threads_go_one_by_one_and_small_ones_together(
    store: str, monkeypatch: pytest.MonkeyPatch, retention: Callable[..., None]
) -> None:
    """A statement that has too much to remove would be ended by its time-out, again and again."""
    retention(BOX_SECONDS=0)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(len(threads_in(store)))
        return False

    plan = planned()
    with monkeypatch.context() as limited:
        most = plan.threads[0].byte_count
        limited.setattr(LangGraphPostgresStore, "bytes_a_removal", most)
        services.execute(plan, trigger=Trigger.CODE, stop=stop)
    assert sorted(set(asked), reverse=True) == [2, 1]

    add_threads(store, [ThreadRows(thread_id=name) for name in NAMES])
    asked.clear()
    services.execute(planned(), trigger=Trigger.CODE, stop=stop)
    assert set(asked) == {2}


@pytest.mark.parametrize("table", TABLES)
def test_rows_that_are_committed_after_their_thread_was_deleted_bring_the_whole_of_it_back(
    store: str, table: str
) -> None:
    """The agent's transaction began before the batch and ends before the batch is committed."""
    plan = planned()
    rows = {
        "checkpoints": "(thread_id, checkpoint_id, checkpoint) VALUES ('changed', 'new', '{}')",
        "checkpoint_writes": "(thread_id, checkpoint_id, task_id, idx, channel, blob)"
        " VALUES ('changed', 'new', 'task', 0, 'messages', '')",
        "checkpoint_blobs": "(thread_id, channel, version, type)"
        " VALUES ('changed', 'messages', 'new', 'empty')",
    }

    def remove_beside(agent: psycopg.Connection) -> None:
        with open_store("history") as opened, opened.removing():
            agent.execute(f"INSERT INTO {table} {rows[table]}".encode())
            assert opened.rechecked(plan.prunable, plan.naming_mark) == {}
            opened.remove(plan.prunable)
            agent.commit()

    with (
        psycopg.connect(store) as agent,
        pytest.raises(StoreBusy, match="a thread was written to"),
    ):
        remove_beside(agent)

    assert len(rows_of_thread(store, "changed")) == 5
    assert len(rows_of_thread(store, "still")) == 4
