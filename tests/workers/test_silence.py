"""Shared sweeps that nobody is at: a schedule resumes one, once, and says so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from history_retention import batching, schedule, workers
from history_retention.exceptions import HistoryRetentionError
from history_retention.models import Batch, Sweep
from project.celery import app

from ..store_files import threads_in
from .sharing import ELSEWHERE, handed, work_on

pytestmark = pytest.mark.django_db(databases=["default", "history"])

LATER = timezone.now() + timedelta(hours=2)


def test_a_silent_sweep_is_resumed_by_the_schedule_which_begins_no_other(
    store: Path, sent: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    sweep = handed()
    sent.clear()

    report = schedule.reclaim(None, now=LATER)

    assert report == {"history": {"resumed_sweep_id": sweep.pk}}
    assert sent == [sweep.pk]
    assert f"history: nobody was at sweep {sweep.pk} for an hour" in caplog.text
    assert Sweep.objects.count() == 1
    work_on(sweep)
    assert (sweep.ending, sweep.removed_threads, threads_in(store)) == ("done", 6, set())


def test_one_that_is_silent_again_is_left_to_a_person(store: Path, sent: list[int]) -> None:
    sweep = handed()
    schedule.reclaim(None, now=LATER)
    sent.clear()

    report = schedule.reclaim(None, now=LATER + timedelta(days=1))

    assert sent == []
    assert f"history_sweeps --cancel {sweep.pk}" in str(report["history"]["skipped"])
    assert len(threads_in(store)) == 6


def test_one_with_a_sign_of_life_is_not_disturbed(store: Path, sent: list[int]) -> None:
    handed()
    recently = LATER - batching.LONG_SILENCE + timedelta(minutes=1)
    Batch.objects.filter(position=1).update(owner=ELSEWHERE, noted_at=recently)
    sent.clear()

    report = schedule.reclaim(None, now=LATER)

    assert (list(report["history"]), sent) == (["skipped"], [])


def test_one_that_no_broker_could_be_told_of_is_tried_again_by_the_next_schedule(
    store: Path, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = handed()
    sent.clear()

    def refuse(*_args: object, **_options: object) -> None:
        raise ConnectionError("refused")

    with monkeypatch.context() as away:
        away.setattr(app, "send_task", refuse)
        with pytest.raises(HistoryRetentionError, match=rf"were not told of sweep {sweep.pk}"):
            schedule.reclaim(None, now=LATER)

    assert workers.resume_silent("history", now=LATER) == sweep
    assert sent == [sweep.pk]
