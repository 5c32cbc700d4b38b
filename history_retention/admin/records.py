"""Measurements and leases: what was or is, to be read and never changed."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from ..models import Lease, Measurement
from .base import ReadOnlyAdmin
from .columns import RecordMedia, count, size, size_in_full
from .filters import StoreFilter
from .words import thread_name


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

    file_size = size("file_bytes", _("file"))
    free_size = size("free_bytes", _("free inside it"))
    checkpoint_size = size("checkpoint_bytes", _("checkpoints"))
    unresumable_size = size("unresumable_bytes", _("unresumable size"))
    reclaimable_size = size("reclaimable_bytes", _("reclaimable size"))
    threads = count("thread_count", _("threads"))
    checkpoint_rows = count("checkpoint_count", _("checkpoint rows"))
    write_rows = count("write_count", _("write rows"))
    conversations = count("conversation_count", _("conversations"))
    turns = count("turn_count", _("turns"))
    unresumable = count("unresumable_count", _("unresumable threads"))
    reclaimable = count("reclaimable_count", _("reclaimable threads"))
    file_in_full = size_in_full("file_bytes", _("file"))
    free_in_full = size_in_full("free_bytes", _("free inside the file"))
    wal_in_full = size_in_full("wal_bytes", _("write-ahead log"))
    checkpoints_in_full = size_in_full("checkpoint_bytes", _("checkpoints"))
    transcripts_in_full = size_in_full("transcript_bytes", _("transcripts"))
    unresumable_in_full = size_in_full("unresumable_bytes", _("unresumable size"))
    reclaimable_in_full = size_in_full("reclaimable_bytes", _("reclaimable size"))

    Media = RecordMedia


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin[Lease]):
    """What running agents have open, in which process, and when their word runs out."""

    list_display = ("name", "store", "owner", "expires_at")
    list_filter = (StoreFilter,)
    search_fields = ("thread_id", "owner")
    fields = ("store", "name", "owner", "expires_at")
    readonly_fields = ("name",)

    Media = RecordMedia

    @admin.display(description=_("thread"), ordering="thread_id")
    def name(self, lease: Lease) -> SafeString:
        return thread_name(lease.thread_id)
