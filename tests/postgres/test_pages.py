"""The admin's pages and the read-only models over a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from history_retention import services
from history_retention.exceptions import StoreReadOnly, StoreUnreadable
from history_retention.models import (
    Checkpoint,
    CheckpointBlob,
    CheckpointWrite,
    Conversation,
    LangGraphWrite,
    Sweep,
)

from ..admin.pages import (
    CONVERSATIONS,
    MEASURE,
    RECLAIM,
    THREADS,
    TURNS,
    VACUUM,
    consent_form,
    messages_of,
    text_of,
    ticked,
)
from ..store_files import ThreadRows
from .conftest import Create
from .stores import NAMING_TABLES, TABLES, add_threads, restore, rows_of, threads_in
from .test_sweeping import run_sql

pytestmark = pytest.mark.django_db(databases=["default", "history"])

FixtureDatabase = Callable[[str], str]


def sentences(page: Any) -> list[str]:
    """Return what the page's messages say."""
    return [text for _, text in messages_of(page)]


@pytest.fixture
def talked(database: str) -> str:
    """A conversation with a turn, its thread, and a thread that nobody can resume."""
    run_sql(
        database,
        NAMING_TABLES,
        "INSERT INTO conversations (thread_id, started_ts) VALUES ('one', '2026-10-21T12:00Z')",
        "INSERT INTO sessions (ts, prompt, response, conversation_id)"
        " VALUES ('2026-10-21T12:00Z', 'a question', 'an answer', 1)",
    )
    threads = [ThreadRows(thread_id="one", writes=2), ThreadRows(thread_id="lost")]
    add_threads(database, threads, now=timezone.now())
    return database


def test_the_rows_of_all_three_state_tables_are_there_with_their_payloads(
    fixture_database: FixtureDatabase,
) -> None:
    url = fixture_database("lg-postgres-inserts.sql.gz")
    before = rows_of(url)

    counts = [
        model.objects.for_store("history").count()
        for model in (Checkpoint, CheckpointWrite, CheckpointBlob)
    ]
    write = CheckpointWrite.objects.for_store("history").exclude(blob=None)[0]
    blob = CheckpointBlob.objects.for_store("history").exclude(blob=None)[0]
    checkpoint = Checkpoint.objects.for_store("history")[0]

    assert counts == [208, 380, len(before["checkpoint_blobs"])]
    assert {"blob", "value"} <= write.get_deferred_fields()
    assert len(bytes(write.blob or b"")) > 0
    assert len(bytes(blob.blob or b"")) > 0
    assert '"channel_values"' in str(checkpoint.checkpoint)
    assert list(LangGraphWrite.objects.for_store("history")) == []
    with pytest.raises(StoreReadOnly):
        CheckpointBlob.objects.for_store("history").delete()
    assert rows_of(url) == before


def test_a_shallow_savers_writes_have_rows_and_what_it_keeps_without_a_key_has_none(
    create: Create, point_at: Callable[..., str]
) -> None:
    url = create()
    restore(url, "lg-postgres-shallow.sql")
    point_at(url, "-c search_path=shallow")

    assert CheckpointWrite.objects.for_store("history").exists()
    assert list(Checkpoint.objects.for_store("history")) == []
    assert list(CheckpointBlob.objects.for_store("history")) == []


def test_tables_off_the_search_path_are_a_sentence_that_names_the_option(
    create: Create,
    point_at: Callable[..., str],
    retention: Callable[..., None],
    admin_client: Client,
) -> None:
    url = create()
    restore(url, "lg-postgres-shallow.sql")
    run_sql(url, "CREATE TABLE shallow.conversations (id bigserial PRIMARY KEY, thread_id text)")
    run_sql(url, "CREATE TABLE public.conversations (id bigserial PRIMARY KEY, thread_id text)")
    point_at(url)
    retention(STORES={"history": {"SCHEMA": "shallow"}})

    with pytest.raises(StoreUnreadable, match="-c search_path=shallow"):
        Conversation.objects.for_store("history")
    page = text_of(admin_client.get(CONVERSATIONS))
    point_at(url, "-c search_path=shallow")

    assert "conversations lies in schema 'shallow', where Django's models do not look" in page
    assert list(Conversation.objects.for_store("history")) == []


def test_conversations_and_turns_are_listed_and_shown(talked: str, admin_client: Client) -> None:
    conversations, turns = admin_client.get(CONVERSATIONS), admin_client.get(TURNS)
    turn = admin_client.get(reverse("admin:history_retention_session_change", args=[1]))

    assert [row.pk for row in conversations.context["cl"].result_list] == [1]
    assert [row.pk for row in turns.context["cl"].result_list] == [1]
    assert "a question" in text_of(turn)


def test_conversations_whose_ids_are_uuids_are_listed(database: str, admin_client: Client) -> None:
    run_sql(
        database,
        "CREATE TABLE conversations (id uuid PRIMARY KEY, thread_id text)",
        "INSERT INTO conversations VALUES (gen_random_uuid(), 'one'), (gen_random_uuid(), 'two')",
    )

    page = admin_client.get(CONVERSATIONS)

    rows = page.context["cl"].result_list
    assert {row.thread_id for row in rows} == {"one", "two"}
    for row in rows:
        own = admin_client.get(f"{CONVERSATIONS}{row.pk}/change/")
        assert (own.status_code, own.context["original"].thread_id) == (200, row.thread_id)


@pytest.mark.parametrize("kind", ["uuid", "bigint", "text"])
@pytest.mark.parametrize("key", ["8c7e1f6e-0000-4000-8000-000000000000", "nobody", "99999", "1_0"])
def test_a_conversation_that_is_not_there_is_not_found_whatever_its_key_is(
    database: str, admin_client: Client, kind: str, key: str
) -> None:
    run_sql(database, f"CREATE TABLE conversations (id {kind} PRIMARY KEY, thread_id text)")

    page = admin_client.get(f"{CONVERSATIONS}{key}/change/")

    assert page.status_code == 302
    assert "exist" in sentences(admin_client.get(page["Location"]))[0]


def test_a_store_without_such_tables_says_so(
    fixture_database: FixtureDatabase, admin_client: Client
) -> None:
    fixture_database("lg-postgres-inserts.sql.gz")

    page = admin_client.get(TURNS)

    assert sentences(page) == ["history has no table “sessions”, so there is nothing to show."]


def test_a_server_that_is_not_there_is_a_sentence_on_every_page(
    database: str, point_at: Callable[..., str], admin_client: Client
) -> None:
    point_at("postgresql://postgres@127.0.0.1:9/test")

    assert "the database cannot be reached" in text_of(admin_client.get(CONVERSATIONS))
    for page in (admin_client.post(MEASURE, follow=True), admin_client.get(VACUUM, follow=True)):
        assert any("the database cannot be reached" in told for told in sentences(page))
    assert admin_client.get(THREADS).status_code == 200


def test_the_readout_and_the_vacuum_speak_of_tables_and_of_no_file(
    talked: str, admin_client: Client
) -> None:
    services.measure("history", now=timezone.now())

    totals, vacuum = text_of(admin_client.get(THREADS)), text_of(admin_client.get(VACUUM))

    assert "Tables, indexes included" in totals
    assert "Free inside it" not in totals
    assert "The file system gets none of it back" in vacuum
    assert all(f"{table} " in vacuum and "dead rows" in vacuum for table in TABLES)
    assert "Agents cannot write" not in vacuum
    assert "rewritten" not in vacuum


def test_a_reclaim_that_is_agreed_to_takes_the_unresumable_thread_and_no_other(
    talked: str, admin_client: Client
) -> None:
    form = consent_form(admin_client.get(RECLAIM))
    admin_client.post(RECLAIM, ticked(form))

    assert [threads_in(talked, table) for table in TABLES] == [{"one"}] * 3
    assert Sweep.objects.get().removed_threads == 1


def test_a_vacuum_that_is_agreed_to_says_what_it_gave_and_what_not(
    talked: str, admin_client: Client
) -> None:
    page = admin_client.post(VACUUM, {"consent": "yes", "store": "history"}, follow=True)

    assert any("The file system gets none of it back" in told for told in sentences(page))
