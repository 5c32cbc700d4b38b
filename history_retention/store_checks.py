"""System checks of the stores that were asked for: their file or server, tables, indexes, rights.

They open stores, so they run for the aliases of ``check --database`` alone. A store is never
created or changed, and gets no index from us.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .checks import a_warning, an_error
from .conf import get_settings, is_database
from .exceptions import HistoryRetentionError, LayoutUnknown, StoreBusy, StoreMissing
from .facts import Naming
from .models import Checkpoint, CheckpointWrite, LangGraphWrite
from .stores import open_store
from .stores.base import Store, Tables
from .stores.opening import tables_of

STATE_MODELS = (Checkpoint, CheckpointWrite, LangGraphWrite)
LATER_COLUMNS = {"task_path", "blob"}
"""Columns of the state tables that only newer files or servers have; no file needs them."""

DATING_COLUMNS = {"conversations": ("started_ts",), "sessions": ("conversation_id", "ts")}
"""Columns that tell when a conversation was last active."""

UNDATED = {
    "conversations": "a conversation without a turn tells no time and its thread is never removed",
    "sessions": "no turn is dated, and a conversation counts as active when it started",
}
"""What follows when such a column is not there."""


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


def _store_messages(alias: str) -> list[CheckMessage]:
    """Open a store and say what is amiss with it; a missing one is not created."""
    try:
        with open_store(alias) as store:
            return [
                *_naming_messages(store),
                *_dating_messages(alias, tables_of(alias)),
                *_index_messages(store),
                *_right_messages(store),
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
    is_file = "sqlite" in connections.settings[alias]["ENGINE"]
    if not is_file:
        place = f'DATABASES["{alias}"] = dj_database_url.parse("postgres://user@host/name")'
    if isinstance(error, StoreMissing):
        return an_error(f"{error} Its agent creates it.", place, "E009")
    if isinstance(error, StoreBusy):
        return a_warning(str(error), f"manage.py check --database {alias}", "W002")
    if not isinstance(error, LayoutUnknown):
        return an_error(str(error), place, "E008")
    try:
        found = tables_of(alias)
    except HistoryRetentionError:  # a database of another kind
        return an_error(str(error), place, "E007")
    if not found:
        return a_warning(f"{alias}: the database has no tables yet.", place, "W003")
    lacking = _lacking(found) if is_file else ()
    return an_error(" ".join([str(error), *lacking]), place, "E007")


def _lacking(found: Tables) -> Iterator[str]:
    """Say which columns the state tables of a file lack."""
    for model in STATE_MODELS:
        table = model._meta.db_table
        needed = {str(field.column) for field in model._meta.concrete_fields} - LATER_COLUMNS
        if table in found and (lacking := needed - set(found[table])):
            yield f"Table {table} lacks {', '.join(sorted(lacking))}."


def _naming_messages(store: Store) -> Iterator[CheckMessage]:
    if store.naming is Naming.ABSENT:
        hint = '"CONVERSATIONS": {"MODEL": "your_app.Conversation", "THREAD_FIELD": "thread_id"}'
        yield a_warning(" ".join(store.notes), hint, "W004")
    elif store.naming is Naming.BROKEN:
        hint = f"manage.py history_reclaim --database {store.alias} --orphan-writes"
        yield a_warning(" ".join(store.notes), hint, "W004")


def _dating_messages(alias: str, found: Tables) -> Iterator[CheckMessage]:
    for table, columns in DATING_COLUMNS.items():
        lacking = [column for column in columns if column not in found.get(table, columns)]
        if lacking:
            yield a_warning(
                f"{alias}: table {table} lacks {', '.join(lacking)}, as files of older agents do: "
                f"{UNDATED[table]}.",
                "Nothing to add: the table is its agent's, and never altered from here.",
                "W006",
            )


def _index_messages(store: Store) -> Iterator[CheckMessage]:
    """Look for indexes of thread ids: the layout's own, and that of a table of conversations."""
    for lack in store.lacking_indexes():
        yield a_warning(lack.sentence, lack.remedy, "W008")
    connection = connections[store.alias]
    if connection.vendor != "sqlite" or "thread_id" not in tables_of(store.alias).get(
        "conversations", ()
    ):
        return
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "conversations").values()
    if not any(each["index"] and each["columns"][:1] == ["thread_id"] for each in constraints):
        yield a_warning(
            f"{store.alias}: conversations.thread_id has no index, so each batch of a removal "
            "reads the whole table once more. The table is its agent's: no index is ever built "
            "from here.",
            "CREATE INDEX idx_conversations_thread_id ON conversations(thread_id);",
            "W005",
        )


def _right_messages(store: Store) -> Iterator[CheckMessage]:
    for lack in store.lacking_rights():
        yield a_warning(lack.sentence, lack.remedy, "W009")
