"""The list of threads, which is the readout, and a thread's own page."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat, truncatechars
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_settings
from ..exceptions import UsageError
from ..models import Hold, Sweep, Thread
from ..models.ledger import STATE_CHOICES
from ..words import shortened
from .base import errors_as_messages, outside_transactions
from .confirming import Operation, confirm
from .consent import MOST_THREADS
from .filters import CommandFilter, IdleFilter, ProjectFilter, StateFilter, StoreFilter
from .operations import StoreOperations
from .pruning import plan_selections, selections
from .totals import StoreTotals, totals_of
from .words import badge, cell, grouped, quiet, readable, shown_shortened, thread_name

STATE_WORDS = dict(STATE_CHOICES)
MOST_CONVERSATIONS = 3
"""Conversation ids named in the list; a thread's own page names them all."""


class ThreadChangeList(ChangeList):
    """The list with each store's totals, and each thread's share of its store."""

    totals: list[StoreTotals]

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the page; the shares are of the checkpoints as last measured."""
        super().get_results(request)
        self.totals = totals_of(_stores_shown(request))
        checkpoint_bytes = {
            each.store: each.measurement.checkpoint_bytes
            for each in self.totals
            if each.measurement
        }
        for thread in self.result_list:
            thread.store_bytes = checkpoint_bytes.get(thread.store, 0)


@admin.register(Thread)
class ThreadAdmin(StoreOperations):
    """Threads as last measured. What is removed is planned anew on the store itself."""

    list_filter = (StoreFilter, StateFilter, IdleFilter, CommandFilter, ProjectFilter)
    search_fields = ("thread_id",)
    search_help_text = gettext_lazy("Thread id or part of it, or a whole conversation id")
    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # one count a choice: 20 s for 200,000 threads
    actions = ("prune_selected",)
    fieldsets = (
        (
            None,
            {"fields": ("whole_id", "store", "state", "conversations_in_full", "label",
                        "command", "project")},
        ),
        (
            gettext_lazy("Stored state, as last measured"),
            {"fields": ("size_in_full", "checkpoint_count", "write_count", "turn_count",
                        "first_activity", "last_activity", "measured_at")},
        ),
        (gettext_lazy("Holds"), {"fields": ("holds",)}),
    )  # fmt: skip

    class Media:
        css = {"all": ("history_retention/admin.css",)}

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Name the store of each thread only where there are several."""
        store = ("store",) if len(get_settings().stores) > 1 else ()
        return (
            "name", *store, "conversations", "command_name", "project_name",
            "checkpoints", "size", "activity", "state_name",
        )  # fmt: skip

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ThreadChangeList]:
        return ThreadChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Thread], search_term: str
    ) -> tuple[QuerySet[Thread], bool]:
        """Search for the text as it is: thread ids may hold spaces and quotes."""
        if not search_term:
            return queryset, False
        return queryset.alias(conversation_text=Cast("conversation_ids", TextField())).filter(
            Q(thread_id__contains=search_term) | _names(search_term.strip())
        ), False

    def has_prune_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("history_retention.prune_thread")

    @admin.action(
        permissions=["prune"], description=gettext_lazy("Prune state of selected threads…")
    )
    @errors_as_messages
    def prune_selected(
        self, request: HttpRequest, queryset: QuerySet[Thread]
    ) -> HttpResponse | None:
        """Show what a prune of the selected threads would take, then take it."""
        if not self.has_prune_permission(request):
            raise PermissionDenied
        if queryset.count() > MOST_THREADS:
            raise UsageError(
                _(
                    "More than %(most)s threads are selected, which is too much for one request. "
                    "Narrow the list, or use the command history_prune."
                )
                % {"most": grouped(MOST_THREADS)}
            )
        selected = selections(queryset)
        return confirm(
            self,
            request,
            Operation(
                kind=Sweep.Kind.PRUNE,
                plan=lambda as_of: plan_selections(selected, as_of),
                template="admin/history_retention/thread/prune.html",
                title=_("Prune the stored state of threads"),
                command="python manage.py history_prune",
            ),
        )

    @outside_transactions
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list, or run the action; offer the operations that the user may use."""
        return super().changelist_view(
            request,
            {
                **(extra_context or {}),
                "may_measure": self.has_measure_permission(request),
                "may_reclaim": self.has_reclaim_permission(request),
                "may_vacuum": self.has_vacuum_permission(request),
                "asked_store": request.GET.get("store", ""),
            },
        )

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a thread; offer a hold on it to whoever may add one."""
        may_hold = request.user.has_perm("history_retention.add_hold")
        context = {**(extra_context or {}), "may_hold": may_hold}
        return super().change_view(request, object_id, form_url, context)

    @admin.display(description=gettext_lazy("thread"), ordering="thread_id")
    def name(self, thread: Thread) -> SafeString:
        return thread_name(thread.thread_id)

    @admin.display(description=gettext_lazy("conversations"))
    def conversations(self, thread: Thread) -> SafeString:
        named = thread.conversation_ids
        if not named:
            return quiet(_("none"))
        first = ", ".join(shortened(readable(str(each))) for each in named[:MOST_CONVERSATIONS])
        more = len(named) - MOST_CONVERSATIONS
        return format_html(
            "{}{}{}",
            first,
            quiet(_("and %(more)s more") % {"more": more}) if more > 0 else "",
            quiet(truncatechars(thread.label, 60), on_a_line=True) if thread.label else "",
        )

    @admin.display(description=gettext_lazy("command"), ordering="command")
    def command_name(self, thread: Thread) -> str:
        return shortened(thread.command)

    @admin.display(description=gettext_lazy("project"), ordering="project")
    def project_name(self, thread: Thread) -> SafeString:
        return shown_shortened(thread.project, "history-path")

    @admin.display(description=gettext_lazy("checkpoints"), ordering="checkpoint_count")
    def checkpoints(self, thread: Thread) -> str:
        return grouped(thread.checkpoint_count)

    @admin.display(description=gettext_lazy("size"), ordering="byte_count")
    def size(self, thread: Thread) -> SafeString:
        store_bytes = getattr(thread, "store_bytes", 0)
        if not store_bytes:
            return format_html("{}", filesizeformat(thread.byte_count))
        percent = number_format(round(100 * thread.byte_count / store_bytes, 1), 1)
        return format_html(
            '{} <span class="history-share"><meter min="0" max="{}" value="{}" aria-hidden="true">'
            "</meter>{}</span>",
            filesizeformat(thread.byte_count),
            store_bytes,
            thread.byte_count,
            quiet(_("%(percent)s %%") % {"percent": percent}),
        )

    @admin.display(description=gettext_lazy("last activity"), ordering="last_activity")
    def activity(self, thread: Thread) -> SafeString:
        if thread.last_activity is None:
            return quiet(_("unknown"))
        at = localtime(thread.last_activity)
        return format_html(
            '<time datetime="{}">{}</time>{}',
            at.isoformat(timespec="seconds"),
            f"{at:%Y-%m-%d %H:%M}",
            quiet(_("%(ago)s ago") % {"ago": timesince(at, depth=1)}, on_a_line=True),
        )

    @admin.display(description=gettext_lazy("state"), ordering="state")
    def state_name(self, thread: Thread) -> SafeString:
        return badge(thread.state or "untold", STATE_WORDS.get(thread.state, thread.state))

    @admin.display(description=gettext_lazy("thread"))
    def whole_id(self, thread: Thread) -> SafeString:
        return cell("whole_id", thread_id=readable(thread.thread_id))

    @admin.display(description=gettext_lazy("size"))
    def size_in_full(self, thread: Thread) -> SafeString:
        return cell("size_in_full", bytes=thread.byte_count)

    @admin.display(description=gettext_lazy("conversations"))
    def conversations_in_full(self, thread: Thread) -> SafeString:
        """Link the conversations that stand in the store itself, not in a model of the host's."""
        options = get_settings().stores.get(thread.store)
        return cell(
            "conversation_links",
            ids=[(each, readable(str(each))) for each in thread.conversation_ids],
            store=thread.store,
            are_here=options is not None and not options.conversations,
        )

    @admin.display(description=gettext_lazy("holds"))
    def holds(self, thread: Thread) -> SafeString:
        holds = Hold.objects.filter(store=thread.store, thread_id=thread.thread_id)
        return cell("holds", holds=holds.select_related("by"))


def _stores_shown(request: HttpRequest) -> list[str]:
    """List the store that the page is filtered by, or all of the settings."""
    asked = request.GET.get("store")
    return list(get_settings().stores) if asked is None else [asked]


def _names(conversation_id: str) -> Q:
    """Find threads named by the conversation, a number or a text, in a list kept as JSON.

    Databases differ in what they can ask of JSON but all print a list as ``[1, "two"]``.
    """
    found = Q()
    for item in {conversation_id, json.dumps(conversation_id)} - {""}:
        found |= (
            Q(conversation_text=f"[{item}]")
            | Q(conversation_text__startswith=f"[{item}, ")
            | Q(conversation_text__endswith=f", {item}]")
            | Q(conversation_text__contains=f", {item}, ")
        )
    return found
