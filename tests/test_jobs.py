"""The daily job of django-extensions."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django_extensions.management.jobs import get_jobs

from history_retention.exceptions import HistoryRetentionError
from history_retention.models import Measurement, Sweep

from .conftest import WriteStore
from .store_files import NAMED, ONE_OF_EACH, threads_in

pytestmark = pytest.mark.usefixtures("frozen_clock")


def daily_job() -> Any:
    """The job as django-extensions finds it."""
    jobs = get_jobs("daily")  # type: ignore[no-untyped-call]
    return jobs["history_retention", "history_retention"]()


def test_runjobs_finds_a_daily_job() -> None:
    assert (daily_job().when, type(daily_job()).__module__) == (
        "daily",
        "history_retention.jobs.daily.history_retention",
    )


def test_runjobs_daily_measures_and_reclaims_and_prunes_nothing_unasked(
    written_store: WriteStore,
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    call_command("runjobs", "daily", stdout=StringIO())

    assert threads_in(path) == {"named", "fresh"}
    assert Measurement.objects.get().thread_count == 3
    assert list(Sweep.objects.values_list("kind", "trigger")) == [("reclaim", "schedule")]


def test_the_job_applies_the_policies_of_the_settings(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    retention(POLICIES=[{"STORE": "history", "OLDER_THAN": 30}])
    path = written_store(ONE_OF_EACH, NAMED)

    daily_job().execute()

    assert threads_in(path) == {"fresh"}
    assert list(Sweep.objects.order_by("pk").values_list("kind", "trigger")) == [
        ("reclaim", "schedule"),
        ("prune", "schedule"),
    ]


def test_a_store_that_fails_is_named_at_the_end_and_does_not_stop_the_others(
    written_store: WriteStore,
    retention: Callable[..., None],
    tmp_path: Path,
    add_store: Callable[[str, Path], None],
) -> None:
    add_store("other", tmp_path / "absent.db")
    retention(
        STORES={"other": {}, "history": {}},
        POLICIES=[{"STORE": "other", "ALL": True}, {"STORE": "history", "OLDER_THAN": 30}],
    )
    path = written_store(ONE_OF_EACH, NAMED)

    with pytest.raises(HistoryRetentionError, match=r"other: .*absent\.db"):
        daily_job().execute()

    assert threads_in(path) == {"fresh"}
    assert Measurement.objects.get().store == "history"


def test_a_store_where_nothing_names_threads_still_gets_its_policy(
    written_store: WriteStore, retention: Callable[..., None]
) -> None:
    retention(POLICIES=[{"STORE": "history", "OLDER_THAN": 30}])
    path = written_store(ONE_OF_EACH, None, layout="langgraph_sqlite")

    daily_job().execute()

    assert threads_in(path) == {"fresh"}
