"""Conversations and turns: read from their store, with or without their text, never changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from history_retention.admin import vendor
from history_retention.models import Conversation, Thread

from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows, add_conversations
from .conftest import SignIn
from .pages import ADMIN, CONVERSATIONS, TURNS, messages_of, text_of

pytestmark = pytest.mark.django_db(databases=["default", "history"])

TURN = reverse(f"{ADMIN}session_change", args=[1])
CONVERSATION = reverse(f"{ADMIN}conversation_change", args=[1])
TURN_AGE = [timedelta(days=1)]


@pytest.fixture
def talked(written_store: WriteStore) -> Path:
    """A store of two conversations, one of them with a turn."""
    return written_store(
        [ThreadRows(thread_id="one")],
        [ConversationRow(thread_id="one", turns=TURN_AGE), ConversationRow(thread_id="")],
    )


def _ids(response: Any) -> list[Any]:
    return [row.pk for row in response.context["cl"].result_list]


def test_conversations_are_listed_newest_first_with_their_threads(
    talked: Path, sign_in: SignIn
) -> None:
    page = sign_in("view_conversation").get(CONVERSATIONS)
    assert _ids(page) == [2, 1]
    assert Thread.digest_of("history", "one") in page.content.decode()


def test_turns_are_listed_without_their_text_whoever_looks(talked: Path, superuser: Client) -> None:
    with CaptureQueriesContext(connections["history"]) as queries:
        page = superuser.get(TURNS)
    assert _ids(page) == [1]
    assert "a question" not in page.content.decode()
    assert not [query for query in queries if "prompt" in query["sql"]]
    assert not [query for query in queries if "response" in query["sql"]]


def test_without_its_permission_a_turns_text_is_neither_shown_nor_fetched(
    talked: Path, sign_in: SignIn
) -> None:
    client = sign_in("view_session")
    with CaptureQueriesContext(connections["history"]) as queries:
        page = client.get(TURN)
    assert page.status_code == 200
    assert "a question" not in page.content.decode()
    assert "an answer" not in page.content.decode()
    assert len(queries) == 1
    assert "prompt" not in queries[0]["sql"]
    assert "response" not in queries[0]["sql"]


def test_with_its_permission_a_turns_text_is_shown(talked: Path, sign_in: SignIn) -> None:
    text = text_of(sign_in("view_session", "view_session_content").get(TURN))
    assert "a question" in text
    assert "an answer" in text


@pytest.mark.parametrize(
    "query",
    ["prompt__contains=a", "prompt__startswith=a", "response=an+answer", "conversation=1", "id=1"],
)
def test_no_lookup_from_the_address_tells_of_a_transcript(
    talked: Path, sign_in: SignIn, query: str
) -> None:
    with CaptureQueriesContext(connections["history"]) as queries:
        response = sign_in("view_session").get(f"{TURNS}?{query}")
    assert response.status_code == 400
    assert not [query for query in queries if "WHERE" in query["sql"]]


def test_search_is_not_offered_in_transcripts(talked: Path, superuser: Client) -> None:
    page = superuser.get(TURNS + "?q=nothing")
    assert 'id="searchbar"' not in page.content.decode()
    assert _ids(page) == [1]


def test_the_order_is_that_of_the_key_whatever_the_address_asks(
    talked: Path, superuser: Client
) -> None:
    with CaptureQueriesContext(connections["history"]) as queries:
        superuser.get(TURNS + "?o=9")
    orders = [query["sql"].split("ORDER BY")[1] for query in queries if "ORDER BY" in query["sql"]]
    assert orders
    in_pieces = "1"  # the one column of a piece that is counted: the key
    assert {order.split()[0] for order in orders} == {'"sessions"."id"', in_pieces}


@pytest.mark.parametrize("address", [CONVERSATIONS, TURNS, CONVERSATION, TURN])
def test_the_pages_take_the_permission_to_view(talked: Path, sign_in: SignIn, address: str) -> None:
    assert sign_in("view_thread", "view_session_content").get(address).status_code == 403


@pytest.mark.parametrize("name", ["conversation", "session"])
def test_no_page_adds_changes_or_deletes(talked: Path, superuser: Client, name: str) -> None:
    before = talked.read_bytes()
    change = reverse(f"{ADMIN}{name}_change", args=[1])
    delete = reverse(f"{ADMIN}{name}_delete", args=[1])
    assert superuser.post(reverse(f"{ADMIN}{name}_add"), {"ts": "x"}).status_code == 403
    assert superuser.post(change, {"project": "mine"}).status_code == 403
    assert superuser.post(delete, {"post": "yes"}).status_code == 403
    assert superuser.get(reverse(f"{ADMIN}{name}_history", args=[1])).status_code == 404
    assert talked.read_bytes() == before


def test_the_store_of_the_address_is_the_one_read(
    talked: Path, second_store: Path, superuser: Client
) -> None:
    add_conversations(second_store, [ConversationRow(thread_id="b", project="/srv/second")] * 3)
    first = superuser.get(CONVERSATIONS)
    second = superuser.get(CONVERSATIONS + "?store=other")
    assert _ids(first) == [2, 1]
    assert _ids(second) == [4, 3, 2, 1]
    address = second.context["cl"].url_for_result(second.context["cl"].result_list[0])
    assert "/srv/second" in text_of(superuser.get(address))


@pytest.mark.parametrize("address", [CONVERSATIONS, TURNS, CONVERSATION, TURN])
def test_an_unknown_store_is_a_sentence(talked: Path, superuser: Client, address: str) -> None:
    page = superuser.get(address + "?store=nope")
    assert page.status_code == 200
    assert "'nope' is no store" in text_of(page)


@pytest.mark.parametrize("address", [CONVERSATIONS, TURNS, CONVERSATION, TURN])
def test_a_missing_file_is_a_sentence_and_none_is_created(
    point_at: Callable[[Path], Path], tmp_path: Path, superuser: Client, address: str
) -> None:
    path = point_at(tmp_path / "absent.db")
    page = superuser.get(address)
    assert page.status_code == 200
    assert f"there is no file {path}" in text_of(page)
    assert not path.exists()


@pytest.mark.parametrize("address", [CONVERSATIONS, TURNS, CONVERSATION, TURN])
def test_a_file_that_is_no_database_is_a_sentence(
    point_at: Callable[[Path], Path], tmp_path: Path, superuser: Client, address: str
) -> None:
    point_at(tmp_path / "notes.txt").write_text("These are no turns.\n" * 100)
    page = superuser.get(address)
    assert page.status_code == 200
    assert "is not a SQLite database" in text_of(page)


@pytest.mark.parametrize("address", [CONVERSATIONS, TURNS])
def test_a_store_without_the_table_says_so(
    written_store: WriteStore, superuser: Client, address: str
) -> None:
    written_store([ThreadRows(thread_id="one")], None)
    page = superuser.get(address)
    ((level, text),) = messages_of(page)
    assert level == "warning"
    assert "history has no table" in text


@pytest.fixture
def old_store(point_at: Callable[[Path], Path], written_store: WriteStore) -> Path:
    """A file of the first version: no ``thread_id``, no ``conversation_id``, fewer columns."""
    path = written_store([ThreadRows(thread_id="one")], None)
    with closing(sqlite3.connect(path)) as store, store:
        store.executescript(
            "CREATE TABLE conversations (id INTEGER PRIMARY KEY, started_ts TEXT, project TEXT);"
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY, ts TEXT, prompt TEXT, response TEXT);"
            "INSERT INTO conversations VALUES (1, '2026-01-01T00:00:00Z', '/srv/old');"
            "INSERT INTO sessions VALUES (1, '2026-01-01T00:00:00Z', 'a question', 'an answer');"
        )
    return path


def test_an_old_file_shows_the_columns_it_has(old_store: Path, superuser: Client) -> None:
    conversations, conversation = superuser.get(CONVERSATIONS), superuser.get(CONVERSATION)
    turns, turn = superuser.get(TURNS), superuser.get(TURN)
    assert conversations.context["cl"].list_display == ["id", "started_ts", "project"]
    assert turns.context["cl"].list_display == ["id", "ts"]
    assert "/srv/old" in text_of(conversation)
    assert "a question" in text_of(turn)
    assert "Conversation:" not in text_of(turn)


def test_a_row_that_is_not_there_leads_away_with_a_message(talked: Path, superuser: Client) -> None:
    address = reverse(f"{ADMIN}session_change", args=["99"])
    response = superuser.get(address, follow=True)
    assert response.status_code == 200
    assert messages_of(response)[0][0] == "warning"
    assert superuser.get(reverse(f"{ADMIN}session_change", args=["x'"])).status_code == 302


def test_turns_are_counted_in_pieces_of_rows_however_far_apart_their_keys_lie(
    talked: Path, superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_conversations(talked, [ConversationRow(thread_id="b", turns=TURN_AGE * 24)])
    with closing(sqlite3.connect(talked)) as store, store:
        store.execute("DELETE FROM sessions WHERE id % 5 = 2")
        store.execute("UPDATE sessions SET id = id * 10000000000 WHERE id > 3")
        store.execute("UPDATE sessions SET id = -id WHERE id = 1")
    monkeypatch.setattr(vendor, "KEYS_A_COUNT", 8)
    with CaptureQueriesContext(connections["history"]) as queries:
        page = superuser.get(TURNS)
    assert page.context["cl"].result_count == 20
    assert sum("COUNT(*)" in query["sql"] for query in queries) == 3


@pytest.mark.parametrize("numbers", [5, 6])
def test_a_last_piece_that_is_full_or_empty_counts_as_any(
    talked: Path, superuser: Client, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    with closing(sqlite3.connect(talked)) as store, store:
        store.execute("DELETE FROM sessions")
        store.executemany(
            "INSERT INTO sessions (id, ts) VALUES (?, '2026-11-30T12:00:00Z')",
            [(number,) for number in range(numbers)],
        )
    monkeypatch.setattr(vendor, "KEYS_A_COUNT", 3)
    assert superuser.get(TURNS).context["cl"].result_count == numbers


def test_rows_whose_keys_are_no_numbers_are_counted_and_found_as_well(
    talked: Path, superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(talked)) as store, store:
        store.executescript(
            "DROP TABLE conversations;"
            "CREATE TABLE conversations (id TEXT PRIMARY KEY, started_ts TEXT, project TEXT,"
            " command TEXT, model TEXT, thread_id TEXT);"
            "INSERT INTO conversations (id) VALUES ('a'), ('b'), ('c');"
        )
    monkeypatch.setattr(vendor, "KEYS_A_COUNT", 2)
    assert superuser.get(CONVERSATIONS).context["cl"].result_count == 3
    assert superuser.get(f"{CONVERSATIONS}b/change/").context["original"].pk == "b"
    assert superuser.get(f"{CONVERSATIONS}d/change/").status_code == 302


def test_the_list_of_turns_takes_as_many_queries_for_99_as_for_1(
    talked: Path, superuser: Client
) -> None:
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connections["history"]) as queries:
            assert superuser.get(TURNS).status_code == 200
        counts.append(len(queries))
        add_conversations(talked, [ConversationRow(thread_id="b", turns=TURN_AGE * 98)])
    assert counts[0] == counts[1] <= 5


NO_TEXT = "CAST(x'61ff62' AS TEXT)"
"""What SQLite takes for text though it is no UTF-8."""


@pytest.mark.parametrize("page", [CONVERSATIONS, TURNS, CONVERSATION, TURN])
def test_text_that_is_no_utf8_is_shown_with_its_bytes_spelled_out(
    talked: Path, superuser: Client, page: str
) -> None:
    with closing(sqlite3.connect(talked)) as connection, connection:
        for table in ("conversations", "sessions"):
            connection.execute(f"UPDATE {table} SET project = {NO_TEXT}, command = {NO_TEXT}")
        connection.execute(
            f"UPDATE conversations SET thread_id = {NO_TEXT}, started_ts = {NO_TEXT}"
        )
        connection.execute(f"UPDATE sessions SET prompt = {NO_TEXT}, ts = {NO_TEXT}")

    response = superuser.get(page)

    assert response.status_code == 200
    assert text_of(response).count("a\\xffb") >= 2
    with pytest.raises(OperationalError, match="UTF-8"):  # as anyone else reads it
        list(Conversation.objects.using("history"))
