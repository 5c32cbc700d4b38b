"""Who names the threads of LangGraph's savers, and what their layouts hand on to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..conf import StoreOptions
from ..facts import NamedThread, Naming
from .base import Store, Tables
from .conversation_models import ConversationModels
from .naming import NamingSource, Nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Namer:
    """Who names a store's threads, and what a store says of that; see ``Store``."""

    source: NamingSource
    naming: Naming = Naming.KNOWN
    named_by: str = ""
    notes: tuple[str, ...] = ()


def names_threads(tables: Tables) -> bool:
    """Tell whether a table ``conversations`` names threads."""
    return {"id", "thread_id"} <= set(tables.get("conversations", ()))


def namer_of(
    alias: str, tables: Tables, options: StoreOptions, own_table: Callable[[], NamingSource]
) -> Namer:
    """Return who the configured models say names threads, or the store's own table, if any."""
    if options.conversations:
        return Namer(
            source=ConversationModels(options.conversations),
            named_by=", ".join(
                f"{each.model}.{each.thread_field}" for each in options.conversations
            ),
        )
    if names_threads(tables):
        return Namer(source=own_table(), named_by="its table conversations")
    return Namer(
        source=Nothing(),
        naming=Naming.ABSENT,
        notes=(
            f"{alias}: nothing here names threads, so none counts as unresumable; set "
            f"CONVERSATIONS of {alias!r} to the model that does.",
        ),
    )


class NamedStore(Store):
    """A store that hands on to its namer what is asked about conversations."""

    def __init__(self, namer: Namer) -> None:
        self.naming = namer.naming
        self.named_by = namer.named_by
        self.notes = namer.notes
        self._source = namer.source

    def completed(self, threads: Sequence[NamedThread]) -> Sequence[NamedThread]:
        """Return the threads with all that their conversations' turns tell."""
        return self._source.completed(threads)

    def conversation_totals(self) -> tuple[int, int, int]:
        """Return conversations, turns and transcript bytes."""
        return self._source.totals()

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Ask whoever names the threads."""
        return self._source.names_any(thread_ids)

    def naming_mark(self) -> int:
        """Return what the source has seen."""
        return self._source.mark()
