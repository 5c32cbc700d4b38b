"""What ``manage.py check`` says of a store in PostgreSQL, with the statement that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from django.core.checks import CheckMessage
from django.db import connections

from history_retention import services
from history_retention.checks import check_settings
from history_retention.exceptions import UsageError
from history_retention.facts import Ending
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.store_checks import check_stores

from ..commands import run
from ..store_files import NOW, ThreadRows
from .conftest import Create
from .stores import NAMING_TABLES, add_threads, restore, threads_in
from .test_layouts import JAVASCRIPT
from .test_sweeping import run_sql

pytestmark = pytest.mark.django_db(databases=["default", "history"])

Retention = Callable[..., None]


def said(number: str) -> list[CheckMessage]:
    """Return the messages about the store with this number."""
    found = check_stores(databases=["history"])
    return [message for message in found if message.id == f"history_retention.{number}"]


@pytest.fixture
def store(database: str) -> str:
    """A store with nothing amiss, and one named thread in it."""
    run_sql(
        database,
        NAMING_TABLES,
        "INSERT INTO conversations (thread_id, started_ts) VALUES ('a', '2026-10-21T12:00Z')",
    )
    add_threads(database, [ThreadRows(thread_id="a")])
    return database


@pytest.fixture
def user(store: str, point_at: Callable[..., str], server: str) -> Iterator[str]:
    """A user of the server with no right in the store, as whom "history" is opened; its name."""
    name = f'history "{uuid4().hex[:8]}"'
    quoted = name.replace('"', '""')
    run_sql(server, f"CREATE ROLE \"{quoted}\" LOGIN PASSWORD 'secret'")
    point_at(store)
    connections["history"].close()
    connections.databases["history"].update(USER=name, PASSWORD="secret")
    connections["history"] = connections.create_connection("history")
    yield f'"{quoted}"'
    connections["history"].close()
    run_sql(store, f'DROP OWNED BY "{quoted}"')
    run_sql(server, f'DROP ROLE "{quoted}"')


def test_a_store_of_the_newest_saver_has_nothing_amiss(store: str) -> None:
    assert check_stores(databases=["history"]) == []


def test_the_indexes_that_a_javascript_store_lacks_are_named_and_not_built(
    create: Create, point_at: Callable[..., str]
) -> None:
    url = point_at(create())
    run_sql(url, JAVASCRIPT, NAMING_TABLES)

    found = said("W008")

    assert [message.hint for message in found] == [
        f'CREATE INDEX CONCURRENTLY {table}_thread_id_idx ON "public"."{table}" (thread_id);'
        for table in ("checkpoints", "checkpoint_writes", "checkpoint_blobs")
    ]
    assert all("by the primary key, which is larger" in message.msg for message in found)
    assert said("W008") == found


def test_a_table_without_any_index_of_threads_is_told_to_be_read_whole(store: str) -> None:
    run_sql(
        store,
        "DROP INDEX checkpoint_writes_thread_id_idx",
        "ALTER TABLE checkpoint_writes DROP CONSTRAINT checkpoint_writes_pkey",
    )

    (message,) = said("W008")

    assert "reads the whole table for each batch" in message.msg


def test_the_statements_of_the_hints_mend_what_they_are_about(
    create: Create, point_at: Callable[..., str]
) -> None:
    url = point_at(create())
    run_sql(url, JAVASCRIPT, NAMING_TABLES)

    run_sql(url, *(str(message.hint) for message in said("W008")))

    assert check_stores(databases=["history"]) == []


def test_indexes_in_another_schema_are_found_there(
    create: Create, point_at: Callable[..., str], retention: Retention
) -> None:
    url = point_at(create())
    restore(url, "lg-postgres-shallow.sql")
    retention(STORES={"history": {"SCHEMA": "shallow"}})

    before = [str(message.hint) for message in said("W008")]
    run_sql(url, *before)

    assert all('ON "shallow".' in statement for statement in before)
    assert said("W008") == []


def test_a_user_without_rights_is_told_which_and_the_grants_let_it_remove(
    store: str, user: str
) -> None:
    run_sql(store, f"GRANT SELECT ON conversations, sessions, checkpoints TO {user}")

    found = said("W009")
    run_sql(store, *(str(message.hint) for message in found))
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [message.msg for message in found] == [
        f"history: user {user} lacks DELETE and UPDATE on checkpoints, so nothing can be removed.",
        f"history: user {user} lacks SELECT, DELETE and UPDATE on checkpoint_writes, so nothing "
        "can be read.",
        f"history: user {user} lacks SELECT and DELETE on checkpoint_blobs, so nothing "
        "can be read.",
    ]
    assert said("W009") == []
    assert (outcome.ending, threads_in(store)) == (Ending.DONE, set())


def test_a_vacuum_that_the_server_would_silently_skip_is_told_to_be_none(
    store: str, user: str
) -> None:
    run_sql(
        store,
        f"GRANT SELECT ON conversations, sessions TO {user}",
        *(str(message.hint) for message in said("W009")),
    )

    pruned = run("history_prune", "--all", "--no-input")
    vacuumed = run("history_vacuum", "--no-input")

    sentence = (
        "history: not vacuumed: this user may not vacuum checkpoints, checkpoint_writes, "
        "checkpoint_blobs; their owner may, and autovacuum does it in its time."
    )
    assert (pruned.status, vacuumed.status) == (0, 1)
    assert pruned.out.splitlines()[-1] == sentence
    assert vacuumed.err.splitlines()[-1] == sentence


@pytest.mark.parametrize(
    ("replica", "reason"),
    [
        ("nowhere", "'nowhere', which is no database of DATABASES."),
        ("history", "'history', which is the store itself."),
        ("default", "'default', and a file of SQLite has no replica to read."),
    ],
)
def test_a_replica_that_is_none_is_an_error(
    store: str, retention: Retention, replica: str, reason: str
) -> None:
    retention(STORES={"history": {"READ_DATABASE": replica}})

    (message,) = check_settings()

    assert message.id == "history_retention.E011"
    assert message.msg == f"HISTORY_RETENTION['STORES']['history']['READ_DATABASE'] is {reason}"


@pytest.mark.parametrize("replica", ["nowhere", "default"])
def test_a_replica_that_is_none_is_refused_before_anything_is_read(
    store: str, retention: Retention, replica: str
) -> None:
    retention(STORES={"history": {"READ_DATABASE": replica}})

    with pytest.raises(UsageError, match=f"{replica!r}"):
        services.measure("history", now=NOW)


def test_a_server_that_is_not_there_is_an_error_with_an_entry_for_a_server(
    store: str, point_at: Callable[..., str]
) -> None:
    point_at("postgresql://postgres@127.0.0.1:9/test")

    (message,) = said("E008")

    assert "the database cannot be reached" in message.msg
    assert 'parse("postgres://' in str(message.hint)


def test_without_tables_there_is_a_warning_and_with_others_an_error(
    create: Create, point_at: Callable[..., str]
) -> None:
    url = point_at(create())
    empty = said("W003")
    run_sql(url, "CREATE TABLE orders (id int)")

    assert len(empty) == 1
    assert "its tables: orders" in said("E007")[0].msg
