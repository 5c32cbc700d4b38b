"""Handing a sweep over, and being its worker."""

from __future__ import annotations

from history_retention import services, workers
from history_retention.facts import Plan
from history_retention.models import Sweep
from history_retention.services import Trigger

from ..store_files import NOW

ELSEWHERE = "7 1 - another-host"


def reclaim() -> Plan:
    return services.plan_reclaim("history", now=NOW)


def handed() -> Sweep:
    return workers.hand_over(reclaim(), trigger=Trigger.CODE)


def work_on(sweep: Sweep) -> list[workers.Worked]:
    """Be the worker of a sweep whose batches go one by one, until no message is due."""
    done = [workers.work(sweep.pk)]
    while done[-1].again_seconds == 0:
        done.append(workers.work(sweep.pk))
    sweep.refresh_from_db()
    return done
