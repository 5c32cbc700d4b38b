"""System checks that run with every ``check``: what is wrong with the settings."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, cast

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import connections, models, router
from django.db.models.constants import LOOKUP_SEP

from .conf import AUTO, SETTING, ConversationSource, StoreOptions, get_settings, is_database
from .routers import HistoryRouter
from .stores import LAYOUTS
from .stores.opening import named_layout

SMALLEST = f'{SETTING} = {{"STORES": {{"history": {{}}}}}}'
"""The shortest settings that do something."""


def check_settings(**_kwargs: object) -> list[CheckMessage]:
    """Check ``HISTORY_RETENTION``, and what it needs of the project's other settings."""
    messages = list(_router_messages())
    try:
        stores = get_settings().stores
    except ImproperlyConfigured as error:
        return [*messages, an_error(str(error), SMALLEST, "E001")]
    if not stores:
        messages.append(a_warning(f"{SETTING} names no store to look at.", SMALLEST, "W001"))
    if get_settings().admin_uses_celery and find_spec("celery") is None:
        messages.append(
            an_error(
                f"{SETTING}['ADMIN_USES_CELERY'] is on, and Celery is not installed, so the admin "
                "can remove nothing.",
                'pip install "django-history-retention[celery]"',
                "E010",
            )
        )
    for options in stores.values():
        messages += _alias_messages(options)
        messages += _schema_messages(options)
        messages += _layout_messages(options)
        for source in options.conversations:
            messages += _source_messages(options, source)
    return messages


def _router_messages() -> Iterator[CheckMessage]:
    if not any(isinstance(each, HistoryRouter) for each in router.routers):
        yield an_error(
            "DATABASE_ROUTERS lacks the router of history_retention, so migrate and dumpdata "
            "would reach into the stores.",
            'DATABASE_ROUTERS = ["history_retention.routers.HistoryRouter"]',
            "E003",
        )


def _alias_messages(options: StoreOptions) -> Iterator[CheckMessage]:
    alias, replica = options.alias, options.read_database
    if not is_database(alias):
        yield an_error(
            f"{SETTING}['STORES'] has {alias!r}, which is no database of DATABASES.",
            f'DATABASES["{alias}"] = {{"ENGINE": "django.db.backends.sqlite3", '
            '"NAME": "/path/to/history.db"}',
            "E002",
        )
    if replica is not None and (reason := _is_no_replica(alias, replica)):
        yield an_error(
            f"{SETTING}['STORES'][{alias!r}]['READ_DATABASE'] is {replica!r}, {reason}.",
            f'"READ_DATABASE": the alias of a replica of {alias!r} in PostgreSQL',
            "E011",
        )


def _schema_messages(options: StoreOptions) -> Iterator[CheckMessage]:
    alias = options.alias
    if options.schema and is_database(alias) and "sqlite" in connections.settings[alias]["ENGINE"]:
        yield an_error(
            f"{SETTING}['STORES'][{alias!r}]['SCHEMA'] is {options.schema!r}, and a file of SQLite "
            "has no schemas.",
            f"remove SCHEMA from the options of {alias!r}",
            "E012",
        )


def _is_no_replica(alias: str, replica: str) -> str:
    if not is_database(replica):
        return "which is no database of DATABASES"
    if replica == alias:
        return "which is the store itself"
    engines = [
        connections.settings[each]["ENGINE"] for each in (alias, replica) if is_database(each)
    ]
    if any("sqlite" in engine for engine in engines):
        return "and a file of SQLite has no replica to read"
    return ""


def _layout_messages(options: StoreOptions) -> Iterator[CheckMessage]:
    if options.layout == AUTO:
        return
    try:
        named_layout(options.layout)
    except ImproperlyConfigured as error:
        yield an_error(
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
        yield an_error(f"{path}: {error}", '"MODEL": "your_app.Conversation"', "E005")
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
        yield an_error(
            f"{path}[{option!r}]: {source.model} has no field {name!r}.",
            f'"{option}": one of {has}',
            "E006",
        )
    if not _is_field(model, source.thread_field, direct=True):
        return
    field = _field(model, source.thread_field)
    if not _is_indexed(field):
        yield a_warning(
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


def an_error(message: str, hint: str, number: str) -> CheckMessage:
    """Return an error with the line to add; numbers are never used again."""
    return checks.Error(message, hint=hint, id=f"history_retention.{number}")


def a_warning(message: str, hint: str, number: str) -> CheckMessage:
    """Return a warning with the line to add; numbers are never used again."""
    return checks.Warning(message, hint=hint, id=f"history_retention.{number}")
