"""Measurements, sweeps and leases: what was or is, to be read and never changed."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.template.defaultfilters import filesizeformat
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Lease, Measurement, Sweep
from .base import ReadOnlyAdmin
from .filters import StoreFilter
from .words import cell, grouped, thread_name


def _size(field: str, description: Any) -> Any:
    """Return a column with a number of bytes as a size."""

    @admin.display(description=description, ordering=field)
    def column(_admin: object, row: Measurement | Sweep) -> str:
        value = getattr(row, field)
        return "" if value is None else filesizeformat(value)

    return column


def _size_in_full(field: str, description: Any) -> Any:
    """Return a line of a row's own page with a size and its exact bytes."""

    @admin.display(description=description)
    def line(_admin: object, row: Measurement | Sweep) -> SafeString | str:
        value = getattr(row, field)
        return "" if value is None else cell("size_in_full", bytes=value)

    return line


def _count(field: str, description: Any) -> Any:
    """Return a column with a number."""

    @admin.display(description=description, ordering=field)
    def column(_admin: object, row: Measurement | Sweep) -> str:
        return grouped(getattr(row, field))

    return column


class _RecordMedia:
    css = {"all": ("history_retention/admin.css",)}


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin[Measurement]):
    """How a store grew."""

    list_display = (
        "measured_at", "store", "file_size", "free_size", "checkpoint_size", "threads",
        "unresumable", "unresumable_size", "reclaimable_size",
    )  # fmt: skip
    list_filter = (StoreFilter,)
    fields = (
        "store", "layout", "measured_at", "file_in_full", "free_in_full", "wal_in_full",
        "checkpoints_in_full", "transcripts_in_full", "threads", "checkpoint_rows", "write_rows",
        "conversations", "turns", "unresumable", "unresumable_in_full", "reclaimable",
        "reclaimable_in_full",
    )  # fmt: skip
    readonly_fields = fields[3:]

    file_size = _size("file_bytes", _("file"))
    free_size = _size("free_bytes", _("free inside it"))
    checkpoint_size = _size("checkpoint_bytes", _("checkpoints"))
    unresumable_size = _size("unresumable_bytes", _("unresumable size"))
    reclaimable_size = _size("reclaimable_bytes", _("reclaimable size"))
    threads = _count("thread_count", _("threads"))
    checkpoint_rows = _count("checkpoint_count", _("checkpoint rows"))
    write_rows = _count("write_count", _("write rows"))
    conversations = _count("conversation_count", _("conversations"))
    turns = _count("turn_count", _("turns"))
    unresumable = _count("unresumable_count", _("unresumable threads"))
    reclaimable = _count("reclaimable_count", _("reclaimable threads"))
    file_in_full = _size_in_full("file_bytes", _("file"))
    free_in_full = _size_in_full("free_bytes", _("free inside the file"))
    wal_in_full = _size_in_full("wal_bytes", _("write-ahead log"))
    checkpoints_in_full = _size_in_full("checkpoint_bytes", _("checkpoints"))
    transcripts_in_full = _size_in_full("transcript_bytes", _("transcripts"))
    unresumable_in_full = _size_in_full("unresumable_bytes", _("unresumable size"))
    reclaimable_in_full = _size_in_full("reclaimable_bytes", _("reclaimable size"))

    Media = _RecordMedia


@admin.register(Sweep)
class SweepAdmin(ReadOnlyAdmin[Sweep]):
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
                                   "removed_in_full", "threads_skipped")}),
        (_("File"), {"fields": ("before_in_full", "after_in_full", "vacuumed",
                                "vacuum_reason")}),
    )  # fmt: skip
    readonly_fields = (
        "bounds_given", "outcome", "threads_planned", "planned_in_full", "threads_removed",
        "checkpoints_removed", "writes_removed", "removed_in_full", "threads_skipped",
        "before_in_full", "after_in_full",
    )  # fmt: skip

    removed_size = _size("removed_bytes", _("removed"))
    file_after = _size("file_bytes_after", _("file after"))
    threads_planned = _count("planned_threads", _("threads planned"))
    threads_removed = _count("removed_threads", _("threads removed"))
    threads_skipped = _count("skipped_threads", _("threads skipped"))
    checkpoints_removed = _count("removed_checkpoints", _("checkpoints removed"))
    writes_removed = _count("removed_writes", _("writes removed"))
    planned_in_full = _size_in_full("planned_bytes", _("planned"))
    removed_in_full = _size_in_full("removed_bytes", _("removed"))
    before_in_full = _size_in_full("file_bytes_before", _("file before"))
    after_in_full = _size_in_full("file_bytes_after", _("file after"))

    Media = _RecordMedia

    @admin.display(description=_("outcome"), ordering="ending")
    def outcome(self, sweep: Sweep) -> SafeString:
        return cell("ending", ending=sweep.ending, word=sweep.get_ending_display())

    @admin.display(description=_("bounds"))
    def bounds_given(self, sweep: Sweep) -> str:
        return json.dumps(sweep.bounds, ensure_ascii=False) if sweep.bounds else ""


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin[Lease]):
    """What running agents have open, in which process, and when their word runs out."""

    list_display = ("name", "store", "owner", "expires_at")
    list_filter = (StoreFilter,)
    search_fields = ("thread_id", "owner")
    fields = ("store", "name", "owner", "expires_at")
    readonly_fields = ("name",)

    Media = _RecordMedia

    @admin.display(description=_("thread"), ordering="thread_id")
    def name(self, lease: Lease) -> SafeString:
        return thread_name(Lease.thread_id_of(lease.thread_id))
