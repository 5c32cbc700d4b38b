"""Telling workers of a sweep, through whatever broker Celery has."""

from __future__ import annotations

from typing import Any

from .exceptions import HistoryRetentionError, UsageError

TASK = "history_retention.sweep_batch"


def send(sweep_id: int, *, message_count: int = 1, seconds: float = 0) -> None:
    """Send the workers messages that are due in so many seconds.

    Raises UsageError without Celery, HistoryRetentionError when its broker cannot be reached.
    """
    celery = require_celery()
    try:
        for _ in range(message_count):
            celery.send_task(TASK, args=[sweep_id], countdown=seconds, retry=False)
    except Exception as error:  # each broker's client has errors of its own
        raise HistoryRetentionError(
            f"Celery's broker cannot be reached ({error}), so its workers were not told of sweep "
            f"{sweep_id}, or not all of them. Start it, or check the broker's address, and run "
            "this again."
        ) from error


def require_workers() -> None:
    """Raise UsageError when no message could reach a worker of another process."""
    try:
        driver = require_celery().connection().transport.driver_type
    except Exception as error:
        raise UsageError(
            f"Celery's broker_url cannot be used ({error}): correct it, or leave the sweep to this "
            "process."
        ) from error
    if driver == "memory":
        raise UsageError(
            "Celery's broker is memory://, which no other process can read, so no worker would "
            "ever hear of this sweep: set broker_url to a real broker, or leave the sweep to this "
            "process."
        )


def require_celery() -> Any:
    """Return the Celery application that is configured."""
    try:
        from celery import current_app
    except ModuleNotFoundError as error:
        raise UsageError(
            "Handing a sweep to workers needs Celery, which is not installed: run `python -m pip "
            "install 'django-history-retention[celery]'`, or leave the sweep to this process."
        ) from error
    return current_app
