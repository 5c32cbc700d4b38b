"""Which layout a store has, and opening it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from inspect import isabstract
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from ..conf import StoreOptions, store_options
from ..exceptions import LayoutUnknown, StoreUnreadable, UsageError
from . import postgres, sqlite
from .base import Store, Tables
from .gaunt_sloth import GauntSlothStore
from .langgraph_postgres import LangGraphPostgresStore
from .langgraph_sqlite import LangGraphSQLiteStore

_OPENED: dict[str, Callable[[StoreOptions], AbstractContextManager[Any]]] = {
    "sqlite": lambda options: sqlite.opened(options.alias),
    "postgresql": lambda options: postgres.opened(
        options.alias, options.schema, options.read_database
    ),
}
"""How the databases of a vendor are opened, by Django's name for it."""

LAYOUTS: dict[str, type[Store]] = {}
"""The layouts told apart by ``LAYOUT: "auto"``, by name."""


def register(layout: type[Store]) -> None:
    """Make a layout known by its name, and have ``auto`` look for it."""
    LAYOUTS[layout.layout] = layout


register(GauntSlothStore)
register(LangGraphSQLiteStore)
register(LangGraphPostgresStore)


@contextmanager
def open_store(alias: str) -> Iterator[Store]:
    """Open the store behind an alias for reading and removing.

    Raises UsageError for an alias that is not configured, StoreMissing, StoreUnreadable or
    StoreBusy for its file, and LayoutUnknown when its tables are not of the layout asked for.
    """
    options = store_options(alias)
    vendor = vendor_of(alias)
    with _opened(options, vendor) as database:
        tables = database.tables()
        yield layout_of(options, vendor, tables).over(database, tables, options)


def tables_of(alias: str) -> Tables:
    """Return the columns of every table where the store lies; raises as ``open_store`` does."""
    options = store_options(alias)
    with _opened(options, vendor_of(alias)) as database:
        tables: Tables = database.tables()
        return tables


def vendor_of(alias: str) -> str:
    """Return Django's name for the database; StoreUnreadable when it has no driver for it."""
    try:
        return str(connections[alias].vendor)
    except ImproperlyConfigured as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise StoreUnreadable(
            f"{alias}: its database cannot be opened ({told}). Check ENGINE of {alias!r}, and that "
            'its driver is installed, as for PostgreSQL with pip install "psycopg[binary]".'
        ) from error


def _opened(options: StoreOptions, vendor: str) -> AbstractContextManager[Any]:
    alias, replica = options.alias, options.read_database
    if vendor not in _OPENED:
        raise LayoutUnknown(
            f"{alias}: no store of a kind known here lies in {vendor}, only in "
            f"{' and '.join(_OPENED)}; nothing was touched. Check ENGINE of {alias!r}."
        )
    if replica is not None and (vendor != "postgresql" or vendor_of(replica) != vendor):
        raise UsageError(
            f"{alias}: READ_DATABASE names {replica!r}, and only a PostgreSQL store can be read "
            "from another database, a replica of its own; nothing was touched."
        )
    if options.schema and vendor != "postgresql":
        raise UsageError(
            f"{alias}: SCHEMA is {options.schema!r}, and only a database in PostgreSQL has "
            "schemas; nothing was touched. Remove the option."
        )
    return _OPENED[vendor](options)


def layout_of(options: StoreOptions, vendor: str, tables: Tables) -> type[Store]:
    """Return the layout that the options ask for, or the one that the tables show."""
    alias = options.alias
    if options.layout != "auto":
        layout = named_layout(options.layout)
        if layout.vendor != vendor:
            raise LayoutUnknown(
                f"{alias}: layout {options.layout!r} lies in {layout.vendor}, and {alias!r} is "
                f"{vendor}; nothing was touched. Check ENGINE and LAYOUT of {alias!r}."
            )
        if not layout.recognises(tables):
            raise LayoutUnknown(
                f"{alias}: the tables of layout {options.layout!r} are not all there "
                f"({_listed(tables)}); nothing was touched. Check NAME and LAYOUT of {alias!r}."
            )
        return layout
    layouts = [layout for layout in LAYOUTS.values() if layout.vendor == vendor]
    found = [layout for layout in layouts if layout.recognises(tables)]
    if len(found) > 1:
        raise LayoutUnknown(
            f"{alias}: this database holds the tables of more than one layout "
            f"({', '.join(layout.layout for layout in found)}); nothing was touched. Keep each "
            f"agent's store in a file of its own, or set LAYOUT of {alias!r} if it is one store."
        )
    if found:
        return found[0]
    raise LayoutUnknown(
        f"{alias}: this database holds no history that this package knows "
        f"({_listed(tables)}); nothing was touched. Check NAME of {alias!r} in DATABASES."
    )


def named_layout(name: str) -> type[Store]:
    """Return a layout by its name or dotted path; ImproperlyConfigured when there is none."""
    if name in LAYOUTS:
        return LAYOUTS[name]
    known = ", ".join(LAYOUTS)
    try:
        layout = import_string(name)
    except (ImportError, TypeError, ValueError) as error:  # the latter for dots with no name
        raise ImproperlyConfigured(
            f"LAYOUT {name!r} is neither auto, nor one of {known}, nor a class to import."
        ) from error
    if not (isinstance(layout, type) and issubclass(layout, Store)) or isabstract(layout):
        raise ImproperlyConfigured(
            f"LAYOUT {name!r} is not a subclass of stores.base.Store that gives all of it."
        )
    return layout


def _listed(tables: Tables) -> str:
    if not tables:
        return "it has no tables"
    names = sorted(tables)
    return "its tables: " + ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
