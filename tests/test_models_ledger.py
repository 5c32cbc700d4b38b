"""What the package remembers in the project's own database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models

from history_retention.facts import Ending, State
from history_retention.models import Hold, Measurement, Sweep, Thread

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def thread(thread_id: str = "t", *, store: str = "history", **fields: Any) -> Thread:
    """Keep a thread as measured."""
    kept = {"byte_count": 0, "checkpoint_count": 0, "write_count": 0, "turn_count": 0, **fields}
    return Thread.objects.create(
        digest=Thread.digest_of(store, thread_id),
        store=store,
        thread_id=thread_id,
        **kept,
    )


def hold(thread_id: str = "t", until: datetime | None = None) -> Hold:
    """Keep a hold."""
    return Hold.objects.create(store="history", thread_id=thread_id, reason="audit", until=until)


def test_the_key_of_a_thread_is_the_sha_256_of_store_and_id() -> None:
    digest = Thread.digest_of("history", "thread-1")

    assert digest == hashlib.sha256(b"history\0thread-1").hexdigest()


def test_ids_that_differ_in_anything_have_keys_that_differ() -> None:
    alike = ["a", "A", "a ", " a", "\u00e9", "e\u0301", "1", "01", "\0", "\udc80", "x" * 300]
    ids = ["", *alike, "\N{THUMBS UP SIGN}"]

    digests = {Thread.digest_of(store, name) for store in ("a", "b") for name in ids}

    assert len(digests) == 2 * len(ids)


def test_a_thread_with_any_id_is_kept_and_found_again() -> None:
    ids = ["", "x" * 100_000, "%_'\"", "\N{THUMBS UP SIGN}", " leading", "A", "a"]
    for name in ids:
        thread(name)

    assert {kept.thread_id for kept in Thread.objects.all()} == set(ids)


def test_a_thread_of_the_same_store_and_id_is_kept_once() -> None:
    thread("t")

    with pytest.raises(IntegrityError):
        thread("t")


def test_threads_are_listed_largest_first() -> None:
    for name, size in (("small", 1), ("large", 300), ("middle", 20)):
        thread(name, byte_count=size)

    assert [kept.thread_id for kept in Thread.objects.all()] == ["large", "middle", "small"]


def test_every_state_of_a_thread_is_a_choice_that_validates() -> None:
    choices = {value for value, _ in Thread._meta.get_field("state").choices or ()}
    kept = thread(turn_count=1)

    assert choices == set(State)
    for state in State:
        kept.state = state
        kept.full_clean()
    kept.state = "lost"
    with pytest.raises(ValidationError):
        kept.full_clean()


def test_a_size_beyond_32_bits_is_kept_exactly() -> None:
    thread(byte_count=890 * 10**9)

    assert Thread.objects.get().byte_count == 890_000_000_000


def test_every_ending_of_a_sweep_is_a_choice() -> None:
    choices = {value for value, _ in Sweep._meta.get_field("ending").choices or ()}

    assert choices == set(Ending)


def test_a_sweep_outlives_the_person_who_started_it() -> None:
    actor = User.objects.create(username="somebody")
    sweep = Sweep.objects.create(
        kind=Sweep.Kind.PRUNE,
        store="history",
        trigger=Sweep.Trigger.ADMIN,
        actor=actor,
        as_of=NOW,
        started_at=NOW,
    )

    actor.delete()
    sweep.refresh_from_db()

    assert sweep.actor is None
    assert sweep.ending == Ending.RUNNING


@pytest.mark.parametrize(
    ("until", "active"),
    [
        (None, True),
        (NOW + timedelta(microseconds=1), True),
        (NOW, False),
        (NOW - timedelta(days=1), False),
    ],
)
def test_a_hold_counts_until_its_end_and_not_at_it(until: datetime | None, active: bool) -> None:
    hold(until=until)

    assert Hold.objects.active(NOW).exists() is active


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (lambda: thread("t-1"), "history: t-1"),
        (lambda: hold("t-1"), "history: t-1"),
        (lambda: Measurement(store="history", measured_at=NOW), "history 2026-11-30 12:00"),
        (
            lambda: Sweep(kind="prune", store="history", started_at=NOW),
            "prune history 2026-11-30 12:00",
        ),
    ],
)
def test_a_row_says_what_it_is(row: Callable[[], models.Model], text: str) -> None:
    assert str(row()) == text


def test_the_permissions_are_those_that_commands_and_pages_ask_for() -> None:
    permissions = Permission.objects.filter(content_type__app_label="history_retention")

    assert set(permissions.values_list("codename", flat=True)) == {
        "view_thread",
        "prune_thread",
        "reclaim_thread",
        "measure_thread",
        "vacuum_store",
        "view_measurement",
        "view_sweep",
        "view_lease",
        "add_hold",
        "change_hold",
        "delete_hold",
        "view_hold",
        "view_checkpoint",
        "view_checkpointblob",
        "view_checkpointwrite",
        "view_langgraphwrite",
        "view_conversation",
        "view_session",
        "view_session_content",
    }
