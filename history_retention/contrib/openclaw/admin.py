"""OpenClaw's entries as they stand in a store, each with its family, protection and archives.

They are read there and never changed. To remove one, follow its key to the thread as last
measured, whose list has the prune action with its confirmation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ...admin.vendor import VendorAdmin, VendorChangeList
from ...admin.words import readable, thread_name
from ...models import Thread
from ...models.readonly import VendorModel
from ...stores.instants import instant_of_milliseconds
from .ages import B
from .entries import Entry, entry_of
from .models import SessionEntry, SessionNode, SessionWindow, StoredSession
from .operations import opened
from .protection import Protection, protection
from .sizes import Size

EntryT = TypeVar("EntryT", SessionEntry, SessionNode)

PROTECTED_AS = {
    Protection.LOCKED: _("its model selection is locked"),
    Protection.RUNNING: _("at work"),
    Protection.ARCHIVED: _("archived"),
    Protection.PINNED: _("pinned"),
    Protection.MAIN: _("main session"),
    Protection.EXTERNAL: _("delivered elsewhere"),
    Protection.CHANNEL: _("group, channel or thread"),
    Protection.DIRECT: _("direct conversation"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySession:
    """A session of an entry's family. ``other`` is the key of another entry that needs it."""

    name: str
    size: Size
    other: str


class EntryChangeList(VendorChangeList):
    """A page of entries, with their sizes as measured in one query."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the page and the sizes."""
        super().get_results(request)
        tell_measured_sizes(self.result_list)


def tell_measured_sizes(rows: Sequence[Any]) -> None:
    """Note on each entry the bytes of its thread when the store was last measured, or None."""
    threads = Thread.objects.filter(digest__in=[_digest_of(row) for row in rows])
    sizes = dict(threads.values_list("digest", "byte_count"))
    for row in rows:
        row.measured_bytes = sizes.get(_digest_of(row))


class _EntryAdmin(VendorAdmin[EntryT]):
    """The entries of one age."""

    content_fields = ("entry_json",)
    content_permission = "openclaw.view_entry_content"
    shows = {
        "updated": "updated_at",
        **dict.fromkeys(
            ("key", "measured_size", "protected_as", "family", "archives"), "session_key"
        ),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[EntryT]:
        """Load the text along with a list, where it tells what protects an entry."""
        rows: QuerySet[EntryT] = super().get_queryset(request).annotate(told=F("entry_json"))
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return EntryChangeList

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> EntryT | None:
        """Fetch an entry, with its size as measured."""
        row = cast("EntryT | None", super().get_object(request, object_id, from_field))
        if row is not None:
            tell_measured_sizes([row])
        return row

    @admin.display(description=_("key"))
    def key(self, row: Any) -> SafeString:
        """Link the thread as last measured, if it was."""
        is_measured = row.measured_bytes is not None
        return thread_name(row.session_key, _digest_of(row) if is_measured else "")

    @admin.display(description=_("size as measured"))
    def measured_size(self, row: Any) -> str:
        """Return the bytes counted to the entry when the store was last measured."""
        return "" if row.measured_bytes is None else filesizeformat(row.measured_bytes)

    @admin.display(description=_("updated"))
    def updated(self, row: EntryT) -> Any:
        return instant_of_milliseconds(row.updated_at)

    @admin.display(description=_("protected as"))
    def protected_as(self, row: EntryT) -> Any:
        """Say what keeps prune and maintenance off the entry."""
        found = protection(_entry_of(row), B)
        return "" if found is None else PROTECTED_AS[found]

    @admin.display(description=_("family"))
    def family(self, row: EntryT) -> SafeString:
        """List the sessions of the family with their sizes, and who else needs each."""
        with opened(_store_of(row)) as store:
            sessions = [
                FamilySession(
                    name=readable(session_id), size=size, other=readable(other) if other else ""
                )
                for session_id, size, other in store.family_of(row.session_key)
            ]
        total = sum(session.size.byte_count for session in sessions)
        context = {"sessions": sessions, "size": filesizeformat(total)}
        return render_to_string("admin/openclaw/family.html", context)

    @admin.display(description=_("archives"))
    def archives(self, row: EntryT) -> SafeString:
        """List the archives of sessions that the family had and has."""
        with opened(_store_of(row)) as store:
            held = store.archives.of(store.family_ids(row.session_key))
        return render_to_string("admin/openclaw/archives.html", {"archives": held})


@admin.register(SessionNode)
class SessionNodeAdmin(_EntryAdmin[SessionNode]):
    """Entries of age B."""

    list_display = ("key", "updated", "label", "status", "measured_size", "protected_as")
    fields = (
        *("key", "current_session_id", "updated", "label", "status", "measured_size"),
        *("protected_as", "family", "archives"),
    )


@admin.register(SessionEntry)
class SessionEntryAdmin(_EntryAdmin[SessionEntry]):
    """Entries of age A."""

    list_display = ("key", "updated", "status", "measured_size", "protected_as")
    fields = (
        *("key", "session_id", "updated", "status", "measured_size"),
        *("protected_as", "family", "archives"),
    )


class _WindowAdmin(VendorAdmin[Any]):
    """The sessions of one age."""

    list_display = ("session", "session_key", "written", "status")
    fields = ("session", "session_key", "written", "status")
    shows = {"session": "session_id", "written": "transcript_updated_at"}

    @admin.display(description=_("session"))
    def session(self, row: Any) -> SafeString:
        return thread_name(row.session_id)

    @admin.display(description=_("last written"))
    def written(self, row: Any) -> Any:
        return instant_of_milliseconds(row.transcript_updated_at)


admin.site.register(SessionWindow, _WindowAdmin)
admin.site.register(StoredSession, _WindowAdmin)


def _digest_of(row: Any) -> str:
    return Thread.digest_of(_store_of(row), row.session_key)


def _store_of(row: VendorModel) -> str:
    return row._state.db or ""  # noqa: SLF001


def _entry_of(row: Any) -> Entry:
    return entry_of(
        row.session_key,
        row.current_session_id if isinstance(row, SessionNode) else row.session_id,
        row.told.encode("utf-8", "surrogateescape"),
        row.updated_at,
        pinned_at=getattr(row, "pinned_at", None),
        archived_at=getattr(row, "archived_at", None),
    )
