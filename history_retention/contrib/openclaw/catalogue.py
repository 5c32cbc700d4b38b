"""The entries of an open file as they are now, and who needs which session.

Parsing every entry anew for every removal would hold up the agent. So they are remembered: while
nobody else commits, SQLite's own counter says that nothing changed; when somebody did, every
row's text is compared, and what is new is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping

from .database import AgentDatabase
from .entries import Entry
from .plans import References


class Catalogue:
    """All entries of a file, by key."""

    def __init__(self, database: AgentDatabase) -> None:
        self._database = database
        self._entries: dict[str, Entry] = {}
        self._references: References | None = None
        self._seen: int | None = None

    def entries(self) -> Mapping[str, Entry]:
        """Return the entries as they are now, in the order of their keys."""
        version = self._database.data_version()
        if version != self._seen:
            self._entries = {entry.key: entry for entry in self._database.entries(self._entries)}
            self._references = None
            self._seen = version
        return self._entries

    def references(self) -> References:
        """Return who needs which session; UnreadableFamily when an entry does not tell."""
        entries = self.entries()
        if self._references is None:
            self._references = References(
                entries.values(), self._database.age, self._database.transcripts.owned()
            )
        return self._references

    def drop(self, key: str) -> None:
        """Take note that this connection removed an entry."""
        self._entries.pop(key, None)
        if self._references is not None:
            self._references.drop(key)

    def forget(self) -> None:
        """Look at everything again: what this connection changed was undone, or is not tracked."""
        self._seen = self._references = None
