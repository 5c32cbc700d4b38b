"""The parts of a sweep that workers take, one after the other or side by side."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from .ledger import Sweep


class BatchQuerySet(models.QuerySet["Batch"]):
    """Batches, and which of them are still to be worked on."""

    def open(self) -> BatchQuerySet:
        """Return those that have threads left and met no error."""
        return self.filter(dealt_with__lt=F("thread_count"), error="")


class Batch(models.Model):
    """Some threads of a sweep's plan, in the order in which a worker deals with them. Ours.

    ``owner`` is the process that has it now, ``noted_at`` when that last gave a sign of life.
    """

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="batches")
    position = models.PositiveIntegerField()
    threads = models.BinaryField(help_text=_("The planned threads, packed."))
    thread_count = models.PositiveIntegerField(_("threads planned"))
    dealt_with = models.PositiveIntegerField(
        default=0, help_text=_("How many of the threads were removed or skipped.")
    )
    owner = models.CharField(max_length=255, blank=True)
    noted_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(_("error"), blank=True)

    objects = BatchQuerySet.as_manager()

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        default_permissions = ()
        ordering = ["sweep", "position"]
        constraints = [
            models.UniqueConstraint(fields=["sweep", "position"], name="history_batch_position"),
            models.CheckConstraint(
                condition=Q(dealt_with__lte=F("thread_count")), name="history_batch_dealt_with"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.sweep_id}/{self.position}"
