"""What hands a sweep to workers: a broker of whatever kind, and a plan with something in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from history_retention import services
from history_retention.broker import require_workers
from history_retention.exceptions import HistoryRetentionError, UsageError
from history_retention.models import Sweep
from history_retention.services import Trigger
from project.celery import app

from .sharing import handed, reclaim

pytestmark = pytest.mark.django_db(databases=["default", "history"])


@pytest.mark.parametrize(
    "error", [PermissionError("403 ACCESS_REFUSED"), KeyError("No such transport"),
              ModuleNotFoundError("botocore"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_a_broker_that_fails_in_a_way_of_its_own_leaves_no_sweep_that_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(app, "send_task", refuse)

    with pytest.raises((HistoryRetentionError, KeyboardInterrupt)):
        handed()

    assert Sweep.objects.get().ending == "interrupted"
    assert services.execute(reclaim(), trigger=Trigger.CODE).removed.thread_count == 6


def test_a_plan_without_a_thread_is_not_handed_over(store: Path, sent: list[int]) -> None:
    services.execute(reclaim(), trigger=Trigger.CODE)

    with pytest.raises(UsageError, match="no thread to hand to workers"):
        handed()

    assert (Sweep.objects.count(), sent) == (1, [])


@pytest.mark.parametrize(
    ("broker", "sentence"),
    [
        ("memory://", "broker is memory://, which no other process can read"),
        ("carrier-pigeon://", "broker_url cannot be used .*carrier-pigeon"),
        ("redis://127.0.0.1:port", "broker_url cannot be used .*port"),
    ],
)
def test_a_broker_that_cannot_be_is_a_sentence_before_anything_is_planned(
    broker: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(app.conf, "broker_url", broker)

    with pytest.raises(UsageError, match=sentence):
        require_workers()
