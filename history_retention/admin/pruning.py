"""The action "Prune state of selected threads…": which threads are meant, store by store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from .. import services
from ..exceptions import HistoryRetentionError
from ..facts import State
from ..models import Thread
from ..policy import Bounds
from .confirming import StorePlan

GONE = _("no longer in the store")
UNTOLD = _("the store cannot tell who names them, so they stay")
UNADDRESSED = _("their ids cannot be told from here: prune them with history_prune")

_ESCAPED = re.compile(r"\\(udc[89a-f][0-9a-f]|x00)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected threads of one store: thread id to state and figures as last measured."""

    store: str
    states: dict[str, str] = field(default_factory=dict)
    measured: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    unaddressed: list[str] = field(default_factory=list)


def selections(queryset: QuerySet[Thread]) -> list[Selection]:
    """Group the selected threads by store."""
    by_store: dict[str, Selection] = {}
    rows = queryset.order_by("store", "digest").values_list(
        "store", "digest", "thread_id", "state",
        "checkpoint_count", "write_count", "byte_count",
    )  # fmt: skip
    for store, digest, text, state, *figures in rows.iterator():
        selection = by_store.setdefault(store, Selection(store=store))
        thread_id = _vendors_id(store, digest, text)
        if thread_id is None:
            selection.unaddressed.append(text)
        else:
            checkpoints, writes, size = figures
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
    except HistoryRetentionError as error:
        return StorePlan(store=selection.store, error=str(error))
    decided = {thread.thread_id for thread in plan.threads}
    decided |= {thread.thread_id for thread in plan.kept}
    left_alone: dict[str | Promise, list[str]] = {
        GONE: [], UNTOLD: [], UNADDRESSED: selection.unaddressed,
    }  # fmt: skip
    for thread_id, state in selection.states.items():
        if thread_id not in decided:
            left_alone[UNTOLD if state == State.UNTOLD else GONE].append(thread_id)
    return StorePlan(
        store=selection.store, plan=plan, measured=selection.measured, left_alone=left_alone
    )


def _vendors_id(store: str, digest: str, text: str) -> str | None:
    """Return the id as the vendor wrote it, though the ledger escapes what is no text."""
    if Thread.digest_of(store, text) == digest:
        return text
    thread_id = _ESCAPED.sub(lambda found: found[0].encode().decode("unicode_escape"), text)
    return thread_id if Thread.digest_of(store, thread_id) == digest else None
