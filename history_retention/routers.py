"""Which database a model of this package lives in, and that nothing is migrated into a store."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model

from .conf import default_store, get_settings
from .models.readonly import VendorModel

APP_LABEL = "history_retention"


def is_store_only(alias: str) -> bool:
    """Tell whether the alias is a store's or its replica's, and not the project's ``default``."""
    stores = get_settings().stores
    replicas = {options.read_database for options in stores.values()}
    return alias != DEFAULT_DB_ALIAS and (alias in stores or alias in replicas)


class HistoryRouter:
    """Read the agents' tables from their store, keep the ledger in ``default``.

    Stores are never migrated, by any app: their tables are their vendor's. A store that shares
    the ``default`` database takes the project's own migrations, and none of an agent's tables.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the store that a related row was read from, or the first one."""
        if issubclass(model, VendorModel):
            return _store_of(hints) or default_store()
        return self.db_for_write(model)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return ``default`` for every model of this package, but for related rows.

        The models refuse every write to an agent's table. Before that, Django opens a transaction
        where the write would go, as its admin does around every post: a store is opened for that
        only when the rows beside it were read from there.
        """
        if issubclass(model, VendorModel):
            return _store_of(hints) or DEFAULT_DB_ALIAS
        return DEFAULT_DB_ALIAS if model._meta.app_label == APP_LABEL else None

    def allow_relation(self, obj1: Model, obj2: Model, **hints: Any) -> bool | None:
        """Relate rows of one store among themselves, and to nothing else."""
        theirs = [isinstance(row, VendorModel) for row in (obj1, obj2)]
        if not any(theirs):
            return None
        return all(theirs) and obj1._state.db == obj2._state.db  # noqa: SLF001

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        """Refuse every app in a store, and this package's models anywhere but in ``default``."""
        if _may_be_store(db) or _is_vendor_model(app_label, model_name):
            return False
        return db == DEFAULT_DB_ALIAS if app_label == APP_LABEL else None


def _may_be_store(alias: str) -> bool:
    """Tell whether the alias is a store's, or could be one under settings that cannot be read.

    The system checks ask this of every model before they say what is wrong with the settings.
    """
    try:
        return is_store_only(alias)
    except ImproperlyConfigured:
        return alias != DEFAULT_DB_ALIAS


def _store_of(hints: dict[str, Any]) -> str | None:
    """Return the store that the row in the hints was read from."""
    row = hints.get("instance")
    return row._state.db if isinstance(row, VendorModel) else None  # noqa: SLF001


def _is_vendor_model(app_label: str, model_name: str | None) -> bool:
    """Tell whether the name is that of an unmanaged model, of this app or of an add-on."""
    if model_name is None:
        return False
    try:
        model = apps.get_model(app_label, model_name)
    except LookupError:
        return False
    return issubclass(model, VendorModel)
