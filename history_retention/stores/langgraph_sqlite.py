"""Layout ``langgraph_sqlite``: the tables of LangGraph's SQLite savers, Python and JavaScript.

Who names a thread is the host's table: models given as ``CONVERSATIONS``, or a ``conversations``
table in the same file. Without either there is no such thing as an unresumable thread. An empty
thread id is legal here. ``store``, ``cache`` and the migration tables are never touched.
"""

from __future__ import annotations

from typing import Self

from ..conf import StoreOptions
from ..facts import Naming
from .base import Tables
from .checkpoints import CheckpointStore
from .conversation_models import ConversationModels
from .naming import ConversationsTable, NamingSource, Nothing
from .scans import holds_state_in
from .sqlite import SQLiteFile


class LangGraphSQLiteStore(CheckpointStore):
    """``checkpoints`` and ``writes``."""

    layout = "langgraph_sqlite"
    writes_table = "writes"

    @classmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by the two state tables, with or without the later ``task_path``."""
        return holds_state_in(tables, cls.writes_table)

    @classmethod
    def over(
        cls, database: SQLiteFile, tables: dict[str, tuple[str, ...]], options: StoreOptions
    ) -> Self:
        """Return the store, named by the configured models or by a table of the file."""
        source: NamingSource
        if options.conversations:
            source = ConversationModels(options.conversations)
            store = cls(database, source, Naming.KNOWN, ())
            store.named_by = ", ".join(
                f"{each.model}.{each.thread_field}" for each in options.conversations
            )
            return store
        if {"id", "thread_id"} <= set(tables.get("conversations", ())):
            source = ConversationsTable(database, tables, names_empty=True)
            store = cls(database, source, Naming.KNOWN, ())
            store.named_by = "its table conversations"
            return store
        return cls(
            database,
            Nothing(),
            Naming.ABSENT,
            (
                f"{database.alias}: nothing here names threads, so none counts as unresumable; "
                f"set CONVERSATIONS of {database.alias!r} to the model that does.",
            ),
        )
