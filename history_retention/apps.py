"""The Django app, and what it connects once its models are there."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import pre_migrate
from django.utils.translation import gettext_lazy as _


class HistoryRetentionConfig(AppConfig):
    """Registers the system checks, and keeps ``migrate`` out of the agents' stores."""

    name = "history_retention"
    verbose_name = _("History retention")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what needs the models, and so cannot be imported any sooner."""
        from .checks import check_settings
        from .migrating import leave_store_alone
        from .store_checks import check_stores

        checks.register(check_settings, "history_retention")
        checks.register(check_stores, checks.Tags.database)
        # One sender: Django sends the signal once for every app that has models.
        pre_migrate.connect(leave_store_alone, sender=self)
