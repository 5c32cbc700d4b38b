"""Naming tables whose columns are of other types than text: they are asked by their own."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from history_retention import services
from history_retention.facts import SkipReason
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores.postgres import PostgresDatabase
from history_retention.stores.postgres_keys import key_of

from ..store_files import NOW, ThreadRows
from .stores import add_threads, threads_in
from .test_sweeping import run_sql

pytestmark = pytest.mark.django_db(databases=["default", "history"])

A, B = (str(UUID(int=number, version=4)) for number in (10, 11))
ODD = ["", " ", "nobody", "1.0", "01", "-0", "9" * 19, "9" * 30, A.upper(), f"{{{A}}}", A[:-1], "é"]
COLUMNS = {
    "uuid": (A, [A, A.replace("-", ""), B]),
    "smallint": ("7", ["7", "-8", "32767", "32768"]),
    "integer": ("7", ["7", "-8", "2147483647", "2147483648"]),
    "bigint": ("7", ["7", "0", "9223372036854775807", "9223372036854775808"]),
    "text": ("one", ["one", A]),
    "varchar(80)": ("one", ["one", A]),
    "char(36)": (A, [A, B]),
    "numeric": ("7", ["7", "8"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_any_type_is_asked_for_any_texts_and_finds_its_own(
    database: str, kind: str
) -> None:
    held, texts = COLUMNS[kind]
    run_sql(
        database,
        f"CREATE TABLE conversations (id int PRIMARY KEY, thread_id {kind})",
        f"INSERT INTO conversations VALUES (1, '{held}')",
    )
    opened = PostgresDatabase("history", "public")
    key = key_of(opened, "conversations", "thread_id")

    found = opened.rows(
        f"SELECT id FROM conversations WHERE {key.condition}", [key.among([*ODD, *texts])]
    )
    nothing = opened.rows(f"SELECT id FROM conversations WHERE {key.condition}", [key.among(ODD)])
    opened.close()

    assert (found, nothing) == ([(1,)], [])


@pytest.mark.parametrize("kind", ["uuid", "smallint", "integer", "bigint", "text", "varchar(80)"])
def test_the_index_of_the_column_serves_the_question(database: str, kind: str) -> None:
    run_sql(
        database,
        f"CREATE TABLE conversations (id int PRIMARY KEY, thread_id {kind})",
        "CREATE INDEX named ON conversations (thread_id)",
    )
    opened = PostgresDatabase("history", "public")
    key = key_of(opened, "conversations", "thread_id")
    opened.close()
    question = key.condition.replace("%s", "'{7}'" if "uuid" not in key.condition else f"'{{{A}}}'")

    with psycopg.connect(database) as connection:
        connection.execute("SET enable_seqscan = off")
        steps = connection.execute(
            f"EXPLAIN SELECT id FROM conversations WHERE {question}".encode()
        ).fetchall()

    assert any("named" in step for (step,) in steps)


def test_conversations_and_turns_with_uuids_keep_their_threads_and_are_looked_at_again(
    database: str,
) -> None:
    run_sql(
        database,
        "CREATE TABLE conversations (id uuid PRIMARY KEY, started_ts timestamptz, thread_id uuid)",
        "CREATE TABLE sessions (id bigserial PRIMARY KEY, ts timestamptz, conversation_id uuid)",
        f"INSERT INTO conversations SELECT key, '2026-10-01T12:00Z', key"
        f" FROM unnest(ARRAY['{A}', '{B}']::uuid[]) AS t (key)",
    )
    add_threads(database, [ThreadRows(thread_id=each) for each in (A, B, "unnamed")])

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    run_sql(
        database,
        f"INSERT INTO sessions (ts, conversation_id) VALUES ('2026-11-30T11:59Z', '{A}')",
    )
    outcome = services.execute(plan, trigger=Trigger.CODE, vacuum=False)

    assert {each.thread_id for each in plan.prunable} == {A, B}
    assert [(each.thread_id, each.reason) for each in outcome.skipped] == [(A, SkipReason.ACTIVE)]
    assert threads_in(database) == {A}
