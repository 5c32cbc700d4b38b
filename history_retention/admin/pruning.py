"""The action "Prune state of selected threads…": which threads are meant, store by store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .. import services
from ..facts import State
from ..models import Thread
from ..policy import Bounds
from .base import REFUSALS
from .confirming import StorePlan

GONE = _("no longer in the store")
UNTOLD = _("the store cannot tell who names them, so they stay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected threads of one store: thread id to state and figures as last measured."""

    store: str
    states: dict[str, str] = field(default_factory=dict)
    measured: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def selections(queryset: QuerySet[Thread]) -> list[Selection]:
    """Group the selected threads by store."""
    by_store: dict[str, Selection] = {}
    rows = queryset.order_by("store", "digest").values_list(
        "store", "thread_id", "state", "checkpoint_count", "write_count", "byte_count"
    )
    for store, thread_id, state, checkpoints, writes, size in rows.iterator():
        selection = by_store.setdefault(store, Selection(store=store))
        selection.states[thread_id] = state
        selection.measured[thread_id] = (checkpoints, writes, size)
    return list(by_store.values())


def plan_selections(selected: Sequence[Selection], as_of: datetime) -> list[StorePlan]:
    """Plan the removal of exactly the selected threads, store by store."""
    return [_plan(selection, as_of) for selection in selected]


def _plan(selection: Selection, as_of: datetime) -> StorePlan:
    try:
        plan = services.plan_prune(
            selection.store,
            Bounds(thread_ids=frozenset(selection.states)),
            now=as_of,
            reclaim=False,
        )
    except REFUSALS as error:
        return StorePlan(store=selection.store, error=str(error))
    decided = {thread.thread_id for thread in plan.threads}
    decided |= {thread.thread_id for thread in plan.kept}
    left_alone: dict[str | Promise, list[str]] = {GONE: [], UNTOLD: []}
    for thread_id, state in selection.states.items():
        if thread_id not in decided:
            left_alone[UNTOLD if state == State.UNTOLD else GONE].append(thread_id)
    return StorePlan(
        store=selection.store, plan=plan, measured=selection.measured, left_alone=left_alone
    )
