"""Asking before removing, and removing what was agreed to: for prune and reclaim alike.

The page plans live and shows the plan. When it comes back, the same plan is made once more for
the same instant and held against what was shown: a thread that changed in between is left alone
and reported, and when there is one that was not shown, nothing goes and the page asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import broker, services, workers
from ..conf import get_settings
from ..exceptions import UsageError
from ..facts import Ending, Plan, SkipReason
from ..models import Sweep
from ..words import BECOME_OF_TRANSCRIPTS
from .base import REFUSALS, OperationsAdmin, signed_in
from .confirmation_rows import StorePage, store_page
from .consent import MOST_THREADS, Agreed, held_against, opened, sealed
from .log_entries import log_removal, log_sweep
from .words import grouped, kept_since, told, told_of_nothing

REQUEST_SECONDS = 20.0
"""How long the sweeps of a request may take together; servers commonly end one after 30 s."""

Measured = Mapping[str, tuple[int, int, int]]

LEVELS = {
    Ending.DONE: messages.SUCCESS,
    Ending.PARTIAL: messages.WARNING,
    Ending.INTERRUPTED: messages.WARNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """One store's plan with what the page adds to it, or the sentence that there is none."""

    store: str
    plan: Plan | None = None
    error: str = ""
    measured: Measured = field(default_factory=dict)
    left_alone: Mapping[str | Promise, Collection[str]] = field(default_factory=dict)

    def page(self) -> StorePage:
        """Return this store's part of the page."""
        if self.plan is None:
            return StorePage(store=self.store, error=self.error)
        return store_page(self.plan, measured=self.measured, left_alone=self.left_alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A prune or a reclaim: how it is planned, and the words of its page."""

    kind: Sweep.Kind
    plan: Callable[[datetime], Sequence[StorePlan]]
    template: str
    title: str
    command: str


def confirm(
    model_admin: OperationsAdmin[Any], request: HttpRequest, operation: Operation
) -> HttpResponse | None:
    """Show what would go, or, once that was agreed to, remove it and return None."""
    problem = ""
    if request.POST.get("post"):
        consent = opened(
            operation.kind, request.user.pk, request.POST.get("as_of", ""),
            request.POST.get("shown", ""),
        )  # fmt: skip
        planned = operation.plan(consent.as_of)
        agreed = [held_against(each.plan, consent) for each in planned if each.plan]
        problem = _problem(request, agreed)
        if not problem:
            for each in planned:
                if each.error:
                    model_admin.message_user(request, each.error, messages.ERROR)
            until = time.monotonic() + REQUEST_SECONDS
            for one in agreed:
                _carry_out(model_admin, request, operation.kind, one, until)
            return None
    as_of = timezone.now()
    return _ask(model_admin, request, operation, as_of, operation.plan(as_of), problem)


def _problem(request: HttpRequest, agreed: Sequence[Agreed]) -> str:
    """Say what stands between a confirmation and its execution."""
    if request.POST.get("consent") != "yes":
        return _("Nothing was removed yet: tick the box to say that you agree.")
    unseen = sum(one.unseen for one in agreed)
    if unseen:
        return ngettext(
            "Nothing was removed: %(count)s thread would go that you had not been shown. "
            "Here is the list as it is now.",
            "Nothing was removed: %(count)s threads would go that you had not been shown. "
            "Here is the list as it is now.",
            unseen,
        ) % {"count": grouped(unseen)}
    return ""


def _ask(
    model_admin: OperationsAdmin[Any],
    request: HttpRequest,
    operation: Operation,
    as_of: datetime,
    planned: Sequence[StorePlan],
    problem: str,
) -> HttpResponse:
    plans = [each.plan for each in planned if each.plan]
    thread_count = sum(plan.planned.thread_count for plan in plans)
    if thread_count > MOST_THREADS:
        raise UsageError(
            _(
                "%(count)s threads are more than one request can remove (%(most)s). "
                "Narrow the list, or run: %(command)s"
            )
            % {
                "count": grouped(thread_count),
                "most": grouped(MOST_THREADS),
                "command": operation.command,
            }
        )
    return model_admin.operation_page(
        request,
        operation.template,
        title=operation.title,
        problem=problem,
        pages=[each.page() for each in planned],
        thread_count=thread_count,
        byte_count=sum(plan.planned.byte_count for plan in plans),
        transcripts=[
            BECOME_OF_TRANSCRIPTS[each] for each in sorted({p.transcripts for p in plans})
        ],
        as_of=as_of.isoformat(),
        shown=sealed(operation.kind, request.user.pk, as_of, plans),
        selected=request.POST.getlist(ACTION_CHECKBOX_NAME),
        select_across=request.POST.get("select_across", "0"),
    )


def _carry_out(
    model_admin: OperationsAdmin[Any],
    request: HttpRequest,
    kind: Sweep.Kind,
    agreed: Agreed,
    until: float,
) -> None:
    """Remove what was agreed to, until the clock shows ``until``; say what became of it."""
    plan = agreed.plan
    skipped = [thread.reason for thread in agreed.changed]
    if not plan.threads:
        sentence = told_of_nothing(plan.database, skipped)
        model_admin.message_user(request, sentence, messages.WARNING)
        return
    user = signed_in(request)
    if get_settings().admin_uses_celery:
        _hand_over(model_admin, request, kind, plan, skipped)
        return
    try:
        outcome = services.execute(
            plan,
            trigger=Sweep.Trigger.ADMIN,
            actor=user,
            stop=lambda: time.monotonic() > until,
        )
    except REFUSALS as error:
        model_admin.message_user(request, str(error), messages.ERROR)
        return
    if kind is Sweep.Kind.PRUNE:
        log_removal(user.pk, plan.database, outcome.removed_ids)
    else:
        log_sweep(user.pk, kind, plan.database)
    skipped += [thread.reason for thread in outcome.skipped]
    level = LEVELS.get(outcome.ending, messages.ERROR)
    model_admin.message_user(request, told(plan.database, outcome, skipped), level)


def _hand_over(
    model_admin: OperationsAdmin[Any],
    request: HttpRequest,
    kind: Sweep.Kind,
    plan: Plan,
    skipped: Sequence[SkipReason],
) -> None:
    """Leave the removal to Celery workers, and say where to follow it."""
    user = signed_in(request)
    try:
        broker.require_workers()
        sweep = workers.hand_over(plan, trigger=Sweep.Trigger.ADMIN, actor=user)
    except REFUSALS as error:
        model_admin.message_user(request, str(error), messages.ERROR)
        return
    log_sweep(user.pk, kind, plan.database)
    page = reverse("admin:history_retention_sweep_change", args=[sweep.pk])
    words = ngettext(
        "%(store)s: %(count)s thread was handed to the workers.",
        "%(store)s: %(count)s threads were handed to the workers.",
        len(plan.threads),
    ) % {"store": plan.database, "count": grouped(len(plan.threads))}
    sentences = " ".join([words, *kept_since(skipped)])
    link = format_html('{} <a href="{}">{}</a>', sentences, page, _("Follow the sweep"))
    model_admin.message_user(request, link, messages.SUCCESS)
