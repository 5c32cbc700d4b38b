"""The Django app of OpenClaw's layout."""

from __future__ import annotations

import sqlite3

from django.apps import AppConfig
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.utils.translation import gettext_lazy as _


class OpenClawConfig(AppConfig):
    """Registers the layout, and a function that OpenClaw's own tables call."""

    name = "history_retention.contrib.openclaw"
    label = "openclaw"
    verbose_name = _("OpenClaw")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what needs the models, and so cannot be imported any sooner."""
        from ...stores import register
        from .layout import OpenClawStore

        register(OpenClawStore)
        connection_created.connect(provide_octet_length, dispatch_uid="openclaw.octet_length")


def provide_octet_length(*, connection: BaseDatabaseWrapper, **_kwargs: object) -> None:
    """Give SQLite older than 3.43 the function that the CHECKs of version 23 call.

    Without it, a vacuum and an integrity check of such a file fail. Like those functions that
    Django itself provides, it does nothing to a database that does not call it.
    """
    if connection.vendor == "sqlite" and sqlite3.sqlite_version_info < (3, 43):
        connection.connection.create_function("octet_length", 1, octet_length, deterministic=True)


def octet_length(value: object) -> int | None:
    """Return the bytes of a value as SQLite counts them; None for NULL."""
    if value is None:
        return None
    return len(value) if isinstance(value, bytes) else len(str(value).encode("utf-8", "replace"))
