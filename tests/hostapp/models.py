"""What a project that runs agents may name its threads by."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models


class NotDeleted(models.Manager["Chat"]):
    """Hide what a person put into the bin."""

    def get_queryset(self) -> models.QuerySet[Chat]:
        return super().get_queryset().filter(is_deleted=False)


class Chat(models.Model):
    """A conversation whose thread is a UUID; a deleted one can be restored."""

    thread_id = models.UUIDField(default=uuid.uuid4, null=True)
    updated_at = models.DateTimeField()
    title = models.CharField(max_length=80, blank=True)
    team = models.CharField(max_length=80, null=True)  # noqa: DJ001 - as many a project has it
    is_deleted = models.BooleanField(default=False)

    objects = NotDeleted()

    class Meta:
        base_manager_name = "objects"

    def __str__(self) -> str:
        return self.title


class Ticket(models.Model):
    """A conversation whose own number is the thread; it knows of no activity."""

    subject = models.CharField(max_length=80, blank=True)

    def __str__(self) -> str:
        return self.subject


class Note(models.Model):
    """A conversation in plain columns: any text as a thread, a day, a clock without a zone."""

    slug = models.SlugField(primary_key=True)
    thread = models.TextField()
    day = models.DateField(null=True)
    seen = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.slug


class Reply(models.Model):
    """A conversation that names its thread through another model's row."""

    chat: models.ForeignKey[Any, Any] = models.ForeignKey(Chat, on_delete=models.CASCADE)

    def __str__(self) -> str:
        return str(self.pk)


class Topic(models.Model):
    """A conversation whose database takes a thread's id for the same in any case."""

    thread = models.CharField(max_length=80, db_collation="NOCASE")

    def __str__(self) -> str:
        return self.thread
