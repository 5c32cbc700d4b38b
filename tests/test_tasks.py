"""The Celery tasks: by a real worker, as plain functions, and with what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from threading import Event

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging, task_postrun, task_prerun
from django.db import connections

from history_retention import tasks, workers
from history_retention.exceptions import HistoryRetentionError, UsageError
from history_retention.models import Measurement, Sweep
from history_retention.stores import open_store
from project.celery import app as project_app

from .commands import PROJECT, environment
from .conftest import WriteStore
from .store_files import NAMED, ONE_OF_EACH, ThreadRows, threads_in

COUNTS = {
    "planned_threads", "kept_threads", "removed_threads", "removed_checkpoints",
    "removed_writes", "removed_bytes", "skipped_threads", "vacuumed",
}  # fmt: skip


@pytest.fixture
def worker(db: None) -> Iterator[Celery]:
    """A worker in a thread of this process, with broker and results in memory.

    It works on the test's own connection to the ledger, as Django's live server does, and
    leaves the logging as it is.
    """
    project_app.conf.update(
        broker_url="memory://",
        result_backend="cache+memory://",
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
    )
    ledger = connections["default"]

    def share(**kwargs: object) -> None:
        connections["default"] = ledger

    def leave(**kwargs: object) -> None:
        pass

    task_prerun.connect(share, weak=False)
    setup_logging.connect(leave, weak=False)
    ledger.inc_thread_sharing()
    try:
        with start_worker(project_app, perform_ping_check=False, pool="solo"):
            yield project_app
    finally:
        ledger.dec_thread_sharing()
        setup_logging.disconnect(leave)
        task_prerun.disconnect(share)


def test_a_worker_measures_reclaims_and_prunes(
    worker: Celery, written_store: WriteStore, frozen_clock: object
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    measured = worker.send_task("history_retention.measure").get(timeout=60)
    reclaimed = worker.send_task("history_retention.reclaim").get(timeout=60)
    left = threads_in(path)
    pruned = worker.send_task(
        "history_retention.prune", kwargs={"database": "history", "older_than_days": 30}
    ).get(timeout=60)

    assert measured["history"]["thread_count"] == 3
    assert measured["history"]["reclaimable_count"] == 1
    assert (reclaimed["history"]["removed_threads"], left) == (1, {"named", "fresh"})
    assert (pruned["history"]["removed_threads"], threads_in(path)) == (1, {"fresh"})
    assert Measurement.objects.count() == 1
    assert list(Sweep.objects.order_by("pk").values_list("kind", "trigger", "ending")) == [
        ("reclaim", "schedule", "done"),
        ("prune", "schedule", "done"),
    ]


def test_workers_share_a_sweep_batch_by_batch_until_it_is_closed(
    worker: Celery,
    written_store: WriteStore,
    frozen_clock: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "ROWS_A_BATCH", 2)
    path = written_store([ThreadRows(thread_id=f"t{number}") for number in range(6)])
    closed = Event()

    def note(sender: object, **kwargs: object) -> None:
        if not Sweep.objects.filter(ending="running").exists():
            closed.set()

    task_postrun.connect(note)
    try:
        result = worker.send_task("history_retention.reclaim", kwargs={"parallel": True}).get(
            timeout=60
        )
        assert closed.wait(60)
    finally:
        task_postrun.disconnect(note)

    sweep = Sweep.objects.get()
    assert (result["history"]["sweep_id"], result["history"]["batch_count"]) == (sweep.pk, 6)
    assert (sweep.ending, sweep.removed_threads, sweep.trigger) == ("done", 6, "schedule")
    assert threads_in(path) == set()


@pytest.mark.parametrize("parallel", ["false", 1, None])
def test_whether_workers_share_a_sweep_is_told_by_true_or_false(
    written_store: WriteStore, parallel: object
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    with pytest.raises(UsageError, match="takes True or False"):
        tasks.reclaim(parallel=parallel)  # type: ignore[arg-type]

    assert threads_in(path) == {"named", "fresh", "unnamed"}


def test_a_worker_hands_back_a_refusal_as_an_error_of_one_sentence(
    worker: Celery, written_store: WriteStore
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    result = worker.send_task("history_retention.prune", kwargs={"database": "history"})
    with pytest.raises(Exception, match="a prune needs a bound"):
        result.get(timeout=60)

    assert result.state == "FAILURE"
    assert threads_in(path) == {"named", "fresh", "unnamed"}


@pytest.mark.django_db(databases=["default", "history"])  # once a worker ran, so do checks
def test_the_tasks_have_names_that_do_not_move() -> None:
    project_app.loader.import_default_modules()

    names = {name for name in project_app.tasks if name.startswith("history_retention")}

    assert names == {
        "history_retention.measure",
        "history_retention.reclaim",
        "history_retention.prune",
        "history_retention.sweep_batch",
    }


def test_every_entry_of_the_projects_schedule_fits_its_task() -> None:
    functions = {f"history_retention.{name}": getattr(tasks, name)
                 for name in ("measure", "reclaim", "prune")}  # fmt: skip

    bound = [
        signature(functions[entry["task"]]).bind(**entry.get("kwargs", {}))
        for entry in project_app.conf.beat_schedule.values()
    ]

    assert len(bound) >= 2


@pytest.mark.usefixtures("frozen_clock")
def test_a_result_is_json_with_counts_by_store(written_store: WriteStore) -> None:
    written_store(ONE_OF_EACH, NAMED)

    result = tasks.prune(everything=True)

    assert json.loads(json.dumps(result)) == result
    assert set(result) == {"history"}
    assert set(result["history"]) == COUNTS
    assert result["history"]["planned_threads"] == result["history"]["removed_threads"] == 3


@pytest.mark.usefixtures("frozen_clock")
@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ({"older_than_days": 30}, {"fresh"}),
        ({"keep_last": 2}, {"named", "fresh"}),
        ({"keep_last": 1}, {"fresh"}),
        ({"everything": True}, set()),
        ({"everything": True, "command": "code"}, {"named", "fresh"}),
        ({"everything": True, "project": "/srv/app"}, set()),
    ],
)
def test_a_prune_takes_what_its_bounds_allow(
    written_store: WriteStore, bounds: dict[str, object], left: set[str]
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    tasks.prune("history", **bounds)  # type: ignore[arg-type]

    assert threads_in(path) == left


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"command": "chat"},
        {"project": "/srv/app"},
        {"older_than_days": 0},
        {"older_than_days": -1},
        {"older_than_days": "30"},
        {"older_than_days": 30.5},
        {"older_than_days": True},
        {"older_than_days": 10**9},
        {"keep_last": 0},
        {"keep_last": "3"},
        {"keep_last": 1.5},
        {"everything": "false"},
        {"everything": 1},
        {"everything": None, "older_than_days": None},
        {"everything": True, "older_than_days": 30},
        {"older_than_days": 30, "command": ""},
        {"older_than_days": 30, "project": 5},
        {"older_than_days": 30, "database": "nope"},
    ],
)
def test_a_prune_without_a_sound_bound_is_refused_and_removes_nothing(
    written_store: WriteStore, bounds: dict[str, object]
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    with pytest.raises(UsageError):
        tasks.prune(**bounds)  # type: ignore[arg-type]

    assert threads_in(path) == {"named", "fresh", "unnamed"}


def test_a_store_that_another_sweep_is_at_work_on_is_skipped_and_no_failure(
    written_store: WriteStore, frozen_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    with open_store("history") as store, store.only_one("sweep"):
        result = tasks.reclaim()

    assert list(result["history"]) == ["skipped"]
    assert "another sweep of this store is running" in str(result["history"]["skipped"])
    assert "skipped" in caplog.text
    assert threads_in(path) == {"named", "fresh", "unnamed"}


def test_a_store_where_nothing_names_threads_is_skipped_by_reclaim(
    fixture_store: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = fixture_store("langgraph/lg-sqlite.db")
    before = path.read_bytes()

    result = tasks.reclaim()

    assert "CONVERSATIONS" in str(result["history"]["skipped"])
    assert "CONVERSATIONS" in caplog.text
    assert path.read_bytes() == before


@pytest.mark.usefixtures("frozen_clock")
def test_a_store_that_fails_does_not_stop_the_others(
    written_store: WriteStore, second_store: None
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)

    with pytest.raises(HistoryRetentionError, match="absent"):
        tasks.reclaim()

    assert threads_in(path) == {"named", "fresh"}


@pytest.mark.usefixtures("frozen_clock")
def test_a_wrong_setting_of_one_store_does_not_stop_the_others(
    written_store: WriteStore, retention: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_store(ONE_OF_EACH, NAMED)
    monkeypatch.setitem(connections.databases, "misset", {**connections.databases["history"]})
    retention(STORES={"misset": {"LAYOUT": "elsewhere.Layout"}, "history": {}})

    with pytest.raises(HistoryRetentionError, match="misset: LAYOUT 'elsewhere"):
        tasks.reclaim()

    assert threads_in(path) == {"named", "fresh"}


@pytest.mark.usefixtures("frozen_clock")
def test_two_stores_that_fail_are_both_named(
    point_at: Callable[[Path], Path], tmp_path: Path, second_store: None
) -> None:
    point_at(tmp_path / "absent.db")

    with pytest.raises(HistoryRetentionError) as caught:
        tasks.measure()

    assert str(caught.value).startswith("2 stores failed (other, history): other: ")
    assert "history: " in str(caught.value)


def test_no_store_at_all_is_refused(retention: Callable[..., None]) -> None:
    retention(STORES={})

    with pytest.raises(UsageError, match="STORES"):
        tasks.measure()


def test_without_celery_the_tasks_are_plain_functions(tmp_path: Path) -> None:
    (tmp_path / "celery.py").write_text("raise ModuleNotFoundError('celery', name='celery')")
    code = (
        "import django; django.setup(); from history_retention import tasks; "
        "print(type(tasks.prune).__name__, tasks.prune.__module__)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment(tmp_path / "absent.db", tmp_path / "ledger.db")
        | {"DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stdout, ran.stderr) == ("function history_retention.tasks\n", "")


@pytest.fixture
def second_store(
    retention: Callable[..., None], tmp_path: Path, add_store: Callable[[str, Path], None]
) -> None:
    """A store "other", before "history", whose file is not there."""
    add_store("other", tmp_path / "other-absent.db")
    retention(STORES={"other": {}, "history": {}})
