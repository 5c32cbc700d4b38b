"""The action that prunes selected threads: asked first, then exactly what was shown."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from history_retention import services
from history_retention.admin import confirming, threads
from history_retention.models import Hold, Sweep, Thread
from history_retention.stores import open_store

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
    RECLAIM,
    THREADS,
    ask_to_prune,
    consent_form,
    ledger,
    messages_of,
    prune,
    text_of,
    ticked,
)

SWEEPS = Sweep._meta.db_table
EVERYONE = {"large", "small", "recent", "lost-1", "lost-2", "clearing"}


def test_asking_shows_what_would_go_and_changes_nothing(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    before = measured.read_bytes(), ledger()
    page = ask_to_prune(superuser, keys("large", "small", "recent"))
    text = text_of(page)
    assert (measured.read_bytes(), ledger()) == before
    assert "3 threads" in text
    assert "5 checkpoints and 4 writes" in text
    assert "1 of them was active within the grace window." in text
    assert "This cannot be undone." in text
    assert page.context["byte_count"] == sum(
        Thread.objects.filter(thread_id__in=["large", "small", "recent"]).values_list(
            "byte_count", flat=True
        )
    )


def test_agreeing_removes_exactly_the_selected_threads(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    before = rows_of(measured)
    response = prune(superuser, keys("large", "lost-1"))
    after = rows_of(measured)
    gone = {"large", "lost-1"}
    for table in ("checkpoints", "checkpoint_writes"):
        assert after[table] == [row for row in before[table] if row[0] not in gone]
    assert after["conversations"] == before["conversations"]
    assert after["sessions"] == before["sessions"]
    assert set(Thread.objects.values_list("thread_id", flat=True)) == EVERYONE - gone
    ((level, text),) = messages_of(response)
    assert level == "success"
    assert text.startswith("history: removed the stored state of 2 threads (7 rows, ")


def test_what_was_removed_is_on_record_twice(measured: Path, superuser: Client, keys: Keys) -> None:
    prune(superuser, keys("large", "small"))
    user = User.objects.get()
    sweep = Sweep.objects.get()
    entries = LogEntry.objects.filter(user=user, action_flag=DELETION)
    assert (sweep.kind, sweep.trigger, sweep.actor) == ("prune", "admin", user)
    assert (sweep.removed_threads, sweep.ending, sweep.bounds) == (2, "done", {"selected": 2})
    assert {entry.object_id for entry in entries} == set(keys("large", "small"))
    assert {entry.object_repr for entry in entries} == {"history: large", "history: small"}


def test_what_went_is_logged_although_the_ledger_still_lists_it(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER keep BEFORE DELETE ON {Thread._meta.db_table} "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
    prune(superuser, keys("large", "small"))
    assert Thread.objects.filter(pk__in=keys("large", "small")).count() == 2
    assert threads_in(measured) == EVERYONE - {"large", "small"}
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == set(keys("large", "small"))


def test_nothing_is_logged_before_it_is_gone(measured: Path, superuser: Client, keys: Keys) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large", "small")))
    with CaptureQueriesContext(connections["default"]) as queries:
        superuser.post(THREADS, ticked(form))
    statements = [query["sql"] for query in queries]
    logged = [at for at, sql in enumerate(statements) if LogEntry._meta.db_table in sql]
    recorded = [at for at, sql in enumerate(statements) if f'UPDATE "{SWEEPS}"' in sql]
    assert len(logged) == 1
    assert max(recorded) < logged[0]


@pytest.mark.parametrize("changes", [{}, {"consent": ["no"]}, {"consent": [""]}])
def test_without_the_box_ticked_nothing_goes_and_the_page_asks_again(
    measured: Path, superuser: Client, keys: Keys, changes: dict[str, list[str]]
) -> None:
    before = measured.read_bytes(), ledger()
    form = consent_form(ask_to_prune(superuser, keys("large")))
    page = superuser.post(THREADS, {**form, **changes})
    assert (measured.read_bytes(), ledger()) == before
    assert "Nothing was removed yet: tick the box" in text_of(page)
    assert consent_form(page)["_selected_action"] == keys("large")


def test_without_the_permission_the_action_is_neither_offered_nor_done(
    measured: Path, sign_in: SignIn, superuser: Client, keys: Keys
) -> None:
    form = ticked(consent_form(ask_to_prune(superuser, keys("large"))))
    before = measured.read_bytes(), ledger()
    client = sign_in("view_thread", "reclaim_thread", "measure_thread", "vacuum_store")
    page = client.get(THREADS)
    asked = ask_to_prune(client, keys("large"))
    client.post(THREADS, form)
    assert (measured.read_bytes(), ledger()) == before
    assert "prune_selected" not in page.content.decode()
    assert consent_form(asked) == {}


def test_the_permission_is_asked_again_when_acting(
    measured: Path, sign_in: SignIn, keys: Keys
) -> None:
    client = sign_in("view_thread", "prune_thread")
    form = ticked(consent_form(ask_to_prune(client, keys("large"))))
    User.objects.get().user_permissions.remove(
        *User.objects.get().user_permissions.filter(codename="prune_thread")
    )
    client.post(THREADS, form)
    assert threads_in(measured) == EVERYONE
    assert not Sweep.objects.exists()


def test_prune_alone_is_enough_to_prune(measured: Path, sign_in: SignIn, keys: Keys) -> None:
    client = sign_in("view_thread", "prune_thread")
    prune(client, keys("large"))
    assert threads_in(measured) == EVERYONE - {"large"}
    assert client.get(RECLAIM).status_code == 403


def test_selecting_across_1200_threads_posts_the_ticked_ones_alone(
    written_store: WriteStore, superuser: Client, keys: Keys, frozen_clock: object
) -> None:
    path = written_store(
        [ThreadRows(thread_id=f"thread-{index:04}", writes=0, size=300) for index in range(1_200)],
        [ConversationRow(thread_id=f"thread-{index:04}") for index in range(1_200)],
    )
    services.measure("history", now=NOW)
    page = ask_to_prune(superuser, keys("thread-0000"), select_across=True)
    form = consent_form(page)
    superuser.post(THREADS, ticked(form))
    assert "And 1,100 more threads" in text_of(page)
    assert sum(len(values) for values in form.values()) < 10
    assert threads_in(path) == set()
    assert LogEntry.objects.count() == 1_200
    assert Sweep.objects.get().removed_threads == 1_200


def test_selecting_across_keeps_to_the_filters(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    prune(superuser, keys("lost-1"), select_across=True, query="?state=unresumable")
    assert threads_in(measured) == EVERYONE - {"lost-1", "lost-2"}


def test_a_thread_that_was_not_shown_stops_it_all_and_is_shown(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large"), select_across=True))
    add_threads(measured, [ThreadRows(thread_id="late")])
    add_conversations(measured, [ConversationRow(thread_id="late")])
    services.measure("history", now=NOW)
    before = measured.read_bytes(), ledger()
    page = superuser.post(THREADS, ticked(form))
    assert (measured.read_bytes(), ledger()) == before
    assert "Nothing was removed: 1 thread would go that you had not been shown." in text_of(page)
    superuser.post(THREADS, ticked(consent_form(page)))
    assert threads_in(measured) == {"clearing"}


def test_a_thread_that_changed_since_it_was_shown_stays_and_the_others_go(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large", "small")))
    add_threads(measured, [ThreadRows(thread_id="small", age=timedelta(minutes=-1))])
    response = superuser.post(THREADS, ticked(form), follow=True)
    assert threads_in(measured) == EVERYONE - {"large"}
    assert "1 kept: active since the plan." in messages_of(response)[0][1]
    assert {entry.object_repr for entry in LogEntry.objects.all()} == {"history: large"}


def test_a_thread_with_a_new_turn_since_it_was_shown_stays(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("small")))
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute(
            "INSERT INTO sessions (ts, conversation_id) VALUES ('2026-11-30T12:05:00Z', 2)"
        )
    response = superuser.post(THREADS, ticked(form), follow=True)
    assert threads_in(measured) == EVERYONE
    assert messages_of(response) == [
        ("warning", "history: nothing was removed. 1 kept: active since the plan.")
    ]
    assert not LogEntry.objects.exists()


def test_threads_gone_before_the_page_are_named_as_gone(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute("DELETE FROM checkpoints WHERE thread_id = 'small'")
        store.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'small'")
    page = ask_to_prune(superuser, keys("small", "large"))
    assert "1 thread: no longer in the store small" in text_of(page)
    assert page.context["thread_count"] == 1


def test_threads_gone_after_the_page_do_not_hold_up_the_others(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("small", "large")))
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute("DELETE FROM checkpoints WHERE thread_id = 'small'")
        store.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'small'")
    superuser.post(THREADS, ticked(form))
    assert threads_in(measured) == EVERYONE - {"small", "large"}
    assert Sweep.objects.get().removed_threads == 1


def test_a_thread_that_changed_since_it_was_measured_is_marked(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    add_threads(measured, [ThreadRows(thread_id="small", age=timedelta(days=39))])
    (page,) = ask_to_prune(superuser, keys("small", "large")).context["pages"]
    assert {row.whole_id: row.has_changed for row in page.rows} == {
        "small": True,
        "large": False,
    }


def test_what_is_kept_is_named_with_its_reason(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    Hold.objects.create(store="history", thread_id="small", reason="a court wants it")
    page = ask_to_prune(superuser, keys("small", "clearing"))
    text = text_of(page)
    assert "Nothing would go." in text
    assert "1 thread: held small" in text
    assert "yet active within the grace window clearing" in text
    assert consent_form(page) == {}


def test_a_hold_placed_after_the_page_keeps_its_thread(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("small", "large")))
    Hold.objects.create(store="history", thread_id="small", reason="a court wants it")
    superuser.post(THREADS, ticked(form))
    assert threads_in(measured) == EVERYONE - {"large"}


def test_a_hold_that_ended_after_the_page_still_keeps_its_thread(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    hold = Hold.objects.create(store="history", thread_id="small", reason="a court wants it")
    form = consent_form(ask_to_prune(superuser, keys("small", "large")))
    hold.delete()
    page = superuser.post(THREADS, ticked(form))
    assert threads_in(measured) == EVERYONE
    assert "1 thread would go that you had not been shown" in text_of(page)


def test_threads_of_several_stores_are_shown_and_removed_store_by_store(
    measured: Path, second_store: Path, superuser: Client, keys: Keys
) -> None:
    services.measure("other", now=NOW)
    selected = [*keys("small"), *keys("small", store="other")]
    page = ask_to_prune(superuser, selected)
    response = superuser.post(THREADS, ticked(consent_form(page)), follow=True)
    assert [each.store for each in page.context["pages"]] == ["history", "other"]
    assert threads_in(measured) == EVERYONE - {"small"}
    assert threads_in(second_store) == set()
    assert [level for level, _ in messages_of(response)] == ["success", "success"]
    assert set(Sweep.objects.values_list("store", "removed_threads")) == {
        ("history", 1),
        ("other", 1),
    }


def test_all_stores_of_a_request_share_its_time(
    measured: Path,
    second_store: Path,
    superuser: Client,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services.measure("other", now=NOW)
    selected = [*keys("small"), *keys("small", store="other")]
    form = consent_form(ask_to_prune(superuser, selected))

    def clock() -> float:
        return 15.0 * (2 - len({"small"} & threads_in(measured)) + Sweep.objects.count())

    monkeypatch.setattr(confirming, "time", SimpleNamespace(monotonic=clock))
    response = superuser.post(THREADS, ticked(form), follow=True)
    assert threads_in(measured) == EVERYONE - {"small"}
    assert threads_in(second_store) == {"small"}
    assert [level for level, _ in messages_of(response)] == ["success", "warning"]


def test_another_stores_thread_of_the_same_id_stays(
    measured: Path, second_store: Path, superuser: Client, keys: Keys
) -> None:
    services.measure("other", now=NOW)
    before = second_store.read_bytes()
    prune(superuser, keys("small"))
    assert second_store.read_bytes() == before
    assert "small" not in threads_in(measured)


def test_a_key_from_outside_the_filtered_store_is_not_taken(
    measured: Path, second_store: Path, superuser: Client, keys: Keys
) -> None:
    services.measure("other", now=NOW)
    form = consent_form(ask_to_prune(superuser, keys("small"), query="?store=history"))
    forged = {**form, "_selected_action": keys("small", store="other")}
    before = measured.read_bytes(), second_store.read_bytes(), ledger()
    superuser.post(THREADS + "?store=history", ticked(forged))
    assert (measured.read_bytes(), second_store.read_bytes(), ledger()) == before


def test_a_thread_added_to_the_posted_selection_does_not_go(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("small")))
    before = measured.read_bytes(), ledger()
    page = superuser.post(THREADS, ticked(form, _selected_action=keys("small", "large")))
    assert (measured.read_bytes(), ledger()) == before
    assert "1 thread would go that you had not been shown" in text_of(page)


def test_a_missing_file_is_said_and_does_not_hold_up_the_other_store(
    measured: Path, second_store: Path, superuser: Client, keys: Keys
) -> None:
    services.measure("other", now=NOW)
    second_store.unlink()
    page = ask_to_prune(superuser, [*keys("small"), *keys("small", store="other")])
    response = superuser.post(THREADS, ticked(consent_form(page)), follow=True)
    assert second_store.name in page.context["pages"][1].error
    assert not second_store.exists()
    assert threads_in(measured) == EVERYONE - {"small"}
    assert [level for level, _ in messages_of(response)] == ["error", "success"]


def test_a_wrong_setting_of_one_store_is_said_and_does_not_hold_up_the_other(
    measured: Path,
    second_store: Path,
    superuser: Client,
    keys: Keys,
    retention: Callable[..., None],
) -> None:
    services.measure("other", now=NOW)
    retention(STORES={"history": {}, "other": {"LAYOUT": "elsewhere.Layout"}})
    response = prune(superuser, [*keys("small"), *keys("small", store="other")])
    assert threads_in(measured) == EVERYONE - {"small"}
    assert threads_in(second_store) == {"small"}
    assert [level for level, _ in messages_of(response)] == ["error", "success"]


@pytest.mark.parametrize(
    "changes",
    [
        {"as_of": ["2030-01-01T00:00:00+00:00"]},
        {"as_of": [""]},
        {"as_of": ["yesterday"]},
        {"as_of": ["2026-02-30T00:00:00+00:00"]},
        {"shown": [""]},
        {"shown": ["AAAAAAAABBBBBBBB"]},
        {"shown": ["AAAAAAAABBBBBBBB:c2lnbmF0dXJl"]},
    ],
)
def test_a_tampered_confirmation_is_refused(
    measured: Path, superuser: Client, keys: Keys, changes: dict[str, list[str]]
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large")))
    before = measured.read_bytes(), ledger()
    response = superuser.post(THREADS, ticked(form, **changes), follow=True)
    assert (measured.read_bytes(), ledger()) == before
    ((level, text),) = messages_of(response)
    assert level == "error"
    assert "does not match what you were shown" in text


def test_a_confirmation_shown_to_one_person_is_nobody_elses(
    measured: Path, superuser: Client, sign_in: SignIn, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large")))
    client = sign_in("view_thread", "prune_thread")
    response = client.post(THREADS, ticked(form), follow=True)
    assert threads_in(measured) == EVERYONE
    assert messages_of(response)[0][0] == "error"


def test_the_confirmation_of_a_reclaim_is_none_of_a_prune(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    reclaim = consent_form(superuser.get(RECLAIM))
    prune_form = consent_form(ask_to_prune(superuser, keys("lost-1")))
    forged = {**prune_form, "as_of": reclaim["as_of"], "shown": reclaim["shown"]}
    superuser.post(THREADS, ticked(forged))
    assert threads_in(measured) == EVERYONE


def test_another_sweep_at_work_is_said_and_nothing_is_logged(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    form = consent_form(ask_to_prune(superuser, keys("large")))
    with open_store("history") as store, store.only_one("sweep"):
        response = superuser.post(THREADS, ticked(form), follow=True)
    assert threads_in(measured) == EVERYONE
    assert messages_of(response)[0][0] == "error"
    assert "another" in messages_of(response)[0][1]
    assert not LogEntry.objects.exists()


def test_a_prune_that_runs_out_of_time_says_to_do_it_again(
    measured: Path, superuser: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirming, "REQUEST_SECONDS", -1)
    response = prune(superuser, keys("large", "small"))
    ((level, text),) = messages_of(response)
    assert level == "warning"
    assert "do it again for the rest" in text
    assert threads_in(measured) == EVERYONE
    assert not LogEntry.objects.exists()


def test_a_refusing_trigger_leaves_the_thread_whole_and_unlogged(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    with closing(sqlite3.connect(measured)) as store, store:
        store.execute(
            "CREATE TRIGGER refuse BEFORE DELETE ON checkpoint_writes "
            "BEGIN SELECT RAISE(ABORT, 'not today'); END"
        )
    before = rows_of(measured)
    response = prune(superuser, keys("large"))
    assert rows_of(measured) == before
    assert messages_of(response)[0][0] == "error"
    assert not LogEntry.objects.exists()
    assert Thread.objects.filter(pk__in=keys("large")).exists()


def test_more_threads_than_a_request_has_time_for_are_refused(
    measured: Path, superuser: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MOST_THREADS", 2)
    response = ask_to_prune(superuser, keys("large", "small", "recent"))
    assert response.status_code == 302
    assert "More than 2 threads are selected" in messages_of(response)[0][1]


def test_nothing_selected_is_said(measured: Path, superuser: Client) -> None:
    before = measured.read_bytes(), ledger()
    response = superuser.post(
        THREADS, {"action": "prune_selected", "index": "0", "select_across": "0"}
    )
    assert (measured.read_bytes(), ledger()) == before
    assert messages_of(response)[0][0] == "warning"


def test_threads_of_a_store_that_cannot_tell_stay_with_that_reason(
    written_store: WriteStore, superuser: Client, keys: Keys, frozen_clock: object
) -> None:
    path = written_store([ThreadRows(thread_id="one")], None)
    services.measure("history", now=NOW)
    page = ask_to_prune(superuser, keys("one"))
    assert "the store cannot tell who names them, so they stay" in text_of(page)
    assert consent_form(page) == {}
    assert threads_in(path) == {"one"}


def test_a_store_taken_out_of_the_settings_is_said(
    measured: Path, second_store: Path, superuser: Client, keys: Keys,
    retention: Callable[..., None],
) -> None:  # fmt: skip
    services.measure("other", now=NOW)
    retention(STORES={"history": {}})
    page = ask_to_prune(superuser, keys("small", store="other"))
    assert page.context["pages"][0].error
    assert consent_form(page) == {}


def test_a_thread_whose_id_is_no_text_stays_with_that_reason(
    written_store: WriteStore, superuser: Client, frozen_clock: object
) -> None:
    path = written_store([ThreadRows(thread_id="nul\0inside")])
    services.measure("history", now=NOW)
    page = ask_to_prune(superuser, list(Thread.objects.values_list("pk", flat=True)))
    assert "1 thread: unknown age nul\\x00inside" in text_of(page)
    assert consent_form(page) == {}
    assert threads_in(path) == {"nul\0inside"}


def test_no_database_holds_a_transaction_open_around_the_action() -> None:
    assert {"default", "history"} <= vars(resolve(THREADS).func)["_non_atomic_requests"]
