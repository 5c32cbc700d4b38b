"""Windows onto the tables that OpenClaw writes; each docstring says of which age a file has it.

All of them are OpenClaw's own and only read here. Instants are its milliseconds since 1970. Of
the tables in the same file that hold credentials and memory there is no model.
"""
# ruff: noqa: DJ001 - whether a column may be NULL is the vendor's choice

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from ...models.readonly import VendorModel


class SessionEntry(VendorModel):
    """What a session key means now. Age A's table."""

    on_demand_fields = ("entry_json",)

    session_key = models.TextField(_("key"), primary_key=True)
    session_id = models.TextField(_("session"))
    entry_json = models.TextField(_("entry"))
    updated_at = models.BigIntegerField(_("updated"))
    status = models.TextField(_("status"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "session_entries"
        permissions = [("view_entry_content", _("Can read entries and events"))]
        verbose_name = _("session entry (age A)")
        verbose_name_plural = _("session entries (age A)")

    def __str__(self) -> str:
        return self.session_key


class SessionNode(VendorModel):
    """What a session key means now. Age B's table.

    ``entry_valid`` is 1 for an entry that OpenClaw has checked, -1 for a node that is left only
    because windows hang from it.
    """

    on_demand_fields = ("entry_json",)

    session_key = models.TextField(_("key"), primary_key=True)
    current_session_id = models.TextField(_("session"))
    entry_json = models.TextField(_("entry"))
    entry_valid = models.SmallIntegerField(_("checked"))
    updated_at = models.BigIntegerField(_("updated"))
    status = models.TextField(_("status"), null=True)
    label = models.TextField(_("label"), null=True)
    pinned_at = models.BigIntegerField(_("pinned"), null=True)
    archived_at = models.BigIntegerField(_("archived"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "session_nodes"
        verbose_name = _("session entry")
        verbose_name_plural = _("session entries")

    def __str__(self) -> str:
        return self.session_key


class _Window(VendorModel):
    """One session, of which a key has had one after another."""

    on_demand_fields: ClassVar[tuple[str, ...]] = ()

    session_id = models.TextField(_("session"), primary_key=True)
    session_key = models.TextField(_("key"))
    created_at = models.BigIntegerField(_("created"))
    updated_at = models.BigIntegerField(_("updated"))
    transcript_updated_at = models.BigIntegerField(_("last written"), null=True)
    status = models.TextField(_("status"), null=True)

    class Meta(VendorModel.Meta):
        abstract = True

    def __str__(self) -> str:
        return self.session_id


class StoredSession(_Window):
    """A session as age A keeps it.

    Its table has the name of another vendor's, so here it goes by the schema that it is in.
    """

    vendor_table = "sessions"

    class Meta(_Window.Meta):
        db_table = '"main"."sessions"'
        verbose_name = _("session (age A)")
        verbose_name_plural = _("sessions (age A)")


class SessionWindow(_Window):
    """A session as age B keeps it."""

    class Meta(_Window.Meta):
        db_table = "session_windows"
        verbose_name = _("session")
        verbose_name_plural = _("sessions")


class SessionRoute(VendorModel):
    """Where a key leads. Age A's table."""

    session_key = models.TextField(_("key"), primary_key=True)
    session_id = models.TextField(_("session"))
    updated_at = models.BigIntegerField(_("updated"))

    class Meta(VendorModel.Meta):
        db_table = "session_routes"
        verbose_name = _("session route")
        verbose_name_plural = _("session routes")

    def __str__(self) -> str:
        return self.session_key


class TranscriptEvent(VendorModel):
    """One line of a transcript. A table of both ages.

    Since version 23 a large event is compressed: ``event_json`` is NULL then.
    """

    on_demand_fields = ("event_json", "event_zstd")

    pk = models.CompositePrimaryKey("session_id", "seq")
    session_id = models.TextField(_("session"))
    seq = models.BigIntegerField(_("number"))
    event_json = models.TextField(_("event"), null=True)
    event_zstd = models.BinaryField(_("compressed event"), null=True)
    event_utf8_bytes = models.BigIntegerField(_("bytes"), null=True)
    created_at = models.BigIntegerField(_("created"))

    class Meta(VendorModel.Meta):
        db_table = "transcript_events"
        verbose_name = _("transcript event")
        verbose_name_plural = _("transcript events")

    def __str__(self) -> str:
        return f"{self.session_id}: {self.seq}"


class EventIdentity(VendorModel):
    """The id, kind and parent of an event. A table of both ages."""

    pk = models.CompositePrimaryKey("session_id", "event_id")
    session_id = models.TextField(_("session"))
    event_id = models.TextField(_("event"))
    seq = models.BigIntegerField(_("number"))
    event_type = models.TextField(_("kind"), null=True)
    parent_id = models.TextField(_("parent"), null=True)
    created_at = models.BigIntegerField(_("created"))

    class Meta(VendorModel.Meta):
        db_table = "transcript_event_identities"
        verbose_name = _("event identity")
        verbose_name_plural = _("event identities")

    def __str__(self) -> str:
        return f"{self.session_id}: {self.event_id}"


class TranscriptArchive(VendorModel):
    """An archived transcript. Age B's table, since version 19.

    One without ``published_at`` is pending: its file is not made yet.
    """

    on_demand_fields = ("archive_blob",)

    pk = models.CompositePrimaryKey("session_id", "generation")
    session_id = models.TextField(_("session"))
    generation = models.TextField(_("generation"))
    session_key = models.TextField(_("key"))
    reason = models.TextField(_("reason"))
    encoding = models.TextField(_("encoding"))
    archive_blob = models.BinaryField(_("archive"))
    archive_name = models.TextField(_("file"))
    created_at = models.BigIntegerField(_("created"))
    published_at = models.BigIntegerField(_("published"), null=True)
    publish_attempts = models.BigIntegerField(_("attempts"))
    last_publish_error = models.TextField(_("last error"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "session_transcript_archives"
        verbose_name = _("transcript archive")
        verbose_name_plural = _("transcript archives")

    def __str__(self) -> str:
        return self.archive_name


class ColdArchive(VendorModel):
    """A transcript in cold storage: not a copy, but the transcript itself. Age B's table."""

    on_demand_fields = ("archive_blob",)

    session_id = models.TextField(_("session"), primary_key=True)
    generation = models.TextField(_("generation"))
    archive_name = models.TextField(_("file"))
    archive_blob = models.BinaryField(_("archive"), null=True)
    event_count = models.BigIntegerField(_("events"))
    archive_bytes = models.BigIntegerField(_("bytes"))
    archived_at = models.BigIntegerField(_("archived"))

    class Meta(VendorModel.Meta):
        db_table = "session_transcript_cold_archives"
        verbose_name = _("transcript in cold storage")
        verbose_name_plural = _("transcripts in cold storage")

    def __str__(self) -> str:
        return self.session_id
