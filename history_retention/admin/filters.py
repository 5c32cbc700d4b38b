"""Filters of the list of threads."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..conf import get_settings
from ..models import Measurement, Thread
from ..models.ledger import STATE_CHOICES
from ..recording import MOST_VALUES
from .words import readable

IDLE_DAYS = (7, 30, 90, 365)

Lookups = list[tuple[str, Any]]


class StoreFilter(SimpleListFilter):
    """Stores of the settings, and those measured in the past, of any model with a ``store``."""

    title = _("store")
    parameter_name = "store"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Lookups:
        measured = Measurement.objects.order_by("store").values_list("store", flat=True).distinct()
        stores = dict.fromkeys([*get_settings().stores, *measured])
        return [(store, store) for store in stores]

    def has_output(self) -> bool:
        """Offer no choice of one."""
        return len(self.lookup_choices) > 1 or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() is None else queryset.filter(store=self.value())


class StateFilter(SimpleListFilter):
    """States, as words."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Lookups:
        return list(STATE_CHOICES)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Thread]) -> QuerySet[Thread]:
        return queryset if self.value() is None else queryset.filter(state=self.value())


class _TextFilter(SimpleListFilter):
    """Values of a text field that took the most space when the stores were last measured.

    To sum them up here would read all threads for every page.
    """

    field: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Lookups:
        totals: Counter[str] = Counter()
        for store in get_settings().stores:
            noted = Measurement.objects.filter(store=store).values_list("largest_values", flat=True)
            totals.update(dict((noted.first() or {}).get(self.field, ())))
        values = [value for value, _total in totals.most_common(MOST_VALUES)]
        asked = self.used_parameters.get(self.parameter_name or "")
        if asked is not None and asked not in values:
            values.append(asked)
        return [(value, readable(value) if value else _("none")) for value in values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Thread]) -> QuerySet[Thread]:
        value = self.value()
        return queryset if value is None else queryset.filter(Q((self.field, value)))


class CommandFilter(_TextFilter):
    title = _("command")
    parameter_name = "command"
    field = "command"


class ProjectFilter(_TextFilter):
    title = _("project")
    parameter_name = "project"
    field = "project"


class IdleFilter(SimpleListFilter):
    """How long the last activity is ago. An unknown activity is never idle."""

    title = _("idle for")
    parameter_name = "idle"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Lookups:
        return [
            (str(days), ngettext("%(days)d day", "%(days)d days", days) % {"days": days})
            for days in IDLE_DAYS
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Thread]) -> QuerySet[Thread]:
        days = self.value()
        if days is None or days not in map(str, IDLE_DAYS):
            return queryset
        return queryset.filter(last_activity__lt=timezone.now() - timedelta(days=int(days)))
