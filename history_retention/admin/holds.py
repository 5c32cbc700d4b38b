"""Holds: a person's word that a thread stays."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Field
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ..conf import get_settings
from ..models import Hold, Thread
from ..words import spelled_out
from .base import TypedAdmin, signed_in
from .filters import StoreFilter
from .words import thread_name


@admin.register(Hold)
class HoldAdmin(TypedAdmin[Hold]):
    """Holds may be added, changed and removed by whoever has Django's permissions for it.

    A hold added from a thread's page names the thread by its key in the address, because a form
    field would change an id that holds line breaks.
    """

    list_display = ("name", "store", "reason", "by", "created_at", "until")
    list_filter = (StoreFilter,)
    list_select_related = ("by",)
    search_fields = ("thread_id", "reason")
    fields = ("store", "thread_id", "reason", "until", "by", "created_at")

    class Media:
        css = {"all": ("history_retention/admin.css",)}

    def get_fields(self, request: HttpRequest, obj: Hold | None = None) -> tuple[str, ...]:
        """Leave out what is filled in on saving, and spell an id that is there."""
        if obj is None:
            return self.fields[:4]
        return tuple("name" if field == "thread_id" else field for field in self.fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Hold | None = None) -> tuple[str, ...]:
        """Let nobody move a hold to another thread, or to another person."""
        return ("store", "name", "by", "created_at") if obj else ()

    def get_form(
        self, request: HttpRequest, obj: Hold | None = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm[Hold]]:
        """Fix store and thread when the address names a thread of the list."""
        form = super().get_form(request, obj, change=change, **kwargs)
        thread = None if obj else _asked_thread(request)
        if thread is not None:
            form.base_fields["store"].initial = thread.store
            form.base_fields["store"].disabled = True
            form.base_fields["thread_id"] = _GivenThreadId(thread, form.base_fields["thread_id"])
        return form

    def formfield_for_dbfield(
        self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        """Offer the stores of the settings, and take a thread id with its spaces."""
        if db_field.name == "store":
            return forms.ChoiceField(
                label=capfirst(db_field.verbose_name),
                choices=[(store, store) for store in get_settings().stores],
            )
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "thread_id" and isinstance(field, forms.CharField):
            field.strip = False
            field.widget.attrs["rows"] = 2
        return field

    def save_model(
        self, request: HttpRequest, obj: Hold, form: forms.ModelForm[Hold], change: bool
    ) -> None:
        """Note who gave the word; say so when no such thread is known."""
        if not change:
            obj.by = signed_in(request)
            if not Thread.objects.filter(pk=Thread.digest_of(obj.store, obj.thread_id)).exists():
                self.message_user(
                    request,
                    _(
                        "%(store)s had no thread of this id when it was last measured. "
                        "The hold counts all the same; check the id."
                    )
                    % {"store": obj.store},
                    messages.WARNING,
                )
        super().save_model(request, obj, form, change)

    @admin.display(description=_("thread"), ordering="thread_id")
    def name(self, hold: Hold) -> SafeString:
        return thread_name(hold.thread_id)


class _GivenThreadId(forms.CharField):
    """The id of the thread that the address names: it is shown as text and taken as it is."""

    def __init__(self, thread: Thread, field: forms.Field) -> None:
        super().__init__(
            initial=thread.thread_id, disabled=True, label=field.label, widget=field.widget
        )

    def prepare_value(self, value: Any) -> str:
        return spelled_out(str(value))

    def clean(self, value: Any) -> str:
        """Take an id that no form could have sent."""
        return str(value)


def _asked_thread(request: HttpRequest) -> Thread | None:
    """Return the thread that the address names, to whoever may see it."""
    if not request.user.has_perm("history_retention.view_thread"):
        return None
    return Thread.objects.filter(
        pk=request.GET.get("thread", ""), store__in=get_settings().stores
    ).first()
