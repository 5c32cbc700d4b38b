"""Holds in the admin: who gave them, and that they name exactly one thread."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from history_retention import services
from history_retention.admin.words import readable
from history_retention.models import Hold

from ..conftest import WriteStore
from ..store_files import NOW, ThreadRows
from .conftest import Keys, SignIn
from .pages import ADD_HOLD, ADMIN, HOLDS, messages_of, page_of, text_of

NO_END = {"until_0": "", "until_1": ""}


def test_a_hold_is_its_giver_s(measured: Path, sign_in: SignIn) -> None:
    client = sign_in("add_hold", "view_hold")
    client.post(
        ADD_HOLD,
        {"store": "history", "thread_id": "small", "reason": "audit", "by": "99", **NO_END},
    )
    hold = Hold.objects.get()
    assert (hold.store, hold.thread_id, hold.by) == ("history", "small", User.objects.get())


def test_a_threads_page_leads_to_a_hold_on_it(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    (key,) = keys("small")
    address = f"{ADD_HOLD}?thread={key}"
    assert f'href="{address}"' in superuser.get(page_of(key)).content.decode()
    superuser.post(address, {"reason": "audit", **NO_END})
    assert Hold.objects.get().thread_id == "small"
    assert "audit" in text_of(superuser.get(page_of(key)))


@pytest.mark.parametrize(
    "thread_id", [" two\nlines\t'\"<b> ", "a\0b", "no text \udcff", "json:x"], ids=ascii
)
def test_a_hold_from_a_threads_page_takes_the_id_as_it_is(
    written_store: WriteStore, superuser: Client, keys: Keys, thread_id: str
) -> None:
    path = written_store([ThreadRows(thread_id="t")])
    with closing(sqlite3.connect(path)) as agent, agent:
        for table in ("checkpoints", "checkpoint_writes"):
            raw = thread_id.encode(errors="surrogateescape")
            agent.execute(f"UPDATE {table} SET thread_id = CAST(? AS TEXT)", (raw,))
    services.measure("history", now=NOW)
    (key,) = keys(thread_id)
    forged = {"reason": "audit", "thread_id": "another", "store": "default", **NO_END}
    shown = superuser.get(f"{ADD_HOLD}?thread={key}")
    superuser.post(f"{ADD_HOLD}?thread={key}", forged)
    hold = Hold.objects.get()
    page = superuser.get(reverse(f"{ADMIN}hold_change", args=[hold.pk]))
    assert (shown.status_code, page.status_code) == (200, 200)
    assert escape(readable(thread_id)) in page.content.decode()
    assert hold.thread_id == thread_id
    assert services.plan_reclaim("history", now=NOW).reclaimable == ()
    assert "audit" in text_of(superuser.get(page_of(key)))


def test_whoever_may_not_add_holds_is_offered_none(
    measured: Path, sign_in: SignIn, keys: Keys
) -> None:
    client = sign_in("view_thread", "view_hold")
    (key,) = keys("small")
    assert ADD_HOLD not in client.get(page_of(key)).content.decode()
    response = client.post(ADD_HOLD, {"store": "history", "thread_id": "small", "reason": "x"})
    assert response.status_code == 403
    assert not Hold.objects.exists()


def test_whoever_may_not_see_threads_learns_no_id_from_a_key(
    measured: Path, sign_in: SignIn, keys: Keys
) -> None:
    client = sign_in("add_hold", "view_hold")
    (key,) = keys("small")
    assert "small" not in client.get(f"{ADD_HOLD}?thread={key}").content.decode()


def test_a_typed_id_keeps_its_spaces_and_an_unknown_one_is_said(
    measured: Path, superuser: Client
) -> None:
    response = superuser.post(
        ADD_HOLD, {"store": "history", "thread_id": " small ", "reason": "audit", **NO_END}
    )
    assert Hold.objects.get().thread_id == " small "
    assert "warning" in [level for level, _ in messages_of(response)]


def test_a_hold_is_on_a_store_of_the_settings(measured: Path, superuser: Client) -> None:
    page = superuser.post(
        ADD_HOLD, {"store": "elsewhere", "thread_id": "small", "reason": "audit", **NO_END}
    )
    assert not Hold.objects.exists()
    assert "elsewhere is not one of the available choices" in text_of(page)


def test_a_hold_cannot_be_moved_to_another_thread_or_person(
    measured: Path, superuser: Client
) -> None:
    giver = User.objects.create_user("giver")
    hold = Hold.objects.create(store="history", thread_id="small", reason="audit", by=giver)
    address = reverse(f"{ADMIN}hold_change", args=[hold.pk])
    superuser.post(
        address, {"store": "other", "thread_id": "large", "reason": "still", "by": "1", **NO_END}
    )
    hold.refresh_from_db()
    assert (hold.store, hold.thread_id, hold.by) == ("history", "small", giver)
    assert hold.reason == "still"


def test_the_list_of_holds_takes_as_many_queries_for_60_as_for_3(
    superuser: Client,
) -> None:

    giver = User.objects.create_user("giver")
    counts = []
    for number in (3, 60):
        Hold.objects.bulk_create(
            Hold(store="history", thread_id=f"{number}-{index}", reason="audit", by=giver)
            for index in range(number)
        )
        with CaptureQueriesContext(connection) as queries:
            assert superuser.get(HOLDS).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
