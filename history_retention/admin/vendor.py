"""Conversations and turns as they stand in a store: read there, page by page, never changed.

Which store is part of the address (``?store=``). The only order is that of the primary key and
the only filter the store: any other would read a whole table of transcripts, and hold up the
agent that writes it. No lookup is taken from the address either, since ``prompt__contains``
would tell of a transcript to somebody who may not read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.options import ModelAdmin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.paginator import Paginator
from django.db import DatabaseError, DataError, connections
from django.db.models import Count, Max, QuerySet, Value
from django.db.models.expressions import Combinable
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import default_store, get_settings
from ..models import Conversation, Session, Thread
from ..stores import open_store
from ..stores.sqlite import any_text_read
from .base import REFUSALS, ModelT, OperationsAdmin, View, asked_store
from .words import cell, thread_name

if TYPE_CHECKING:
    Pages = Paginator[Any]
else:
    Pages = Paginator

KEYS_A_COUNT = 20_000
"""Keys counted by one statement: each holds a read lock of its own, and none for long."""


class VendorStoreFilter(admin.SimpleListFilter):
    """Which store is read; there is always one."""

    title = gettext_lazy("store")
    parameter_name = "store"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(store, store) for store in get_settings().stores]

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        read = self.value() or default_store()
        for store, title in self.lookup_choices:
            yield {
                "selected": store == read,
                "query_string": changelist.get_query_string({"store": store}),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Leave the rows as they are: they were read from the store to begin with."""
        return queryset


class VendorPaginator(Pages):
    """Counts a vendor's rows in pieces, so that no statement blocks the vendor for long."""

    @cached_property
    def count(self) -> int:
        """Add up pieces in the order of the key; keys that are no numbers are counted at once.

        So are rows on a server, where nobody waits for a reader.
        """
        rows = cast("QuerySet[Any]", self.object_list).order_by("pk")
        if connections[rows.db].vendor != "sqlite":
            return int(rows.count())
        total, rest = 0, rows
        while True:
            piece = rest.values("pk")[:KEYS_A_COUNT].aggregate(keys=Count("*"), last=Max("pk"))
            total += piece["keys"]
            if piece["keys"] < KEYS_A_COUNT:
                return int(total)
            if not isinstance(piece["last"], int):
                return int(rows.count())
            rest = rows.filter(pk__gt=piece["last"])


class VendorChangeList(ChangeList):
    """The list of rows of one store, in the order of the primary key and no other."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str | Combinable]:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the page here, where what the database refuses becomes a sentence."""
        super().get_results(request)
        self.result_list = list(self.result_list)

    def url_for_result(self, result: Any) -> str:
        """Name the store in the address of a row."""
        return f"{super().url_for_result(result)}?{urlencode({'store': result._state.db})}"  # noqa: SLF001


def _with_sentence(view: View) -> View:
    """Show a page with a sentence when the store cannot be read, never an error."""

    @wraps(view)
    def wrapper(
        model_admin: VendorAdmin[Any], request: HttpRequest, *args: Any, **kwargs: Any
    ) -> Any:
        if not model_admin.has_view_permission(request):
            return view(model_admin, request, *args, **kwargs)
        try:
            store = asked_store(request)
            with open_store(store):
                pass
            with any_text_read(store):
                response = view(model_admin, request, *args, **kwargs)
        except REFUSALS as error:
            sentence = str(error)
        except DatabaseError as error:
            sentence = _("%(store)s cannot be read here: %(error)s.") % {
                "store": store,
                "error": str(error).rstrip("."),
            }
        else:
            return response
        return model_admin.operation_page(
            request,
            "admin/history_retention/unreadable.html",
            title=str(model_admin.opts.verbose_name_plural).capitalize(),
            sentence=sentence,
        )

    return cast("View", wrapper)


class VendorAdmin(OperationsAdmin[ModelT]):
    """A vendor's table.

    ``content_fields`` need ``content_permission`` and are in no list; ``shows`` says which field
    a column of this class's own shows.
    """

    actions = None
    list_filter = (VendorStoreFilter,)
    paginator = VendorPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    content_fields: Sequence[str] = ()
    content_permission = ""
    shows: Mapping[str, str] = {}

    class Media:
        css = {"all": ("history_retention/admin.css",)}

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelT]:
        rows: QuerySet[ModelT] = self.model._default_manager.for_store(asked_store(request))  # type: ignore[attr-defined]
        return rows

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> ModelT | None:
        """Fetch a row with the fields that its page shows, and no other."""
        rows = self.get_queryset(request).only(*self._stored(request, self._shown(request)))
        try:
            return rows.get(pk=self._key(rows.db, object_id))
        except (ObjectDoesNotExist, DataError):  # the latter for no key of a server's column
            return None

    def _key(self, store: str, object_id: str) -> object:
        """Return what a row's key is asked for by.

        A server reads the text as what its column holds, be that a number or a UUID. In a file a
        number is no text.
        """
        if connections[store].vendor == "sqlite":
            with suppress(ValidationError):
                key: object = self.opts.pk.to_python(object_id)
                return key
        return Value(object_id)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return VendorChangeList

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return self._present(request, self.list_display)

    def get_fields(self, request: HttpRequest, obj: ModelT | None = None) -> list[Any]:
        return self._present(request, self._shown(request))

    def get_readonly_fields(self, request: HttpRequest, obj: ModelT | None = None) -> list[str]:
        return self.get_fields(request, obj)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return lookup == VendorStoreFilter.parameter_name

    @_with_sentence
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the rows of one store, or say that it has no such table."""
        if self.has_view_permission(request) and self.get_queryset(request).query.is_empty():
            self.message_user(
                request,
                _("%(store)s has no table “%(table)s”, so there is nothing to show.")
                % {"store": asked_store(request), "table": self.opts.db_table},
                messages.WARNING,
            )
        return super().changelist_view(request, extra_context)

    @_with_sentence
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a row."""
        return super().change_view(request, object_id, form_url, extra_context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Raise Http404: nothing here ever changes a vendor's row."""
        raise Http404

    def _shown(self, request: HttpRequest) -> Sequence[str]:
        """List the fields of a row's page that the user may see."""
        fields = tuple(str(name) for name in self.fields or ())
        if self.content_fields and request.user.has_perm(self.content_permission):
            return (*fields, *self.content_fields)
        return fields

    def _present(self, request: HttpRequest, names: Sequence[Any]) -> list[Any]:
        """Leave out the fields whose columns this store's table lacks."""
        deferred, _is_deferred = self.get_queryset(request).query.deferred_loading
        lacking = set(deferred) - set(self.content_fields)
        return [name for name in names if self.shows.get(name, name) not in lacking]

    def _stored(self, request: HttpRequest, names: Sequence[str]) -> list[str]:
        """Return the model's fields among the names, for fetching."""
        return [self.shows.get(name, name) for name in self._present(request, names)]


@admin.register(Conversation)
class ConversationAdmin(VendorAdmin[Conversation]):
    """The rows that name threads. Gaunt Sloth's table."""

    list_display = ("id", "started_ts", "command", "project", "model", "thread")
    fields = ("id", "started_ts", "command", "project", "model", "thread", "grants")
    shows = {"thread": "thread_id"}

    @admin.display(description=gettext_lazy("thread"))
    def thread(self, conversation: Conversation) -> SafeString | str:
        """Link the thread as last measured."""
        if not conversation.thread_id:
            return ""
        store = conversation._state.db or ""  # noqa: SLF001
        digest = Thread.digest_of(store, conversation.thread_id)
        return thread_name(conversation.thread_id, digest)


@admin.register(Session)
class SessionAdmin(VendorAdmin[Session]):
    """Turns, listed without their text. Gaunt Sloth's table."""

    list_display = (
        "id", "ts", "conversation_number", "command", "project", "model", "tokens_input",
        "tokens_output", "cost_usd",
    )  # fmt: skip
    fields = (
        "id", "ts", "conversation_number", "command", "project", "model", "tokens_input",
        "tokens_output", "cost_usd", "tools", "duration_ms",
    )  # fmt: skip
    shows = {"conversation_number": "conversation"}
    content_fields = ("prompt", "response")
    content_permission = "history_retention.view_session_content"

    @admin.display(description=gettext_lazy("conversation"))
    def conversation_number(self, turn: Session) -> SafeString | str:
        """Link the conversation in the same store."""
        if turn.conversation_id is None:
            return ""
        store = turn._state.db  # noqa: SLF001
        return cell("conversation_link", id=turn.conversation_id, store=store)
