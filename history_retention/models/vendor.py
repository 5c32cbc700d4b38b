"""Windows onto the tables that agents write; each docstring says whose table it is.

The timestamps of conversations and turns are the vendor's text (ISO 8601): they are compared as
instants by the stores, never here. Files of older versions lack columns: read them through
``objects.for_store(alias)``.
"""
# ruff: noqa: DJ001 - whether a column may be NULL is the vendor's choice

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from .readonly import VendorModel


class Checkpoint(VendorModel):
    """The whole state of a thread after one step. LangGraph's table, in all of its savers.

    In PostgreSQL ``checkpoint`` and ``metadata`` are JSON, read here as its text, and values lie
    in ``CheckpointBlob``. The shallow saver's table has no ``checkpoint_id``, so no rows here.
    """

    on_demand_fields = ("checkpoint", "metadata")

    pk = models.CompositePrimaryKey("thread_id", "checkpoint_ns", "checkpoint_id")
    thread_id = models.TextField(_("thread"))
    checkpoint_ns = models.TextField(_("namespace"))
    checkpoint_id = models.TextField(_("checkpoint"))
    parent_checkpoint_id = models.TextField(_("parent"), null=True)
    type = models.TextField(_("encoding"), null=True)
    checkpoint = models.BinaryField(_("state"), null=True)
    metadata = models.BinaryField(_("metadata"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "checkpoints"
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")

    def __str__(self) -> str:
        return f"{self.thread_id}: {self.checkpoint_id}"


class _Write(VendorModel):
    """What one task wrote to one channel on top of a checkpoint."""

    on_demand_fields: ClassVar[tuple[str, ...]] = ("value",)

    pk = models.CompositePrimaryKey("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
    thread_id = models.TextField(_("thread"))
    checkpoint_ns = models.TextField(_("namespace"))
    checkpoint_id = models.TextField(_("checkpoint"))
    task_id = models.TextField(_("task"))
    idx = models.BigIntegerField(_("number"))
    channel = models.TextField(_("channel"))
    type = models.TextField(_("encoding"), null=True)
    value = models.BinaryField(_("value"), null=True)

    class Meta(VendorModel.Meta):
        abstract = True

    def __str__(self) -> str:
        return f"{self.thread_id}: {self.checkpoint_id} {self.channel}"


class CheckpointWrite(_Write):
    """A write as Gaunt Sloth keeps it. Gaunt Sloth's table, and one of LangGraph's.

    LangGraph's PostgreSQL savers keep ``blob`` instead of ``value``, and ``task_path`` since their
    migration 9; a table has the one or the others.
    """

    on_demand_fields = ("value", "blob", "task_path")

    blob = models.BinaryField(_("value in PostgreSQL"), null=True)
    task_path = models.TextField(_("task path"))

    class Meta(_Write.Meta):
        db_table = "checkpoint_writes"
        verbose_name = _("checkpoint write")
        verbose_name_plural = _("checkpoint writes")


class CheckpointBlob(VendorModel):
    """A value of a channel, which the checkpoints of a thread share. LangGraph's table.

    Its PostgreSQL savers alone have it; the shallow one keeps no ``version``, so no rows here.
    """

    on_demand_fields = ("blob",)

    pk = models.CompositePrimaryKey("thread_id", "checkpoint_ns", "channel", "version")
    thread_id = models.TextField(_("thread"))
    checkpoint_ns = models.TextField(_("namespace"))
    channel = models.TextField(_("channel"))
    version = models.TextField(_("version"))
    type = models.TextField(_("encoding"))
    blob = models.BinaryField(_("value"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "checkpoint_blobs"
        verbose_name = _("checkpoint blob")
        verbose_name_plural = _("checkpoint blobs")

    def __str__(self) -> str:
        return f"{self.thread_id}: {self.channel} {self.version}"


class LangGraphWrite(_Write):
    """A write as LangGraph's SQLite savers keep it. LangGraph's table.

    ``task_path`` is there since version 3.1.2 of the saver.
    """

    on_demand_fields = ("value", "task_path")

    task_path = models.TextField(_("task path"))

    class Meta(_Write.Meta):
        db_table = "writes"
        verbose_name = _("LangGraph write")
        verbose_name_plural = _("LangGraph writes")


class Conversation(VendorModel):
    """The row that names a thread and so lets a person resume it. Gaunt Sloth's table.

    A project that runs LangGraph's SQLite saver may keep one of the same name beside it.
    ``grants`` is there in newer files.
    """

    on_demand_fields = ("grants",)

    id = models.BigAutoField(primary_key=True)
    started_ts = models.TextField(_("started"))
    project = models.TextField(_("project"), null=True)
    command = models.TextField(_("command"), null=True)
    model = models.TextField(_("model"), null=True)
    thread_id = models.TextField(_("thread"), null=True)
    grants = models.TextField(_("grants"), null=True)

    class Meta(VendorModel.Meta):
        db_table = "conversations"
        ordering = ["-id"]
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")

    def __str__(self) -> str:
        return str(self.pk)


class Session(VendorModel):
    """One turn of a conversation: a prompt and its response. Gaunt Sloth's table.

    Prompt and response are the transcript; reading them in the admin takes
    ``view_session_content``.
    """

    on_demand_fields = ("prompt", "response")

    id = models.BigAutoField(primary_key=True)
    ts = models.TextField(_("at"))
    project = models.TextField(_("project"), null=True)
    command = models.TextField(_("command"), null=True)
    model = models.TextField(_("model"), null=True)
    prompt = models.TextField(_("prompt"), null=True)
    response = models.TextField(_("response"), null=True)
    tokens_input = models.BigIntegerField(_("tokens in"), null=True)
    tokens_output = models.BigIntegerField(_("tokens out"), null=True)
    cost_usd = models.FloatField(_("cost in USD"), null=True)
    tools = models.TextField(_("tools"), null=True)
    duration_ms = models.BigIntegerField(_("duration in ms"), null=True)
    conversation = models.ForeignKey(
        Conversation,
        verbose_name=_("conversation"),
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="turns",
    )

    class Meta(VendorModel.Meta):
        db_table = "sessions"
        ordering = ["-id"]
        permissions = [("view_session_content", _("Can read the text of turns"))]
        verbose_name = _("turn")
        verbose_name_plural = _("turns")

    def __str__(self) -> str:
        return str(self.pk)
