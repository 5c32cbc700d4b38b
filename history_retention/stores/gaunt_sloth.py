"""Layout ``gaunt_sloth``: the history file of the Gaunt Sloth CLI (LangGraph JS over SQLite).

Its ``conversations`` table names threads; an empty ``thread_id`` names none. Only checkpoints and
writes are ever removed: conversations, turns and their search index stay.
"""

from __future__ import annotations

from typing import Self

from ..conf import StoreOptions
from ..exceptions import UsageError
from ..facts import Naming
from .base import Tables
from .checkpoints import CheckpointStore
from .namers import Namer, names_threads
from .naming import ConversationsTable, Nothing
from .scans import holds_state_in
from .sqlite import SQLiteFile


class GauntSlothStore(CheckpointStore):
    """``checkpoints`` and ``checkpoint_writes``, named by ``conversations``."""

    layout = "gaunt_sloth"
    writes_table = "checkpoint_writes"

    @classmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by the two state tables; the oldest files have no more."""
        return holds_state_in(tables, cls.writes_table)

    @classmethod
    def over(
        cls, database: SQLiteFile, tables: dict[str, tuple[str, ...]], options: StoreOptions
    ) -> Self:
        """Return the store; without a table that names threads it can only be read.

        Raises UsageError for CONVERSATIONS, which would name threads behind this table's back.
        """
        if options.conversations:
            raise UsageError(
                f"{database.alias}: CONVERSATIONS is for LangGraph's own tables; in a file of "
                "Gaunt Sloth its table conversations names the threads. Remove the option; "
                "nothing was touched."
            )
        if names_threads(tables):
            table = ConversationsTable(database, tables, names_empty=False)
            return cls(database, Namer(source=table))
        lack = "no column thread_id in" if "conversations" in tables else "no table"
        note = (
            f"{database.alias}: this file has {lack} conversations, so nobody can tell which "
            "threads can be resumed; none will be pruned or reclaimed."
        )
        return cls(database, Namer(source=Nothing(), naming=Naming.BROKEN, notes=(note,)))
