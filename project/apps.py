"""The bundled project as a Django app: it loads its Celery application where there is Celery.

Without that, a command that hands work to the workers would ask Celery's default broker.
"""

from contextlib import suppress

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """The demo and whatever it is pointed at."""

    name = "project"

    def ready(self) -> None:
        """Make ``project.celery.app`` the current application."""
        with suppress(ModuleNotFoundError):
            from . import celery  # noqa: F401
