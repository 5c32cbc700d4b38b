"""Measure, reclaim and vacuum: pages of their own beside the list of threads."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import services
from ..conf import get_settings
from ..facts import Ending
from ..models import Sweep, Thread
from ..vacuuming import RateSource, VacuumForecast
from .base import (
    OperationsAdmin,
    asked_store,
    errors_as_messages,
    list_url,
    outside_transactions,
    signed_in,
)
from .confirming import Operation, StorePlan, confirm
from .log_entries import log_sweep
from .words import counted_threads

RATE_WORDS = {
    RateSource.EARLIER: gettext_lazy("as its last vacuums ran"),
    RateSource.TRIAL: gettext_lazy("as a trial ran just now"),
}


class StoreOperations(OperationsAdmin[Thread]):
    """What is done to a whole store; each has its own permission, asked on every request."""

    def get_urls(self) -> list[URLPattern]:
        """Put the operations before the address of a thread, which takes any path."""
        pages = {
            "measure": self.measure_view,
            "reclaim": self.reclaim_view,
            "vacuum": self.vacuum_view,
        }
        return [
            path(f"{page}/", self._page(view), name=f"history_retention_thread_{page}")
            for page, view in pages.items()
        ] + super().get_urls()

    def has_measure_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history_retention.measure_thread")

    def has_reclaim_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history_retention.reclaim_thread")

    def has_vacuum_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history_retention.vacuum_store")

    @errors_as_messages
    def measure_view(self, request: HttpRequest) -> HttpResponse:
        """Measure a store and return to the list. Only by POST."""
        self._require(request, self.has_measure_permission(request))
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        store = asked_store(request)
        readout = services.measure(store, now=timezone.now())
        self.message_user(
            request,
            " ".join(
                [
                    _("%(store)s: measured %(threads)s.")
                    % {"store": store, "threads": counted_threads(readout.thread_count)},
                    *readout.notes,
                ]
            ),
            messages.SUCCESS,
        )
        return HttpResponseRedirect(list_url(self))

    @errors_as_messages
    def reclaim_view(self, request: HttpRequest) -> HttpResponse:
        """Show what a reclaim would take, and take it once that is agreed to."""
        self._require(request, self.has_reclaim_permission(request))
        store = asked_store(request)
        operation = Operation(
            kind=Sweep.Kind.RECLAIM,
            plan=lambda as_of: [
                StorePlan(store=store, plan=services.plan_reclaim(store, now=as_of))
            ],
            template="admin/history_retention/thread/reclaim.html",
            title=_("Reclaim unresumable threads"),
            command=_command("history_reclaim", store),
        )
        return confirm(self, request, operation) or HttpResponseRedirect(list_url(self))

    @errors_as_messages
    def vacuum_view(self, request: HttpRequest) -> HttpResponse:
        """Show what a vacuum would need, and run it once that is agreed to."""
        self._require(request, self.has_vacuum_permission(request))
        store = asked_store(request)
        forecast = services.vacuum_forecast(store)
        most = get_settings().vacuum_in_request_bytes
        is_too_large = forecast.space.file_bytes > most
        asked = request.method == "POST"
        agreed = request.POST.get("consent") == "yes"
        if asked and agreed and not is_too_large:
            self._vacuum(request, store)
            return HttpResponseRedirect(list_url(self))
        return self.operation_page(
            request,
            "admin/history_retention/thread/vacuum.html",
            title=_("Vacuum a store"),
            store=store,
            forecast=forecast,
            most=most,
            is_too_large=is_too_large,
            command=_command("history_vacuum", store),
            wait=_wait(forecast),
            rate=RATE_WORDS.get(forecast.rate_source, ""),
            problem=_("Not vacuumed yet: tick the box to say that you agree.")
            if asked and not agreed
            else "",
        )

    def _vacuum(self, request: HttpRequest, store: str) -> None:
        user = signed_in(request)
        outcome = services.vacuum(
            store, now=timezone.now(), trigger=Sweep.Trigger.ADMIN, actor=user, force=True
        )
        log_sweep(user.pk, Sweep.Kind.VACUUM, store)
        done = outcome.ending is Ending.DONE
        self.message_user(
            request,
            outcome.error or outcome.vacuum.reason,
            messages.SUCCESS if done else messages.ERROR,
        )

    def _require(self, request: HttpRequest, permitted: bool) -> None:
        if not (permitted and self.has_view_permission(request)):
            raise PermissionDenied

    def _page(self, view: Callable[[HttpRequest], HttpResponse]) -> Any:
        return outside_transactions(self.admin_site.admin_view(view))


def _wait(forecast: VacuumForecast) -> str:
    """Say how long writers would wait."""
    if forecast.is_quick:
        return _("well under a second")
    seconds = max(1, round(forecast.blocked_seconds))
    if forecast.rate_source is RateSource.TRIAL:
        words = ngettext(
            "about %(count)s second or more", "about %(count)s seconds or more", seconds
        )
    else:
        words = ngettext("about %(count)s second", "about %(count)s seconds", seconds)
    return words % {"count": f"{seconds:,}"}


def _command(name: str, store: str) -> str:
    return f"python manage.py {name} --database {shlex.quote(store)}"
