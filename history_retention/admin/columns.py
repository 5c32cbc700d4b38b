"""Columns of numbers on the pages of records: sizes as people read them, counts grouped."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString

from .words import cell, grouped


def size(field: str, description: Any) -> Any:
    """Return a column with a number of bytes as a size."""

    @admin.display(description=description, ordering=field)
    def column(_admin: object, row: Model) -> str:
        value = getattr(row, field)
        return "" if value is None else filesizeformat(value)

    return column


def size_in_full(field: str, description: Any) -> Any:
    """Return a line of a row's own page with a size and its exact bytes."""

    @admin.display(description=description)
    def line(_admin: object, row: Model) -> SafeString | str:
        value = getattr(row, field)
        return "" if value is None else cell("size_in_full", bytes=value)

    return line


def count(field: str, description: Any) -> Any:
    """Return a column with a number."""

    @admin.display(description=description, ordering=field)
    def column(_admin: object, row: Model) -> str:
        return grouped(getattr(row, field))

    return column


class RecordMedia:
    css = {"all": ("history_retention/admin.css",)}
