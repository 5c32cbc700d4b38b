"""``--celery`` of the sweeping commands, and ``history_sweeps``, which follows the sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery
from django.utils import timezone

from history_retention import broker, services, workers
from history_retention.models import Sweep
from history_retention.services import Trigger
from project.celery import app

from .commands import run
from .conftest import WriteStore
from .store_files import NOW, ConversationRow, ThreadRows, threads_in

pytestmark = pytest.mark.django_db(databases=["default", "history"])


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """Four unresumable threads and a named one, all idle for forty days."""
    return written_store(
        [ThreadRows(thread_id=name) for name in ("a", "b", "c", "d", "named")],
        [ConversationRow(thread_id="named")],
    )


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Take a broker that other processes can read for granted; keep what it would carry."""
    sent: list[int] = []
    monkeypatch.setattr(broker, "require_workers", lambda: None)
    monkeypatch.setattr(app, "send_task", lambda _name, *, args, **_options: sent.append(args[0]))
    return sent


def test_celery_hands_the_plan_over_and_says_how_to_follow_it(
    store: Path, messages: list[int]
) -> None:
    ran = run("history_reclaim", "--celery", "--no-input")

    sweep = Sweep.objects.get()
    assert (ran.status, messages) == (0, [sweep.pk])
    assert ran.out.splitlines()[-1] == (
        f"history: handed 4 threads (8 rows, 4.5 KB) to the workers as sweep {sweep.pk}, in 1 "
        f"batch; follow it with history_sweeps, end it with history_sweeps --cancel {sweep.pk}."
    )
    assert (sweep.trigger, sweep.ending, sweep.planned_threads) == ("command", "running", 4)
    assert len(threads_in(store)) == 5


def test_celery_as_json_is_one_object_with_the_plan_and_the_sweep(
    store: Path, messages: list[int]
) -> None:
    document = run(
        "history_prune", "--older-than=30", "--celery", "--no-input", "--format=json"
    ).document

    sweep = Sweep.objects.get()
    assert [thread["thread_id"] for thread in document["prunable"]] == ["named"]
    assert document["sweep"]["id"] == sweep.pk
    assert document["sweep"]["planned"]["thread_count"] == 5
    assert (document["sweep"]["batch_count"], document["sweep"]["ending"]) == (1, "running")
    assert "removed" not in document


def test_with_nothing_to_remove_nothing_is_handed_over(store: Path, messages: list[int]) -> None:
    ran = run("history_prune", "--older-than=300", "--no-reclaim", "--celery", "--no-input")

    assert (ran.status, messages, Sweep.objects.filter(batch_count__gt=0).count()) == (0, [], 0)


def test_a_dry_run_with_celery_hands_nothing_over(store: Path, messages: list[int]) -> None:
    ran = run("history_reclaim", "--celery", "--dry-run")

    assert (ran.status, messages, Sweep.objects.count()) == (0, [], 0)


@pytest.mark.parametrize("flag", ["--vacuum", "--no-vacuum"])
def test_celery_and_a_wish_for_the_vacuum_contradict_each_other(
    store: Path, messages: list[int], flag: str
) -> None:
    ran = run("history_prune", "--all", "--celery", "--no-input", flag)

    assert (ran.status, messages) == (2, [])
    assert "--celery leaves the vacuum to the workers" in ran.err


def test_a_broker_that_no_other_process_reads_is_refused_before_anything_is_planned(
    store: Path,
) -> None:
    assert isinstance(app, Celery)
    app.conf.update(broker_url="memory://")

    ran = run("history_reclaim", "--celery", "--no-input")

    assert ran.status == 2
    assert "broker is memory://, which no other process can read" in ran.err
    assert Sweep.objects.count() == 0


def test_the_running_sweeps_are_listed_with_how_far_they_came(
    store: Path, messages: list[int]
) -> None:
    plan = services.plan_reclaim("history", now=NOW)
    sweep = workers.hand_over(plan, trigger=Trigger.CODE)
    Sweep.objects.filter(pk=sweep.pk).update(removed_threads=1, removed_bytes=204)

    text = run("history_sweeps").out
    (document,) = run("history_sweeps", "--format=json").document["sweeps"]

    assert text == (
        f"history: sweep {sweep.pk} (reclaim) of {sweep.started_at:%Y-%m-%d %H:%M}: removed "
        "1 thread of 4 (204 bytes), 0 skipped; 1 of 1 batch left; running.\n"
    )
    assert document["open_batch_count"] == 1
    assert document["removed"] == {"thread_count": 1, "bytes": 204}


def test_no_running_sweep_is_said_so(store: Path) -> None:
    services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)

    assert run("history_sweeps").out == "history: no sweep is running.\n"
    assert run("history_sweeps", "--format=json").document == {"sweeps": []}


def test_a_sweep_is_cancelled_by_its_number(store: Path, messages: list[int]) -> None:
    sweep = workers.hand_over(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)

    ran = run("history_sweeps", "--cancel", str(sweep.pk))

    sweep.refresh_from_db()
    assert ran.status == 0
    assert ran.out.endswith("1 of 1 batch left; interrupted.\n")
    assert sweep.ending == "interrupted"
    assert sweep.cancelled_at is not None
    assert sweep.cancelled_at <= timezone.now()
    assert len(threads_in(store)) == 5


def test_a_sweep_whose_messages_were_lost_is_told_to_the_workers_again(
    store: Path, messages: list[int]
) -> None:
    sweep = workers.hand_over(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    messages.clear()

    ran = run("history_sweeps", "--resume", str(sweep.pk))

    assert (ran.status, messages) == (0, [sweep.pk])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--cancel=7"], "Sweep 7 is not running, so there is nothing to cancel."),
        (["--resume=7"], "Sweep 7 is not one that workers share and that goes on."),
        (["--cancel=0"], "--cancel takes a whole number from 1"),
        (["--cancel=x"], "--cancel takes a whole number from 1"),
        (["--cancel="], "--cancel takes a whole number from 1"),
        (["--resume=-1"], "--resume takes a whole number from 1"),
        (["--cancel=1", "--resume=1"], "--cancel and --resume contradict each other"),
        (["--database=nope"], "'nope' is no store of"),
        (["--format=xml"], "--format takes text or json, not 'xml'."),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    store: Path, messages: list[int], flags: list[str], told: str
) -> None:
    ran = run("history_sweeps", *flags)

    (sentence,) = ran.err.splitlines()
    assert (ran.status, ran.out) == (2, "")
    assert sentence.startswith(told)
