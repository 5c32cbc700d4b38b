"""Sweeps: what was removed, by whom or what; and ending one that runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import broker, workers
from ..facts import Ending
from ..models import Sweep
from .base import OperationsAdmin, errors_as_messages, outside_transactions, signed_in
from .columns import RecordMedia, count, size, size_in_full
from .filters import StoreFilter
from .words import badge, grouped

PERMISSIONS = {
    Sweep.Kind.PRUNE: "prune_thread",
    Sweep.Kind.RECLAIM: "reclaim_thread",
    Sweep.Kind.VACUUM: "vacuum_store",
}
_PAGE = "history_retention_sweep_change"


@admin.register(Sweep)
class SweepAdmin(OperationsAdmin[Sweep]):
    """Everything removed, by whom or what, and what became of it."""

    list_display = (
        "started_at", "kind", "store", "trigger", "actor", "outcome", "threads_removed",
        "removed_size", "threads_skipped", "file_after",
    )  # fmt: skip
    list_select_related = ("actor",)
    list_filter = (StoreFilter, "kind", "trigger", "ending")
    fieldsets = (
        (None, {"fields": ("kind", "store", "layout", "trigger", "actor", "bounds_given",
                           "as_of", "started_at", "finished_at")}),
        (_("Outcome"), {"fields": ("outcome", "error", "threads_planned", "planned_in_full",
                                   "threads_removed", "checkpoints_removed", "writes_removed",
                                   "removed_in_full", "threads_skipped", "batches_left",
                                   "cancelled_at")}),
        (_("File"), {"fields": ("before_in_full", "after_in_full", "vacuumed",
                                "vacuum_reason")}),
    )  # fmt: skip
    readonly_fields = (
        "bounds_given", "outcome", "threads_planned", "planned_in_full", "threads_removed",
        "checkpoints_removed", "writes_removed", "removed_in_full", "threads_skipped",
        "batches_left", "before_in_full", "after_in_full",
    )  # fmt: skip

    removed_size = size("removed_bytes", _("removed"))
    file_after = size("file_bytes_after", _("file after"))
    threads_planned = count("planned_threads", _("threads planned"))
    threads_removed = count("removed_threads", _("threads removed"))
    threads_skipped = count("skipped_threads", _("threads skipped"))
    checkpoints_removed = count("removed_checkpoints", _("checkpoints removed"))
    writes_removed = count("removed_writes", _("writes removed"))
    planned_in_full = size_in_full("planned_bytes", _("planned"))
    removed_in_full = size_in_full("removed_bytes", _("removed"))
    before_in_full = size_in_full("file_bytes_before", _("file before"))
    after_in_full = size_in_full("file_bytes_after", _("file after"))

    Media = RecordMedia

    @admin.display(description=_("outcome"), ordering="ending")
    def outcome(self, sweep: Sweep) -> SafeString:
        return badge(sweep.ending, sweep.get_ending_display())

    @admin.display(description=_("bounds"))
    def bounds_given(self, sweep: Sweep) -> str:
        return json.dumps(sweep.bounds, ensure_ascii=False) if sweep.bounds else ""

    @admin.display(description=_("batches left"))
    def batches_left(self, sweep: Sweep) -> str:
        if not sweep.batch_count:
            return gettext("none: swept by one process")
        return gettext("%(left)s of %(all)s") % {
            "left": grouped(sweep.batches.open().count()),
            "all": grouped(sweep.batch_count),
        }

    def get_urls(self) -> list[URLPattern]:
        """Put what is done to a sweep before the address of its page, which takes any path."""
        return [
            path(
                f"<int:pk>/{name}/",
                outside_transactions(self.admin_site.admin_view(view)),
                name=f"history_retention_sweep_{name}",
            )
            for name, view in (("cancel", self.cancel_view), ("resume", self.resume_view))
        ] + super().get_urls()

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Offer what can be done to the sweep while it runs."""
        sweep = self.get_object(request, object_id)
        is_running = sweep is not None and may_sweep(request, sweep) and is_going_on(sweep)
        offers = {
            "may_cancel": is_running,
            "may_resume": is_running and sweep is not None and may_be_resumed(sweep),
        }
        return super().change_view(
            request, object_id, form_url, {**(extra_context or {}), **offers}
        )

    @errors_as_messages
    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask whether to end the sweep, and end it once that is agreed to."""
        return self._act(
            request,
            pk,
            title=gettext("Cancel a sweep"),
            words=gettext(
                "The sweep ends after the threads it is at. What it removed stays removed and on "
                "record; threads whose turn did not come stay."
            ),
            verb=gettext("Cancel the sweep"),
            act=lambda: workers.cancel(pk, now=timezone.now()),
            done=gettext("Sweep %(sweep)s ends after the threads it is at.") % {"sweep": pk},
        )

    @errors_as_messages
    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask whether to tell the workers of the sweep again, and do so."""
        return self._act(
            request,
            pk,
            title=gettext("Tell the workers again"),
            words=gettext(
                "If the broker lost its messages, workers hear of the batches that are left. A "
                "message too many does no harm."
            ),
            verb=gettext("Tell the workers again"),
            act=lambda: _tell_again(pk),
            done=gettext("The workers were told of sweep %(sweep)s again.") % {"sweep": pk},
        )

    def _act(
        self,
        request: HttpRequest,
        pk: int,
        *,
        title: str,
        words: str,
        verb: str,
        act: Callable[[], object],
        done: str,
    ) -> HttpResponse:
        """Show a page that asks; on a POST do it, if the sweep still runs."""
        sweep = Sweep.objects.filter(pk=pk).first()
        if sweep is None or not (self.has_view_permission(request) and may_sweep(request, sweep)):
            raise PermissionDenied
        here = HttpResponseRedirect(reverse(f"{self.admin_site.name}:{_PAGE}", args=[pk]))
        if not is_going_on(sweep):
            message = gettext("Sweep %(sweep)s is not running any more.") % {"sweep": pk}
            self.message_user(request, message, messages.WARNING)
            return here
        if request.method == "POST":
            act()
            LogEntry.objects.log_actions(signed_in(request).pk, [sweep], CHANGE, done)
            self.message_user(request, done, messages.SUCCESS)
            return here
        return self.operation_page(
            request,
            "admin/history_retention/sweep/act.html",
            title=title,
            words=words,
            verb=verb,
            sweep=sweep,
            back=here.url,
        )


def may_sweep(request: HttpRequest, sweep: Sweep) -> bool:
    """Tell whether the user might have started the sweep, and so may end it."""
    permission = PERMISSIONS[Sweep.Kind(sweep.kind)]
    return request.user.has_perm(f"history_retention.{permission}")


def is_going_on(sweep: Sweep) -> bool:
    """Tell whether the sweep runs. One that was cancelled may have lost who would close it."""
    return sweep.ending == Ending.RUNNING


def may_be_resumed(sweep: Sweep) -> bool:
    """Tell whether there are workers to be told of it, and work for them."""
    return sweep.batch_count > 0 and sweep.cancelled_at is None


def _tell_again(pk: int) -> None:
    broker.require_workers()
    workers.resume(pk)
