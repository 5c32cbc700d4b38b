"""Every shape that LangGraph's tables have in PostgreSQL, and every id that may stand in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import dj_database_url
import psycopg
import pytest
from django.db import connections
from langgraph.checkpoint.postgres import PostgresSaver

from history_retention import services
from history_retention.exceptions import LayoutUnknown
from history_retention.facts import Ending, KeepReason, KeptThread, State
from history_retention.models import Thread
from history_retention.outcomes import Outcome
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores.postgres_rows import StateTable
from project.checkpoint_ids import checkpoint_id_at

from ..hostapp.models import Chat
from ..store_files import NOW, ThreadRows
from .conftest import Create
from .stores import TABLES, add_threads, restore, rows_of, set_up, threads_in
from .test_sweeping import run_sql

pytestmark = pytest.mark.django_db(databases=["default", "history"])

DAY = timedelta(days=1)
SHALLOW = "lg-postgres-shallow.sql"
JAVASCRIPT = """
CREATE TABLE checkpoint_migrations (v INTEGER PRIMARY KEY);
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL,
    metadata JSONB NOT NULL DEFAULT '{}', PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE checkpoint_blobs (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
    version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
CREATE TABLE checkpoint_writes (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT,
    blob BYTEA NOT NULL, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
"""The tables of LangGraph's JavaScript saver."""

A_LANGUAGES_ORDER = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'"
"""Makes a database whose texts are in the order of a language: case, marks and spaces last."""

Migrate = Callable[[str], None]


def by_the_vendor(version: int) -> Migrate:
    """Return what creates the tables as the vendor's saver did up to a migration."""

    def migrate(url: str) -> None:
        steps = [step.replace("CONCURRENTLY", "") for step in PostgresSaver.MIGRATIONS]
        run_sql(url, *steps[: version + 1])

    return migrate


def everyone(url: str, schema: str = "public") -> list[set[str]]:
    return [threads_in(url, table, schema) for table in TABLES]


def pruned(**bounds: Any) -> Outcome:
    plan = services.plan_prune("history", Bounds(**bounds), now=NOW)
    return services.execute(plan, trigger=Trigger.CODE)


@pytest.mark.parametrize(
    "migrate",
    [by_the_vendor(5), by_the_vendor(8), by_the_vendor(9), lambda url: run_sql(url, JAVASCRIPT)],
    ids=["before the indexes", "before task_path", "today", "JavaScript"],
)
def test_the_tables_of_every_version_are_read_and_swept(
    create: Create, point_at: Callable[..., str], migrate: Migrate
) -> None:
    url = point_at(create())
    migrate(url)
    add_threads(url, [ThreadRows(thread_id="old", checkpoints=2, writes=3)])
    add_threads(url, [ThreadRows(thread_id="new", age=DAY)])

    readout = services.measure("history", now=NOW)
    outcome = pruned(older_than_days=30)

    assert (readout.layout, readout.thread_count) == ("langgraph_postgres", 2)
    assert (outcome.removed.checkpoint_count, outcome.removed.write_count) == (2, 3)
    assert everyone(url) == [{"new"}, {"new"}, {"new"}]


def test_a_shallow_store_is_found_in_its_schema_and_swept_thread_by_thread(
    create: Create, point_at: Callable[..., str], retention: Callable[..., None]
) -> None:
    url = point_at(create())
    restore(url, SHALLOW)
    run_sql(url, "CREATE TABLE public.bystander (id int)")
    retention(STORES={"history": {"SCHEMA": "shallow"}})
    threads = threads_in(url, schema="shallow")

    readout = services.measure("history", now=NOW)
    plan = services.plan_prune(
        "history", Bounds(thread_ids=frozenset({"shallow-chat"})), now=NOW + 2 * DAY
    )
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert threads == {"shallow-chat", "shallow-linear"}
    assert (readout.thread_count, readout.checkpoint_count) == (2, 2)
    assert set(Thread.objects.values_list("state", flat=True)) == {State.RESUMABLE}
    assert outcome.removed.checkpoint_count == 1
    assert everyone(url, "shallow") == [{"shallow-linear"}] * 2 + [{"shallow-linear"}]


def test_a_shallow_thread_that_was_rewritten_in_place_since_the_plan_stays(
    create: Create, point_at: Callable[..., str]
) -> None:
    url = create()
    restore(url, SHALLOW)
    point_at(url, "-c search_path=shallow")
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW + 2 * DAY)
    run_sql(
        url,
        "UPDATE shallow.checkpoints SET checkpoint = jsonb_set(checkpoint, '{id}',"
        f" '\"{checkpoint_id_at(NOW)}\"') WHERE thread_id = 'shallow-chat'",
    )

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [thread.thread_id for thread in outcome.skipped] == ["shallow-chat"]
    assert threads_in(url, schema="shallow") == {"shallow-chat"}


def test_a_schema_that_is_not_there_is_a_sentence(
    database: str, retention: Callable[..., None]
) -> None:
    retention(STORES={"history": {"SCHEMA": 'no"where'}})

    with pytest.raises(LayoutUnknown, match="it has no tables"):
        services.measure("history", now=NOW)


ODD_IDS = [
    "", " ", " lead", "42", "é", "e\u0301", "E", "x" * 300, "it's", 'a"b', "100%_done", "\\", "🧵",
    "日本語", "a\nb", "a'); DROP TABLE checkpoints;--", "{a,b}", "NULL",
    "00000000-0000-4000-8000-000000000001",
]  # fmt: skip


def create_in_order(create: Create, clause: str) -> str:
    """Create a database in an order of texts, in that of bytes if the server knows no other."""
    try:
        return create(clause)
    except psycopg.errors.FeatureNotSupported:
        return create()


@pytest.mark.parametrize("clause", ["", A_LANGUAGES_ORDER], ids=["bytes", "a language"])
def test_any_text_is_a_thread_and_is_removed_by_equality_alone(
    create: Create, point_at: Callable[..., str], clause: str
) -> None:
    url = point_at(create_in_order(create, clause))
    set_up(url)
    gone, kept = ODD_IDS[::2], ODD_IDS[1::2]
    add_threads(url, [ThreadRows(thread_id=name) for name in gone])
    add_threads(url, [ThreadRows(thread_id=name, age=DAY) for name in kept])

    readout = services.measure("history", now=NOW)
    outcome = pruned(older_than_days=30)

    assert readout.thread_count == len(ODD_IDS)
    assert outcome.removed.thread_count == len(gone)
    assert everyone(url) == [set(kept)] * 3


def odd_checkpoint(url: str, thread_id: str, checkpoint_id: str, ts: str | None) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint)"
            " VALUES (%s, %s, jsonb_build_object('ts', %s::text))",
            [thread_id, checkpoint_id, ts],
        )


OLD, FRESH = (NOW - 40 * DAY).isoformat(), (NOW - DAY).isoformat()


@pytest.mark.parametrize(
    "checkpoint_id",
    ["", "1", "undefined", "zf1cd46f-1016-6000-8000-000000000000",
     "-f1cd46f-1016-6000-8000-000000000000", "1f1cd46f-1016-6000-8000-0000000000000",
     str(UUID(int=4, version=4)), "019ad2aa-0000-7000-8000-000000000000",
     "01JDXK3V5Q8Z0000000000000"],
)  # fmt: skip
def test_a_row_whose_id_tells_no_time_is_dated_by_what_it_says_of_itself(
    database: str, checkpoint_id: str
) -> None:
    odd_checkpoint(database, "old", checkpoint_id, OLD)
    odd_checkpoint(database, "fresh", checkpoint_id, FRESH)
    odd_checkpoint(database, "untold", checkpoint_id, None)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert [thread.thread_id for thread in plan.prunable] == ["old"]
    assert plan.kept == (KeptThread(thread_id="untold", reason=KeepReason.UNKNOWN_AGE),)


def test_an_id_in_upper_case_tells_its_time_unless_the_row_says_a_later_one(database: str) -> None:
    """As text it stands before all ids in lower case, so it is looked at by itself."""
    key = checkpoint_id_at(NOW - 40 * DAY).upper()
    odd_checkpoint(database, "old", key, None)
    odd_checkpoint(database, "later", key, FRESH)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert [thread.thread_id for thread in plan.prunable] == ["old"]
    assert plan.kept == ()


@pytest.mark.parametrize(("ts", "is_planned"), [(OLD, True), (FRESH, False), (None, False)])
def test_a_shallow_row_without_an_id_is_dated_by_what_it_says_of_itself_or_of_unknown_age(
    create: Create, point_at: Callable[..., str], ts: str | None, is_planned: bool
) -> None:
    url = create()
    restore(url, SHALLOW)
    point_at(url, "-c search_path=shallow")
    run_sql(
        url,
        f"UPDATE shallow.checkpoints SET checkpoint = jsonb_set(checkpoint, '{{id}}',"
        f" '\"{checkpoint_id_at(NOW - 50 * DAY)}\"') - 'ts'",
        "DELETE FROM shallow.checkpoint_writes",
        "INSERT INTO shallow.checkpoints (thread_id, checkpoint_ns, checkpoint)"
        f" SELECT 'shallow-chat', 'sub', jsonb_build_object('ts', {psycopg.sql.quote(ts)}::text)",
    )

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    planned = {thread.thread_id for thread in plan.prunable}
    assert planned == {"shallow-linear"} | ({"shallow-chat"} if is_planned else set())
    kept = () if ts else (KeptThread(thread_id="shallow-chat", reason=KeepReason.UNKNOWN_AGE),)
    assert plan.kept == kept


def test_writes_without_a_checkpoint_are_as_old_as_their_id_or_of_unknown_age(
    database: str,
) -> None:
    for thread_id, key in (("old", checkpoint_id_at(NOW - 40 * DAY)), ("odd", "1")):
        run_sql(
            database,
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, blob)"
            f" VALUES ('{thread_id}', '{key}', 't', 0, 'c', '')",
        )

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    orphans = services.plan_reclaim("history", now=NOW, orphan_writes=True)

    assert [thread.thread_id for thread in plan.prunable] == ["old"]
    assert plan.kept == (KeptThread(thread_id="odd", reason=KeepReason.UNKNOWN_AGE),)
    assert [thread.thread_id for thread in orphans.reclaimable] == ["old"]


def test_blobs_that_no_checkpoint_refers_to_any_more_are_a_thread_of_unknown_age(
    database: str,
) -> None:
    run_sql(
        database,
        "INSERT INTO checkpoint_blobs (thread_id, channel, version, type) VALUES ('b','c','1','t')",
    )

    readout = services.measure("history", now=NOW)

    assert (readout.thread_count, Thread.objects.get().state) == (1, State.UNKNOWN_AGE)


def test_conversations_of_the_host_in_another_database_name_the_threads(
    database: str, retention: Callable[..., None]
) -> None:
    named, lost = (str(UUID(int=number, version=4)) for number in (1, 2))
    add_threads(database, [ThreadRows(thread_id=name) for name in (named, lost)])
    Chat.objects.create(thread_id=named, updated_at=NOW - DAY)
    source = {"MODEL": "hostapp.Chat", "ACTIVITY_FIELD": "updated_at"}
    retention(STORES={"history": {"CONVERSATIONS": source}})

    plan = services.plan_reclaim("history", now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 1)
    assert everyone(database) == [{named}] * 3


@pytest.fixture
def replica(
    database: str,
    create: Create,
    monkeypatch: pytest.MonkeyPatch,
    retention: Callable[..., None],
) -> Iterator[str]:
    """Another database on the same server, which store "history" reads as alias "replica"."""
    url = create()
    set_up(url)
    name = dj_database_url.parse(url)["NAME"]
    settings = {**connections.databases["history"], "NAME": name}
    monkeypatch.setitem(connections.databases, "replica", settings)
    before = connections["replica"]
    connections["replica"] = connections.create_connection("replica")
    retention(STORES={"history": {"READ_DATABASE": "replica"}})
    yield url
    connections["replica"] = before


@pytest.mark.django_db(databases=["default", "history", "replica"])
def test_a_replica_is_measured_and_planned_from_and_the_primary_has_the_last_word(
    database: str, replica: str
) -> None:
    """The replica lags: it has not heard of what the agent wrote last."""
    for url in (database, replica):
        add_threads(url, [ThreadRows(thread_id=name) for name in ("moved", "still")])
    add_threads(database, [ThreadRows(thread_id="moved", age=timedelta(0))])
    before = rows_of(replica)

    readout = services.measure("history", now=NOW)
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert readout.checkpoint_count == 2
    assert {thread.thread_id for thread in plan.prunable} == {"moved", "still"}
    assert [thread.thread_id for thread in outcome.skipped] == ["moved"]
    assert everyone(database) == [{"moved"}] * 3
    assert rows_of(replica) == before


@pytest.mark.django_db(databases=["default", "history", "replica"])
def test_ids_that_tell_no_time_are_dated_by_the_replica_that_was_read(
    database: str, replica: str
) -> None:
    for url, said in ((database, FRESH), (replica, OLD)):
        odd_checkpoint(url, "odd", "no-time", said)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert [each.last_activity.isoformat() for each in plan.prunable] == [OLD]


@pytest.mark.parametrize(
    "odd",
    [
        "1f1ce000-0000-6000-8000-00000000000G", "1f1ce000-0000-6000-8000-00000000000g",
        "1F1CE000-0000-6000-8000-000000000000", "1f1ce000-0000-6000-8000-0000000-0000",
        "1f1ce000-0000-7000-8000-000000000000", "1f1ce000-0000-6000-8000-0000000000000",
        "1f1ce000-0000-6000-8000-00000000000", "1f1ce000-0000-6000-8000-00000000000é",
        "1f1ce000-0000-6000-8000-00000000000\n", "1f1ce000\\0000-6000-8000-000000000000",
    ],
)  # fmt: skip
def test_an_id_that_is_almost_a_dated_one_is_looked_at_by_itself(database: str, odd: str) -> None:
    """Between two dated ones, and without a time of its own, it leaves its thread's age open."""
    for key in (checkpoint_id_at(NOW - 400 * DAY), odd, "1f2" + checkpoint_id_at(NOW)[3:]):
        odd_checkpoint(database, "odd", key, None)
        odd_checkpoint(database, f"alone {key}", key, OLD)

    with psycopg.connect(database) as connection:
        table = StateTable(name="checkpoints", checkpoint_id="checkpoint_id", payload=("metadata",))
        told = connection.execute(
            f"SELECT {table.is_timed.replace('%%', '%')} FROM checkpoints"
            " WHERE thread_id = %s".replace("%s", "'odd'").encode()
        ).fetchall()

    assert sorted(told) == [(False,), (True,), (True,)]
