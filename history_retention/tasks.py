"""Celery tasks, for whoever runs Celery; plain functions where it is not installed.

Arguments and results are JSON. ``database`` is the alias of a store, None means every store.
A store that another sweep is at work on, or where nothing names threads, is skipped and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from . import broker, schedule, workers
from .exceptions import HistoryRetentionError, UsageError
from .options import Section, text_or_none, truth, whole_number_or_none
from .policy import Bounds

P = ParamSpec("P")
R = TypeVar("R")


def task(name: str, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the function with Celery under a name that stays, if there is Celery."""
    try:
        from celery import shared_task
    except ModuleNotFoundError:
        return lambda function: function
    return cast("Callable[[Callable[P, R]], Callable[P, R]]", shared_task(name=name, **options))


@task("history_retention.measure")
def measure(database: str | None = None) -> schedule.Report:
    """Measure stores and keep the measurements."""
    return schedule.measure(database, now=timezone.now())


@task("history_retention.reclaim")
def reclaim(database: str | None = None, *, parallel: bool = False) -> schedule.Report:
    """Remove threads that no one can resume, past the grace window.

    With ``parallel``, hand the plan to all workers batch by batch instead of removing it here.
    """
    return schedule.reclaim(
        database, now=timezone.now(), parallel=_truth("history_retention.reclaim", parallel)
    )


@task("history_retention.prune")
def prune(
    database: str | None = None,
    *,
    older_than_days: int | None = None,
    keep_last: int | None = None,
    everything: bool = False,
    command: str | None = None,
    project: str | None = None,
    skip_unfinished: bool = False,
    parallel: bool = False,
) -> schedule.Report:
    """Prune stores inside the bounds; UsageError when one is missing or not what it takes.

    With ``parallel``, hand the plan to all workers batch by batch instead of removing it here.
    """
    given = {
        "older_than_days": older_than_days,
        "keep_last": keep_last,
        "everything": everything,
        "command": command,
        "project": project,
        "skip_unfinished": skip_unfinished,
    }
    return schedule.prune(
        database,
        _bounds(given),
        now=timezone.now(),
        parallel=_truth("history_retention.prune", parallel),
    )


@task(
    broker.TASK,
    acks_late=True,
    reject_on_worker_lost=True,
    autoretry_for=(HistoryRetentionError, ImproperlyConfigured),
    retry_backoff=15,
    retry_jitter=False,
    max_retries=150,  # for about a day: 10 minutes are the longest between two
)
def sweep_batch(sweep_id: int) -> schedule.Counts:
    """Take one batch of a sweep that workers share; who is killed in it gets it back."""
    worked = workers.work(sweep_id)
    if worked.again_seconds is not None:
        broker.send(sweep_id, seconds=worked.again_seconds)
    return {
        "removed_threads": worked.removed.thread_count,
        "removed_bytes": worked.removed.byte_count,
        "skipped_threads": worked.skipped_threads,
        "error": worked.error,
    }


def _truth(task_name: str, parallel: object) -> bool:
    try:
        return Section(task_name, {"parallel": parallel}, None).required("parallel", truth)
    except ImproperlyConfigured as error:
        raise UsageError(str(error)) from error


def _bounds(given: Mapping[str, object]) -> Bounds:
    """Read what came as JSON, where ``"false"`` is a text and 30.5 a number."""
    section = Section("history_retention.prune", given, None)
    try:
        return Bounds(
            older_than_days=section.required("older_than_days", whole_number_or_none),
            keep_last=section.required("keep_last", whole_number_or_none),
            everything=section.required("everything", truth),
            command=section.required("command", text_or_none),
            project=section.required("project", text_or_none),
            skip_unfinished=section.required("skip_unfinished", truth),
        )
    except ImproperlyConfigured as error:
        raise UsageError(str(error)) from error
