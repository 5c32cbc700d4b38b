"""Measure, reclaim and vacuum from the admin."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.urls import resolve

from history_retention import services
from history_retention.models import Hold, Measurement, Sweep, Thread
from history_retention.vacuuming import QUICK_VACUUM_BYTES

from ..conftest import WriteStore
from ..store_files import (
    NOW,
    ConversationRow,
    ThreadRows,
    add_conversations,
    add_threads,
    rows_of,
    threads_in,
)
from .conftest import Keys, SignIn
from .pages import (
    MEASURE,
    RECLAIM,
    THREADS,
    VACUUM,
    consent_form,
    ledger,
    messages_of,
    text_of,
    ticked,
)

EVERYONE = {"large", "small", "recent", "lost-1", "lost-2", "clearing"}


def test_measuring_fills_the_list(
    written_store: WriteStore, sign_in: SignIn, frozen_clock: object
) -> None:
    written_store([ThreadRows(thread_id="one")], [ConversationRow(thread_id="one")])
    client = sign_in("view_thread", "measure_thread")
    response = client.post(MEASURE, follow=True)
    assert messages_of(response) == [("success", "history: measured 1 thread.")]
    assert Measurement.objects.get().thread_count == 1
    assert Thread.objects.get().state == "resumable"


def test_measuring_never_changes_the_store(measured: Path, superuser: Client) -> None:
    before = measured.read_bytes()
    superuser.post(MEASURE)
    assert measured.read_bytes() == before
    assert Measurement.objects.count() == 2


def test_measuring_is_no_get(measured: Path, superuser: Client) -> None:
    before = ledger()
    assert superuser.get(MEASURE).status_code == 405
    assert ledger() == before


@pytest.mark.parametrize(
    ("address", "others"),
    [
        (MEASURE, ("reclaim_thread", "vacuum_store", "prune_thread")),
        (RECLAIM, ("measure_thread", "vacuum_store", "prune_thread")),
        (VACUUM, ("measure_thread", "reclaim_thread", "prune_thread")),
    ],
)
def test_each_operation_takes_its_own_permission(
    measured: Path, superuser: Client, sign_in: SignIn, address: str, others: tuple[str, ...]
) -> None:
    form = ticked(consent_form(superuser.get(RECLAIM)))
    before = measured.read_bytes(), ledger()
    client = sign_in("view_thread", *others)
    assert client.get(address).status_code == 403
    assert client.post(address, form).status_code == 403
    assert (measured.read_bytes(), ledger()) == before


@pytest.mark.parametrize(
    ("address", "codename"),
    [(MEASURE, "measure_thread"), (RECLAIM, "reclaim_thread"), (VACUUM, "vacuum_store")],
)
def test_an_operation_takes_the_permission_to_view_as_well(
    measured: Path, sign_in: SignIn, address: str, codename: str
) -> None:
    assert sign_in(codename).post(address, {"consent": "yes"}).status_code == 403


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM, THREADS])
def test_a_post_without_the_token_is_refused(measured: Path, address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    before = measured.read_bytes(), ledger()
    assert client.post(address, {"consent": "yes", "post": "yes"}).status_code == 403
    assert (measured.read_bytes(), ledger()) == before


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
def test_strangers_are_sent_to_the_login(measured: Path, address: str) -> None:
    response = Client().post(address, {"consent": "yes"})
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")


def test_reclaim_removes_exactly_what_it_showed(measured: Path, sign_in: SignIn) -> None:
    client = sign_in("view_thread", "reclaim_thread")
    before = rows_of(measured)
    page = client.get(RECLAIM)
    response = client.post(RECLAIM, ticked(consent_form(page)), follow=True)
    after = rows_of(measured)
    assert [row.whole_id for row in page.context["pages"][0].rows] == ["lost-1", "lost-2"]
    assert threads_in(measured) == EVERYONE - {"lost-1", "lost-2"}
    assert after["conversations"] == before["conversations"]
    assert messages_of(response)[0][0] == "success"
    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.trigger, sweep.removed_threads) == ("reclaim", "admin", 2)
    entry = LogEntry.objects.get()
    assert entry.get_edited_object() == sweep


def test_looking_at_a_reclaim_changes_nothing(measured: Path, superuser: Client) -> None:
    before = measured.read_bytes(), ledger()
    superuser.get(RECLAIM)
    superuser.get(VACUUM)
    assert (measured.read_bytes(), ledger()) == before


def test_a_reclaim_without_the_box_ticked_asks_again(measured: Path, superuser: Client) -> None:
    form = consent_form(superuser.get(RECLAIM))
    before = measured.read_bytes(), ledger()
    page = superuser.post(RECLAIM, form)
    assert (measured.read_bytes(), ledger()) == before
    assert "tick the box" in text_of(page)


def test_a_reclaim_posted_out_of_nowhere_is_refused(measured: Path, superuser: Client) -> None:
    before = measured.read_bytes(), ledger()
    response = superuser.post(RECLAIM, {"post": "yes", "consent": "yes"}, follow=True)
    assert (measured.read_bytes(), ledger()) == before
    assert messages_of(response)[0][0] == "error"


def test_a_thread_that_got_its_conversation_after_the_page_stays(
    measured: Path, superuser: Client
) -> None:
    form = consent_form(superuser.get(RECLAIM))
    add_conversations(measured, [ConversationRow(thread_id="lost-1")])
    superuser.post(RECLAIM, ticked(form))
    assert threads_in(measured) == EVERYONE - {"lost-2"}


def test_a_thread_lost_after_the_page_is_not_reclaimed_unseen(
    measured: Path, superuser: Client
) -> None:
    form = consent_form(superuser.get(RECLAIM))
    add_threads(measured, [ThreadRows(thread_id="lost-3")])
    page = superuser.post(RECLAIM, ticked(form))
    assert threads_in(measured) == EVERYONE | {"lost-3"}
    assert "1 thread would go that you had not been shown" in text_of(page)


def test_a_held_thread_is_named_and_kept_by_a_reclaim(measured: Path, superuser: Client) -> None:
    Hold.objects.create(store="history", thread_id="lost-1", reason="look at it first")
    page = superuser.get(RECLAIM)
    superuser.post(RECLAIM, ticked(consent_form(page)))
    assert "1 thread: held lost-1" in text_of(page)
    assert threads_in(measured) == EVERYONE - {"lost-2"}


def test_the_confirmation_of_one_store_is_none_of_another(
    measured: Path, second_store: Path, superuser: Client
) -> None:
    add_threads(second_store, [ThreadRows(thread_id="lost-1")])
    form = consent_form(superuser.get(RECLAIM + "?store=history"))
    before = second_store.read_bytes()
    superuser.post(RECLAIM + "?store=other", ticked(form))
    assert second_store.read_bytes() == before


def test_a_store_without_names_says_why_nothing_can_be_reclaimed(
    written_store: WriteStore, superuser: Client
) -> None:
    path = written_store([ThreadRows(thread_id="one")], None)
    response = superuser.get(RECLAIM, follow=True)
    ((level, text),) = messages_of(response)
    assert level == "error"
    assert "nothing here tells which threads a conversation names" in text
    assert threads_in(path) == {"one"}


def test_nothing_to_reclaim_is_said_without_a_form(
    written_store: WriteStore, superuser: Client
) -> None:
    written_store()
    page = superuser.get(RECLAIM)
    assert "Nothing would go." in text_of(page)
    assert consent_form(page) == {}


def test_a_vacuum_gives_the_space_back(measured: Path, sign_in: SignIn) -> None:
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute("CREATE TABLE filler (bytes BLOB)")
        store.execute("INSERT INTO filler VALUES (zeroblob(2000000))")
        store.execute("DROP TABLE filler")
    before = measured.stat().st_size
    client = sign_in("view_thread", "vacuum_store")
    response = client.post(VACUUM, {"consent": "yes"}, follow=True)
    assert before - measured.stat().st_size >= 1_900_000
    assert messages_of(response) == [("success", "history: vacuumed.")]
    sweep = Sweep.objects.get()
    assert (sweep.kind, sweep.vacuumed, sweep.actor) == ("vacuum", True, User.objects.get())
    assert LogEntry.objects.get().object_id == str(sweep.pk)


def test_a_vacuum_without_the_box_ticked_asks_again(measured: Path, superuser: Client) -> None:
    before = measured.read_bytes(), ledger()
    page = superuser.post(VACUUM, {"consent": "maybe"})
    assert (measured.read_bytes(), ledger()) == before
    assert "Not vacuumed yet: tick the box" in text_of(page)


def test_a_store_too_large_for_a_request_names_the_command(
    measured: Path, superuser: Client, retention: Callable[..., None]
) -> None:
    retention(VACUUM_IN_REQUEST_BYTES=measured.stat().st_size - 1)
    before = measured.read_bytes(), ledger()
    page = superuser.get(VACUUM)
    again = superuser.post(VACUUM, {"consent": "yes"})
    assert (measured.read_bytes(), ledger()) == before
    assert "python manage.py history_vacuum --database history" in text_of(page)
    assert "python manage.py history_vacuum --database history" in text_of(again)
    assert "consent" not in page.content.decode()


def test_a_store_as_large_as_a_request_takes_is_vacuumed(
    measured: Path, superuser: Client, retention: Callable[..., None]
) -> None:
    retention(VACUUM_IN_REQUEST_BYTES=measured.stat().st_size)
    superuser.post(VACUUM, {"consent": "yes"})
    assert Sweep.objects.get().kind == "vacuum"


def slow_vacuums() -> None:
    """Record that a vacuum of the store rewrites 10 KB a second."""
    Sweep.objects.create(
        kind=Sweep.Kind.VACUUM, store="history", layout="gaunt_sloth", trigger="command",
        as_of=NOW, started_at=NOW, ending="done", vacuumed=True, vacuum_seconds=1_024,
        file_bytes_before=10_485_761, file_bytes_after=10_485_760,
    )  # fmt: skip


def test_the_vacuum_page_says_how_long_agents_would_wait(measured: Path, superuser: Client) -> None:
    quick = text_of(superuser.get(VACUUM))
    slow_vacuums()
    slow = text_of(superuser.get(VACUUM))

    seconds = round(measured.stat().st_size / 10_240)
    assert "well under a second" in quick
    assert f"about {seconds:,} seconds" in slow
    assert "10.0 KB a second, as its last vacuums ran" in slow


def test_the_vacuum_page_of_a_large_store_says_what_a_trial_tells(
    measured: Path, superuser: Client
) -> None:
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute(
            "UPDATE checkpoints SET checkpoint = zeroblob(?) WHERE thread_id = 'large'",
            [QUICK_VACUUM_BYTES],
        )
    page = text_of(superuser.get(VACUUM))
    assert "or more" in page
    assert "a second, as a trial ran just now" in page


def test_a_vacuum_hardly_worth_it_is_said_and_runs_for_whoever_agrees(
    measured: Path, superuser: Client
) -> None:
    slow_vacuums()
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute("DELETE FROM checkpoints WHERE thread_id = 'large'")

    page = superuser.get(VACUUM)
    response = superuser.post(VACUUM, {"consent": "yes"}, follow=True)

    assert "It is hardly worth their wait" in text_of(page)
    assert messages_of(response) == [("success", "history: vacuumed.")]


def test_a_file_that_gives_space_back_in_steps_names_the_command(
    measured: Path, superuser: Client
) -> None:
    words = "python manage.py history_vacuum --database history --incremental"
    before = text_of(superuser.get(VACUUM))
    with closing(sqlite3.connect(measured, isolation_level=None)) as store:
        store.execute("PRAGMA auto_vacuum = INCREMENTAL")
        store.execute("VACUUM")
        store.execute("DELETE FROM checkpoints WHERE thread_id = 'large'")
    after = text_of(superuser.get(VACUUM))

    assert words not in before
    assert words in after


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
@pytest.mark.parametrize("store", ["nope", "default", "", "history%0A"])
def test_an_unknown_store_is_a_message(
    measured: Path, superuser: Client, address: str, store: str
) -> None:
    before = measured.read_bytes(), ledger()
    response = superuser.post(f"{address}?store={store}", {"consent": "yes"}, follow=True)
    assert response.status_code == 200
    assert [level for level, _ in messages_of(response)] == ["error"]
    assert (measured.read_bytes(), ledger()) == before


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
def test_a_missing_file_is_a_message_and_none_is_created(
    point_at: Callable[[Path], Path], tmp_path: Path, superuser: Client, address: str
) -> None:
    path = point_at(tmp_path / "absent.db")
    response = superuser.post(address, {"consent": "yes", "post": "yes"}, follow=True)
    assert response.status_code == 200
    assert [level for level, _ in messages_of(response)] == ["error"]
    assert not path.exists()


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
def test_a_file_that_is_no_database_is_a_message(
    point_at: Callable[[Path], Path], tmp_path: Path, superuser: Client, address: str
) -> None:
    path = point_at(tmp_path / "notes.txt")
    path.write_text("These are no checkpoints.\n" * 100)
    response = superuser.post(address, {"consent": "yes"}, follow=True)
    assert [level for level, _ in messages_of(response)] == ["error"]
    assert path.read_text() == "These are no checkpoints.\n" * 100


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
@pytest.mark.parametrize("layout", ["elsewhere.Layout", "pathlib.Path"])
def test_a_wrong_layout_is_a_message(
    measured: Path,
    superuser: Client,
    retention: Callable[..., None],
    address: str,
    layout: str,
) -> None:
    retention(STORES={"history": {"LAYOUT": layout}})
    response = superuser.post(address, {"consent": "yes"}, follow=True)
    ((level, text),) = messages_of(response)
    assert (response.status_code, level) == (200, "error")
    assert f"LAYOUT '{layout}' is n" in text


def test_a_wrong_model_of_conversations_is_a_message(
    written_store: WriteStore, superuser: Client, retention: Callable[..., None]
) -> None:
    written_store([ThreadRows(thread_id="one")], None, layout="langgraph_sqlite")
    retention(STORES={"history": {"CONVERSATIONS": {"MODEL": "elsewhere.Chat"}}})
    response = superuser.post(MEASURE, follow=True)
    ((level, text),) = messages_of(response)
    assert (response.status_code, level) == (200, "error")
    assert "CONVERSATIONS with model 'elsewhere.Chat'" in text


def test_an_operation_offers_the_other_stores(
    measured: Path, second_store: Path, superuser: Client
) -> None:
    page = superuser.get(RECLAIM + "?store=other").content.decode()
    assert 'href="?store=history"' in page
    assert 'aria-current="page">other<' in page


@pytest.mark.parametrize("address", [MEASURE, RECLAIM, VACUUM])
def test_no_database_holds_a_transaction_open_around_an_operation(address: str) -> None:
    assert set(connections) <= vars(resolve(address).func)["_non_atomic_requests"]


def test_a_vacuum_works_where_requests_are_atomic(
    measured: Path, superuser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for alias in ("default", "history"):
        monkeypatch.setitem(connections.databases[alias], "ATOMIC_REQUESTS", True)
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute("DELETE FROM checkpoints WHERE thread_id = 'large'")
    response = superuser.post(VACUUM, {"consent": "yes"}, follow=True)
    assert messages_of(response) == [("success", "history: vacuumed.")]


def test_the_ledger_of_a_reclaimed_thread_is_gone(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    superuser.post(RECLAIM, ticked(consent_form(superuser.get(RECLAIM))))
    assert not Thread.objects.filter(pk__in=keys("lost-1", "lost-2")).exists()
    assert services.plan_reclaim("history", now=NOW).reclaimable == ()
