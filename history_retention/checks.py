"""System checks: what is wrong with the settings, and with the stores that were asked for.

The first kind runs with every ``check``; the second opens stores, so it runs for the aliases of
``check --database`` alone. A store is never created or changed, and gets no index from us.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, cast

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.constants import LOOKUP_SEP

from .conf import AUTO, SETTING, ConversationSource, StoreOptions, get_settings, is_database
from .exceptions import HistoryRetentionError, LayoutUnknown, StoreBusy, StoreMissing
from .facts import Naming
from .models import Checkpoint, CheckpointWrite, LangGraphWrite
from .routers import HistoryRouter
from .stores import LAYOUTS, open_store
from .stores.base import Store
from .stores.opening import named_layout

STATE_MODELS = (Checkpoint, CheckpointWrite, LangGraphWrite)
LATER_COLUMNS = {"task_path"}
"""Columns of the state tables that only newer files have; nothing here needs them."""

DATING_COLUMNS = {"conversations": ("started_ts",), "sessions": ("conversation_id", "ts")}
"""Columns that tell when a conversation was last active."""

UNDATED = {
    "conversations": "a conversation without a turn tells no time and its thread is never removed",
    "sessions": "no turn is dated, and a conversation counts as active when it started",
}
"""What follows when such a column is not there."""

SMALLEST = f'{SETTING} = {{"STORES": {{"history": {{}}}}}}'
"""The shortest settings that do something."""

Columns = Mapping[str, Collection[str]]


def check_settings(**_kwargs: object) -> list[CheckMessage]:
    """Check ``HISTORY_RETENTION``, and what it needs of the project's other settings."""
    messages = list(_router_messages())
    try:
        stores = get_settings().stores
    except ImproperlyConfigured as error:
        return [*messages, _error(str(error), SMALLEST, "E001")]
    if not stores:
        messages.append(_warning(f"{SETTING} names no store to look at.", SMALLEST, "W001"))
    if get_settings().admin_uses_celery and find_spec("celery") is None:
        messages.append(
            _error(
                f"{SETTING}['ADMIN_USES_CELERY'] is on, and Celery is not installed, so the admin "
                "can remove nothing.",
                'pip install "django-history-retention[celery]"',
                "E010",
            )
        )
    for options in stores.values():
        messages += _alias_messages(options)
        messages += _layout_messages(options)
        for source in options.conversations:
            messages += _source_messages(options, source)
    return messages


def check_stores(
    *, databases: Collection[str] | None = None, **_kwargs: object
) -> list[CheckMessage]:
    """Check the file, tables and indexes of the stores among the databases asked for."""
    try:
        stores = get_settings().stores
    except ImproperlyConfigured:  # check_settings says it
        return []
    asked = [alias for alias in stores if alias in (databases or ()) and is_database(alias)]
    return [message for alias in asked for message in _store_messages(alias)]


def _router_messages() -> Iterator[CheckMessage]:
    if not any(isinstance(each, HistoryRouter) for each in router.routers):
        yield _error(
            "DATABASE_ROUTERS lacks the router of history_retention, so migrate and dumpdata "
            "would reach into the stores.",
            'DATABASE_ROUTERS = ["history_retention.routers.HistoryRouter"]',
            "E003",
        )


def _alias_messages(options: StoreOptions) -> Iterator[CheckMessage]:
    if not is_database(options.alias):
        yield _error(
            f"{SETTING}['STORES'] has {options.alias!r}, which is no database of DATABASES.",
            f'DATABASES["{options.alias}"] = {{"ENGINE": "django.db.backends.sqlite3", '
            '"NAME": "/path/to/history.db"}',
            "E002",
        )


def _layout_messages(options: StoreOptions) -> Iterator[CheckMessage]:
    if options.layout == AUTO:
        return
    try:
        named_layout(options.layout)
    except ImproperlyConfigured as error:
        yield _error(
            f"{SETTING}['STORES'][{options.alias!r}]: {error}",
            f'"LAYOUT": "{AUTO}", or one of {", ".join(LAYOUTS)}',
            "E004",
        )


def _source_messages(options: StoreOptions, source: ConversationSource) -> Iterator[CheckMessage]:
    """Look for the model that names threads, and for the fields it is said to have."""
    path = f"{SETTING}['STORES'][{options.alias!r}]['CONVERSATIONS']"
    try:
        model = apps.get_model(source.model)
    except LookupError as error:
        yield _error(f"{path}: {error}", '"MODEL": "your_app.Conversation"', "E005")
        return
    named = {
        "THREAD_FIELD": source.thread_field,
        "ACTIVITY_FIELD": source.activity_field,
        "LABEL_FIELD": source.label_field,
        "PROJECT_FIELD": source.project_field,
    }
    for option, name in named.items():
        if name is None or _is_field(model, name, direct=option == "THREAD_FIELD"):
            continue
        has = ", ".join(field.name for field in model._meta.concrete_fields)
        yield _error(
            f"{path}[{option!r}]: {source.model} has no field {name!r}.",
            f'"{option}": one of {has}',
            "E006",
        )
    if not _is_field(model, source.thread_field, direct=True):
        return
    field = _field(model, source.thread_field)
    if not _is_indexed(field):
        yield _warning(
            f"{path}: {source.model}.{field.name} has no index in the model, so each batch of a "
            "removal reads that whole table once more, and holds the store's lock meanwhile.",
            f"{field.name} = models.{type(field).__name__}(..., db_index=True)",
            "W007",
        )


def _field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    found = model._meta.pk if name == "pk" else model._meta.get_field(name)
    return cast("models.Field[Any, Any]", found)


def _is_indexed(field: models.Field[Any, Any]) -> bool:
    """Tell whether the model asks for an index of all rows that starts with the field's column."""
    options = field.model._meta
    firsts = [index.fields_orders[0][0] for index in options.indexes if _serves_all(index)]
    firsts += [
        constraint.fields[0]
        for constraint in options.constraints
        if isinstance(constraint, models.UniqueConstraint) and _serves_all(constraint)
    ]
    firsts += [together[0] for together in options.unique_together]
    firsts += [column.name for column in options.pk_fields[:1]]
    return field.unique or getattr(field, "db_index", False) or field.name in firsts


def _serves_all(index: models.Index | models.UniqueConstraint) -> bool:
    return bool(index.fields) and index.condition is None


def _is_field(model: type[models.Model], path: str, *, direct: bool) -> bool:
    """Tell whether a name, or a path through relations unless ``direct``, leads to a column."""
    names = [path] if direct else path.split(LOOKUP_SEP)
    related: type[models.Model] | None = model
    field: object = None
    for name in names:
        if related is None:
            return False
        try:
            field = related._meta.pk if name == "pk" else related._meta.get_field(name)
        except FieldDoesNotExist:
            return False
        related = getattr(field, "related_model", None)
    return isinstance(field, models.Field)


def _store_messages(alias: str) -> list[CheckMessage]:
    """Open a store and say what is amiss with it; a missing one is not created."""
    try:
        with open_store(alias) as store:
            found = _columns(connections[alias])
            return [
                *_naming_messages(store),
                *_dating_messages(alias, found),
                *_index_messages(alias, found, connections[alias]),
            ]
    except HistoryRetentionError as error:
        return [_closed_message(alias, error)]
    except ImproperlyConfigured:  # check_settings says it
        return []


def _closed_message(alias: str, error: HistoryRetentionError) -> CheckMessage:
    """Say why a store could not be opened.

    A missing file is an error although its agent may just not have run yet: ``migrate`` asks the
    checks before it connects, and connecting would create the file.
    """
    place = f'DATABASES["{alias}"]["NAME"] = "/path/to/history.db"'
    if isinstance(error, StoreMissing):
        return _error(f"{error} Its agent creates it.", place, "E009")
    if isinstance(error, StoreBusy):
        return _warning(str(error), f"manage.py check --database {alias}", "W002")
    if not isinstance(error, LayoutUnknown):
        return _error(str(error), place, "E008")
    if connections[alias].vendor != "sqlite":
        return _error(str(error), place, "E007")
    found = _columns(connections[alias])
    if not found:
        return _warning(f"{alias}: the database has no tables yet.", place, "W003")
    return _error(" ".join([str(error), *_lacking(found)]), place, "E007")


def _columns(connection: BaseDatabaseWrapper) -> Columns:
    """Return the columns of the tables that matter here, of those that are there."""
    looked_at = {model._meta.db_table for model in STATE_MODELS} | DATING_COLUMNS.keys()
    introspection = connection.introspection
    with connection.cursor() as cursor:
        names = introspection.table_names(cursor)
        return {
            name: {column.name for column in introspection.get_table_description(cursor, name)}
            if name in looked_at
            else ()
            for name in names
        }


def _lacking(found: Columns) -> Iterator[str]:
    """Say which columns the state tables lack."""
    for model in STATE_MODELS:
        table = model._meta.db_table
        needed = {str(field.column) for field in model._meta.concrete_fields} - LATER_COLUMNS
        if table in found and (lacking := needed - set(found[table])):
            yield f"Table {table} lacks {', '.join(sorted(lacking))}."


def _naming_messages(store: Store) -> Iterator[CheckMessage]:
    if store.naming is Naming.ABSENT:
        hint = '"CONVERSATIONS": {"MODEL": "your_app.Conversation", "THREAD_FIELD": "thread_id"}'
        yield _warning(" ".join(store.notes), hint, "W004")
    elif store.naming is Naming.BROKEN:
        hint = f"manage.py history_reclaim --database {store.alias} --orphan-writes"
        yield _warning(" ".join(store.notes), hint, "W004")


def _dating_messages(alias: str, found: Columns) -> Iterator[CheckMessage]:
    for table, columns in DATING_COLUMNS.items():
        lacking = [column for column in columns if column not in found.get(table, columns)]
        if lacking:
            yield _warning(
                f"{alias}: table {table} lacks {', '.join(lacking)}, as files of older agents do: "
                f"{UNDATED[table]}.",
                "Nothing to add: the table is its agent's, and never altered from here.",
                "W006",
            )


def _index_messages(
    alias: str, found: Columns, connection: BaseDatabaseWrapper
) -> Iterator[CheckMessage]:
    """Look for an index that starts with ``conversations.thread_id``."""
    if "thread_id" not in found.get("conversations", ()):
        return
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "conversations").values()
    if not any(each["index"] and each["columns"][:1] == ["thread_id"] for each in constraints):
        yield _warning(
            f"{alias}: conversations.thread_id has no index, so each batch of a removal reads the "
            "whole table once more. The table is its agent's: no index is ever built from here.",
            "CREATE INDEX idx_conversations_thread_id ON conversations(thread_id);",
            "W005",
        )


def _error(message: str, hint: str, number: str) -> CheckMessage:
    return checks.Error(message, hint=hint, id=f"history_retention.{number}")


def _warning(message: str, hint: str, number: str) -> CheckMessage:
    return checks.Warning(message, hint=hint, id=f"history_retention.{number}")
