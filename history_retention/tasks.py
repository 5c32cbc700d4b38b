"""Celery tasks, for whoever runs Celery; plain functions where it is not installed.

Arguments and results are JSON. ``database`` is the alias of a store, None means every store.
A store that another sweep is at work on, or where nothing names threads, is skipped and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from . import schedule
from .exceptions import UsageError
from .options import Section, text_or_none, truth, whole_number_or_none
from .policy import Bounds

P = ParamSpec("P")
R = TypeVar("R")


def task(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the function with Celery under a name that stays, if there is Celery."""
    try:
        from celery import shared_task
    except ModuleNotFoundError:
        return lambda function: function
    return cast("Callable[[Callable[P, R]], Callable[P, R]]", shared_task(name=name))


@task("history_retention.measure")
def measure(database: str | None = None) -> schedule.Report:
    """Measure stores and keep the measurements."""
    return schedule.measure(database, now=timezone.now())


@task("history_retention.reclaim")
def reclaim(database: str | None = None) -> schedule.Report:
    """Remove threads that no one can resume, past the grace window."""
    return schedule.reclaim(database, now=timezone.now())


@task("history_retention.prune")
def prune(
    database: str | None = None,
    *,
    older_than_days: int | None = None,
    keep_last: int | None = None,
    everything: bool = False,
    command: str | None = None,
    project: str | None = None,
) -> schedule.Report:
    """Prune stores inside the bounds; UsageError when one is missing or not what it takes."""
    given = {
        "older_than_days": older_than_days,
        "keep_last": keep_last,
        "everything": everything,
        "command": command,
        "project": project,
    }
    return schedule.prune(database, _bounds(given), now=timezone.now())


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
        )
    except ImproperlyConfigured as error:
        raise UsageError(str(error)) from error
