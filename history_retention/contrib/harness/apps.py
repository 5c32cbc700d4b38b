"""The Django app of the DeepSeek Harness layout."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class HarnessConfig(AppConfig):
    """Registers the layout."""

    name = "history_retention.contrib.harness"
    label = "harness"
    verbose_name = _("DeepSeek Harness")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what needs the core's models, and so cannot be imported any sooner."""
        from ...stores import register
        from .layout import HarnessStore

        register(HarnessStore)
