"""Sweeps in the admin: how far they came, ending one, and handing one to workers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from history_retention import broker, services, workers
from history_retention.models import Sweep
from history_retention.services import Trigger
from project.celery import app

from ..store_files import NOW, threads_in
from .conftest import SignIn
from .pages import (
    RECLAIM,
    SWEEPS,
    consent_form,
    ledger,
    messages_of,
    text_of,
    ticked,
)

EVERYONE = {"large", "small", "recent", "lost-1", "lost-2", "clearing"}


def page_of(sweep: Sweep, name: str = "change") -> str:
    return reverse(f"admin:history_retention_sweep_{name}", args=[sweep.pk])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take a broker that other processes can read for granted; keep what it would carry."""
    messages: list[int] = []
    monkeypatch.setattr(broker, "require_workers", lambda: None)
    monkeypatch.setattr(app, "send_task", lambda _n, *, args, **_o: messages.append(args[0]))
    return messages


@pytest.fixture
def running(measured: Path, sent: list[int]) -> Sweep:
    """A reclaim of two threads that workers have not begun."""
    sweep = workers.hand_over(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    sent.clear()
    return sweep


def test_a_running_sweep_is_cancelled_from_its_page(
    running: Sweep, measured: Path, sign_in: SignIn
) -> None:
    client = sign_in("view_sweep", "reclaim_thread")
    page = client.get(page_of(running))
    asked = client.get(page_of(running, "cancel"))
    response = client.post(page_of(running, "cancel"), follow=True)

    running.refresh_from_db()
    assert page_of(running, "cancel") in page.content.decode()
    assert "1 of 1" in text_of(page)
    assert "0 of 2 threads removed so far" in text_of(asked)
    assert (running.ending, running.removed_threads) == ("interrupted", 0)
    assert messages_of(response)[0][0] == "success"
    assert "Cancel…" not in text_of(response)
    assert threads_in(measured) == EVERYONE
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id) == ("staff", str(running.pk))
    assert entry.change_message == f"Sweep {running.pk} ends after the threads it is at."


def test_the_workers_are_told_again_of_a_sweep_whose_messages_were_lost(
    running: Sweep, sent: list[int], superuser: Client
) -> None:
    assert "Tell the workers again…" in text_of(superuser.get(page_of(running)))

    superuser.post(page_of(running, "resume"))

    assert sent == [running.pk]
    assert LogEntry.objects.get().object_id == str(running.pk)


def test_workers_that_no_message_reaches_are_not_said_to_be_told(
    measured: Path, monkeypatch: pytest.MonkeyPatch, superuser: Client
) -> None:
    monkeypatch.setitem(app.conf, "broker_url", "memory://")
    with monkeypatch.context() as before:
        before.setattr(app, "send_task", lambda *_args, **_options: None)
        sweep = workers.hand_over(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)

    response = superuser.post(page_of(sweep, "resume"), follow=True)

    ((level, message),) = messages_of(response)
    assert level == "error"
    assert "broker is memory://, which no other process can read" in message
    assert LogEntry.objects.count() == 0


def test_a_cancelled_sweep_whose_worker_was_lost_is_closed_by_cancelling_it_again(
    running: Sweep, superuser: Client
) -> None:
    owner = {"owner": "7 1 - another-host", "noted_at": timezone.now()}
    running.batches.update(**owner)
    superuser.post(page_of(running, "cancel"))
    page = text_of(superuser.get(page_of(running)))
    running.batches.update(noted_at=timezone.now() - timedelta(hours=1))

    superuser.post(page_of(running, "cancel"))

    running.refresh_from_db()
    assert "Cancel…" in page
    assert "Tell the workers again…" not in page
    assert (running.ending, running.removed_threads) == ("interrupted", 0)


@pytest.mark.parametrize("name", ["cancel", "resume"])
def test_a_post_from_another_site_changes_nothing(
    running: Sweep, sent: list[int], superuser: Client, name: str
) -> None:
    superuser.handler.enforce_csrf_checks = True
    before = ledger()

    assert superuser.post(page_of(running, name)).status_code == 403
    assert (ledger(), sent) == (before, [])


@pytest.mark.parametrize("name", ["cancel", "resume"])
def test_what_is_done_to_a_sweep_is_done_by_a_post_alone(
    running: Sweep, sent: list[int], superuser: Client, name: str
) -> None:
    before = ledger()

    assert superuser.get(page_of(running, name)).status_code == 200
    assert (ledger(), sent) == (before, [])


@pytest.mark.parametrize("name", ["cancel", "resume"])
@pytest.mark.parametrize(
    "permissions",
    [("view_sweep",), ("reclaim_thread",), ("view_sweep", "prune_thread", "vacuum_store")],
)
def test_a_sweep_is_ended_by_whoever_might_have_started_it(
    running: Sweep, sent: list[int], sign_in: SignIn, name: str, permissions: tuple[str, ...]
) -> None:
    client = sign_in(*permissions)
    before = ledger()

    assert client.get(page_of(running, name)).status_code == 403
    assert client.post(page_of(running, name)).status_code == 403
    assert (ledger(), sent) == (before, [])
    if "view_sweep" in permissions:
        assert "Cancel…" not in text_of(client.get(page_of(running)))


def test_a_sweep_that_ended_meanwhile_is_said_so(running: Sweep, superuser: Client) -> None:
    workers.cancel(running.pk, now=timezone.now())
    before = ledger()

    response = superuser.post(page_of(running, "cancel"), follow=True)

    assert messages_of(response) == [("warning", f"Sweep {running.pk} is not running any more.")]
    assert ledger() == before


def test_a_sweep_that_is_not_there_is_nobodys(measured: Path, superuser: Client) -> None:
    absent = reverse("admin:history_retention_sweep_cancel", args=[77])

    assert superuser.post(absent).status_code == 403


def test_a_sweep_by_one_process_says_so_and_can_be_cancelled(
    measured: Path, superuser: Client
) -> None:
    services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    sweep = Sweep.objects.get()
    Sweep.objects.update(ending="running", finished_at=None)

    page = text_of(superuser.get(page_of(sweep)))
    superuser.post(page_of(sweep, "cancel"))

    sweep.refresh_from_db()
    assert "none: swept by one process" in page
    assert "Cancel…" in page
    assert "Tell the workers again…" not in page
    assert sweep.cancelled_at is not None


def test_a_page_asks_the_ledger_as_often_for_many_sweeps_as_for_few(
    running: Sweep,
    superuser: Client,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    superuser.get(SWEEPS)
    with django_assert_num_queries(6):
        superuser.get(SWEEPS)
    for _ in range(30):
        running.pk = None
        running.save(force_insert=True)
    with django_assert_num_queries(6):
        superuser.get(SWEEPS)


def test_the_admin_hands_what_was_agreed_to_over_to_the_workers(
    measured: Path,
    sent: list[int],
    sign_in: SignIn,
    retention: Callable[..., None],
) -> None:
    retention(ADMIN_USES_CELERY=True)
    client = sign_in("view_thread", "view_sweep", "reclaim_thread")

    response = client.post(RECLAIM, ticked(consent_form(client.get(RECLAIM))), follow=True)

    sweep = Sweep.objects.get()
    ((level, message),) = messages_of(response)
    assert sent == [sweep.pk]
    assert (level, page_of(sweep) in message) == ("success", True)
    assert message.startswith("history: 2 threads were handed to the workers.")
    assert (sweep.trigger, sweep.ending, sweep.planned_threads) == ("admin", "running", 2)
    assert LogEntry.objects.get().object_id == str(sweep.pk)
    assert threads_in(measured) == EVERYONE


def test_a_thread_that_changed_since_it_was_shown_is_not_handed_over_and_said_to_be_kept(
    measured: Path, sent: list[int], superuser: Client, retention: Callable[..., None]
) -> None:
    retention(ADMIN_USES_CELERY=True)
    form = ticked(consent_form(superuser.get(RECLAIM)))
    with closing(sqlite3.connect(measured)) as connection, connection:
        connection.execute("DELETE FROM checkpoint_writes WHERE thread_id = 'lost-1'")

    response = superuser.post(RECLAIM, form, follow=True)

    ((level, message),) = messages_of(response)
    assert level == "success"
    assert message.startswith("history: 1 thread was handed to the workers. 1 kept: ")
    assert Sweep.objects.get().planned_threads == 1


def test_a_broker_that_no_worker_reads_is_said_and_nothing_goes(
    measured: Path, superuser: Client, retention: Callable[..., None]
) -> None:
    retention(ADMIN_USES_CELERY=True)
    app.conf.update(broker_url="memory://")

    response = superuser.post(RECLAIM, ticked(consent_form(superuser.get(RECLAIM))), follow=True)

    ((level, message),) = messages_of(response)
    assert level == "error"
    assert "broker is memory://, which no other process can read" in message
    assert (Sweep.objects.count(), LogEntry.objects.count()) == (0, 0)
    assert threads_in(measured) == EVERYONE
