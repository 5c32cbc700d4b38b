"""Rows of a vendor's own table: payloads are read when asked for, every write is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, NoReturn, Self, TypeVar, cast

from django.db import connections, models

from ..conf import store_options
from ..exceptions import LayoutUnknown, StoreMissing, StoreReadOnly, StoreUnreadable
from ..stores import paths
from ..stores.opening import tables_of
from ..stores.postgres import is_on_search_path

M = TypeVar("M", bound="VendorModel")


def refuse_write(model: type[models.Model]) -> NoReturn:
    """Raise StoreReadOnly, with the sentence that says what to call instead."""
    raise StoreReadOnly(
        f"The table {model._meta.db_table!r} is its agent's own and only read here. To remove "
        "stored threads, make a plan with history_retention.services.plan_prune (or plan_reclaim) "
        "and pass it to history_retention.services.execute."
    )


class ReadOnlyQuerySet(models.QuerySet[M]):
    """Rows to look at. What would write raises StoreReadOnly before it reaches a database."""

    @property
    def db(self) -> str:
        """Return where the rows are read; StoreMissing rather than let SQLite create the file."""
        alias = super().db
        connection = connections[alias]
        if connection.vendor == "sqlite" and not self.query.is_empty():
            path = paths.path_of(connection.settings_dict["NAME"])
            if path is not None:
                paths.require_file(alias, path)
        return alias

    def only(self, *fields: str) -> Self:
        """Load these fields alone, payloads among them when they are named."""
        return models.QuerySet.only(self.defer(None), *fields)

    def create(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def bulk_create(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def get_or_create(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def update_or_create(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def update(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def bulk_update(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def delete(self) -> NoReturn:
        refuse_write(self.model)

    # Django's own code writes through these three: fixtures, forms, the deletion collector.

    def _insert(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def _update(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)

    def _raw_delete(self, *_args: object, **_kwargs: object) -> NoReturn:
        refuse_write(self.model)


class StoredRows(models.Manager[M]):
    """The rows of one table, in whichever store they are read from."""

    _queryset_class = ReadOnlyQuerySet

    def get_queryset(self) -> ReadOnlyQuerySet[M]:
        """Return all rows, their payloads left in the database."""
        rows = cast("ReadOnlyQuerySet[M]", super().get_queryset())
        return rows.defer(*self.model.on_demand_fields)

    def for_store(self, alias: str) -> ReadOnlyQuerySet[M]:
        """Return the rows of one store, leaving out the columns that its table lacks.

        Empty when the store or the table is not there, or has no such key. Raises UsageError for
        an alias that is no store, StoreUnreadable or StoreBusy for one that cannot be looked into.
        """
        options = self.model._meta
        rows = self.get_queryset().using(alias)
        columns = _columns(alias, self.model.vendor_table or options.db_table)
        lacking = {field.name for field in options.concrete_fields if field.column not in columns}
        if any(field.name in lacking for field in options.pk_fields):
            return rows.none()
        return rows.defer(*lacking)


class VendorModel(models.Model):
    """A row that its vendor writes.

    ``on_demand_fields`` are loaded only when asked for: payloads, and what files of older
    versions lack. ``vendor_table`` is the table's plain name where ``db_table`` has to be another,
    since two vendors chose the same.
    """

    on_demand_fields: ClassVar[tuple[str, ...]] = ()
    vendor_table: ClassVar[str] = ""

    objects: ClassVar[StoredRows[Self]] = StoredRows()

    class Meta:
        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)

    def save(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Raise StoreReadOnly."""
        refuse_write(type(self))

    def delete(self, *_args: object, **_kwargs: object) -> NoReturn:
        """Raise StoreReadOnly."""
        refuse_write(type(self))


def _columns(alias: str, table: str) -> Collection[str]:
    """Return the columns of a store's table; none when this version finds no such table."""
    try:
        columns = tables_of(alias).get(table, ())
    except (StoreMissing, LayoutUnknown):  # no file, or a kind of database with no store in it
        return ()
    schema = store_options(alias).schema
    if columns and not is_on_search_path(alias, schema, table):
        raise StoreUnreadable(
            f"{alias}: {table} lies in schema {schema!r}, where Django's models do not look: put "
            f'"options": "-c search_path={schema}" into OPTIONS of {alias!r} in DATABASES.'
        )
    return columns
