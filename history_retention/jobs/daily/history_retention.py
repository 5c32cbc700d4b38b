"""The daily job of django-extensions: ``manage.py runjobs daily``."""

from __future__ import annotations

from django.utils import timezone
from django_extensions.management.jobs import DailyJob

from ... import schedule


class Job(DailyJob):
    """Keep every store in bounds."""

    help = "Measure and reclaim every store, then apply the policies written in settings."

    def execute(self) -> None:
        """Do the day's work; the error at the end names the stores that failed."""
        schedule.daily(now=timezone.now())
