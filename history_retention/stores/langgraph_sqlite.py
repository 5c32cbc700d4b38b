"""Layout ``langgraph_sqlite``: the tables of LangGraph's SQLite savers, Python and JavaScript.

Who names a thread is the host's table: models given as ``CONVERSATIONS``, or a ``conversations``
table in the same file. Without either there is no such thing as an unresumable thread. An empty
thread id is legal here. ``store``, ``cache`` and the migration tables are never touched.
"""

from __future__ import annotations

from typing import Self

from ..conf import StoreOptions
from .base import Tables
from .checkpoints import CheckpointStore
from .namers import namer_of
from .naming import ConversationsTable
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
        namer = namer_of(
            database.alias,
            tables,
            options,
            lambda: ConversationsTable(database, tables, names_empty=True),
        )
        return cls(database, namer)
