"""What the package remembers, in the project's ``default`` database.

Four managed tables: threads as last measured, measurements, sweeps and holds. Nothing in them
is needed to read a vendor's store, and no vendor's store holds anything of them.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..facts import Ending, State
from ..words import spelled_out
from .thread_ids import ThreadIdField

STATE_CHOICES = [
    (State.RESUMABLE.value, _("resumable")),
    (State.UNRESUMABLE.value, _("unresumable")),
    (State.GRACE.value, _("in grace")),
    (State.HELD.value, _("held")),
    (State.LEASED.value, _("in use")),
    (State.UNKNOWN_AGE.value, _("unknown age")),
    (State.UNTOLD.value, _("not known")),
]


class Thread(models.Model):
    """A thread of a store as last measured. Ours; a measuring writes those that have changed.

    The key is a digest of store and thread id, because a vendor's ids have any length and case
    while a database's text keys have limits and collations.
    """

    digest = models.CharField(primary_key=True, max_length=64, editable=False)
    store = models.CharField(_("store"), max_length=255, db_index=True)
    thread_id = ThreadIdField(_("thread"))
    byte_count = models.PositiveBigIntegerField(_("size"), help_text=_("bytes"))
    checkpoint_count = models.PositiveBigIntegerField(_("checkpoints"))
    write_count = models.PositiveBigIntegerField(_("writes"))
    turn_count = models.PositiveBigIntegerField(_("turns"))
    first_activity = models.DateTimeField(_("first activity"), null=True, blank=True)
    last_activity = models.DateTimeField(_("last activity"), null=True, blank=True)
    conversation_ids = models.JSONField(_("conversations"), default=list, blank=True)
    label = models.TextField(_("label"), blank=True)
    command = models.CharField(_("command"), max_length=255, blank=True)
    project = models.CharField(_("project"), max_length=1024, blank=True)
    state = models.CharField(
        _("state"), max_length=16, choices=STATE_CHOICES, blank=True, db_index=True
    )
    stored_activity = models.DateTimeField(
        null=True, editable=False, help_text="Last activity of its rows, without conversations."
    )

    class Meta:
        verbose_name = _("thread")
        verbose_name_plural = _("threads")
        default_permissions = ("view",)
        permissions = [
            ("prune_thread", _("Can prune the stored state of threads")),
            ("reclaim_thread", _("Can reclaim unresumable threads")),
            ("measure_thread", _("Can measure a store")),
            ("vacuum_store", _("Can vacuum a store")),
        ]
        ordering = ["-byte_count", "digest"]
        indexes = [
            models.Index(fields=["-byte_count", "digest"], name="history_thread_size"),
            models.Index(fields=["store", "-byte_count"], name="history_thread_store_size"),
            models.Index(fields=["last_activity"], name="history_thread_activity"),
        ]

    def __str__(self) -> str:
        return f"{self.store}: {spelled_out(self.thread_id)}"

    @property
    def measured_at(self) -> datetime | None:
        """Return when its store was last measured; None when that was never kept."""
        newest = Measurement.objects.filter(store=self.store).first()
        return newest.measured_at if newest else None

    @staticmethod
    def digest_of(store: str, thread_id: str) -> str:
        """Return the key of a thread: SHA-256 of store and thread id, as hexadecimal text."""
        return hashlib.sha256(
            f"{store}\0{thread_id}".encode("utf-8", "surrogateescape")
        ).hexdigest()


class Measurement(models.Model):
    """One measuring of a store: its totals at an instant, for growth over time. Ours."""

    store = models.CharField(_("store"), max_length=255)
    layout = models.CharField(_("layout"), max_length=64)
    measured_at = models.DateTimeField(_("measured at"))
    file_bytes = models.PositiveBigIntegerField(_("file"), help_text=_("bytes"))
    free_bytes = models.PositiveBigIntegerField(_("free inside the file"), help_text=_("bytes"))
    wal_bytes = models.PositiveBigIntegerField(_("write-ahead log"), help_text=_("bytes"))
    checkpoint_bytes = models.PositiveBigIntegerField(_("checkpoints"), help_text=_("bytes"))
    transcript_bytes = models.PositiveBigIntegerField(_("transcripts"), help_text=_("bytes"))
    thread_count = models.PositiveBigIntegerField(_("threads"))
    checkpoint_count = models.PositiveBigIntegerField(_("checkpoint rows"))
    write_count = models.PositiveBigIntegerField(_("write rows"))
    conversation_count = models.PositiveBigIntegerField(_("conversations"))
    turn_count = models.PositiveBigIntegerField(_("turns"))
    unresumable_count = models.PositiveBigIntegerField(_("unresumable threads"))
    unresumable_bytes = models.PositiveBigIntegerField(_("unresumable"), help_text=_("bytes"))
    reclaimable_count = models.PositiveBigIntegerField(_("reclaimable threads"))
    reclaimable_bytes = models.PositiveBigIntegerField(_("reclaimable"), help_text=_("bytes"))
    marks = models.JSONField(
        default=dict, editable=False, help_text="What tells the next one which rows are new."
    )
    largest_values = models.JSONField(
        default=dict,
        editable=False,
        help_text="The commands and projects with the most bytes: lists of value and bytes.",
    )

    class Meta:
        verbose_name = _("measurement")
        verbose_name_plural = _("measurements")
        default_permissions = ("view",)
        ordering = ["-measured_at", "-pk"]
        get_latest_by = "measured_at"
        indexes = [models.Index(fields=["store", "-measured_at"], name="history_measurement_store")]

    def __str__(self) -> str:
        return f"{self.store} {self.measured_at:%Y-%m-%d %H:%M}"


class Sweep(models.Model):
    """One reclaim, prune or vacuum: who or what asked, inside which bounds, what became of it.

    Ours. The row is there before the first delete and is brought up to date after every
    commit; one whose process was killed counts what had been committed when it last wrote.
    """

    class Kind(models.TextChoices):
        PRUNE = "prune", _("prune")
        RECLAIM = "reclaim", _("reclaim")
        VACUUM = "vacuum", _("vacuum")

    class Trigger(models.TextChoices):
        COMMAND = "command", _("command")
        ADMIN = "admin", _("admin")
        SCHEDULE = "schedule", _("schedule")
        CODE = "code", _("code")

    ENDING_CHOICES = [
        (Ending.RUNNING.value, _("running")),
        (Ending.DONE.value, _("done")),
        (Ending.PARTIAL.value, _("partial")),
        (Ending.INTERRUPTED.value, _("interrupted")),
        (Ending.FAILED.value, _("failed")),
    ]

    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    store = models.CharField(_("store"), max_length=255)
    layout = models.CharField(_("layout"), max_length=64)
    trigger = models.CharField(_("trigger"), max_length=16, choices=Trigger.choices)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    bounds = models.JSONField(_("bounds"), default=dict, blank=True)
    as_of = models.DateTimeField(_("as of"))
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    planned_threads = models.PositiveBigIntegerField(_("threads planned"), default=0)
    planned_bytes = models.PositiveBigIntegerField(_("planned"), default=0, help_text=_("bytes"))
    removed_threads = models.PositiveBigIntegerField(_("threads removed"), default=0)
    removed_checkpoints = models.PositiveBigIntegerField(_("checkpoints removed"), default=0)
    removed_writes = models.PositiveBigIntegerField(_("writes removed"), default=0)
    removed_bytes = models.PositiveBigIntegerField(_("removed"), default=0, help_text=_("bytes"))
    skipped_threads = models.PositiveBigIntegerField(_("threads skipped"), default=0)
    file_bytes_before = models.PositiveBigIntegerField(_("file before"), null=True, blank=True)
    file_bytes_after = models.PositiveBigIntegerField(_("file after"), null=True, blank=True)
    vacuumed = models.BooleanField(_("vacuumed"), default=False)
    vacuum_reason = models.TextField(_("vacuum"), blank=True)
    vacuum_seconds = models.FloatField(
        _("writers waited"), null=True, blank=True, help_text=_("seconds")
    )
    ending = models.CharField(
        _("outcome"), max_length=16, choices=ENDING_CHOICES, default=Ending.RUNNING.value
    )
    error = models.TextField(_("error"), blank=True)
    batch_count = models.PositiveIntegerField(
        _("batches"), default=0, help_text=_("For workers to take; 0: swept by one process.")
    )
    naming_mark = models.BigIntegerField(
        default=0, editable=False, help_text=_("What the plan had seen of the naming tables.")
    )
    cancelled_at = models.DateTimeField(_("cancelled"), null=True, blank=True)
    resumed_at = models.DateTimeField(
        null=True, editable=False, help_text=_("When a schedule told the workers of it again.")
    )
    paced_until = models.DateTimeField(
        null=True,
        editable=False,
        help_text=_("When the next removal is allowed, by the clock of this database."),
    )
    process = models.CharField(
        max_length=255, blank=True, editable=False, help_text=_("Who is at work on it.")
    )
    noted_at = models.DateTimeField(
        auto_now=True, editable=False, help_text=_("When that process was last heard of.")
    )
    witnesses = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text=_("Some threads that conversations of the host named when it was planned."),
    )

    class Meta:
        verbose_name = _("sweep")
        verbose_name_plural = _("sweeps")
        default_permissions = ("view",)
        ordering = ["-started_at", "-pk"]
        get_latest_by = "started_at"
        indexes = [models.Index(fields=["store", "-started_at"], name="history_sweep_store")]

    def __str__(self) -> str:
        return f"{self.kind} {self.store} {self.started_at:%Y-%m-%d %H:%M}"


class HoldQuerySet(models.QuerySet["Hold"]):
    """Holds, and which of them count at an instant."""

    def active(self, at: datetime) -> HoldQuerySet:
        """Return the holds without an end, or whose end lies after ``at``."""
        return self.filter(Q(until=None) | Q(until__gt=at))

    def thread_ids(self, store: str) -> models.QuerySet[Hold, str]:
        """Return the ids of the store's threads, one that is held several times several times."""
        return self.filter(store=store).order_by().values_list("thread_id", flat=True)


class Hold(models.Model):
    """A person's word that a thread stays, with a reason and an optional end. Ours."""

    store = models.CharField(_("store"), max_length=255)
    thread_id = ThreadIdField(_("thread"))
    reason = models.TextField(_("reason"))
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    created_at = models.DateTimeField(_("since"), auto_now_add=True)
    until = models.DateTimeField(
        _("until"), null=True, blank=True, help_text=_("Empty: until somebody removes the hold.")
    )

    objects = HoldQuerySet.as_manager()

    class Meta:
        verbose_name = _("hold")
        verbose_name_plural = _("holds")
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["store"], name="history_hold_store")]

    def __str__(self) -> str:
        return f"{self.store}: {spelled_out(self.thread_id)}"
