"""The entries of an open file as they are now, and who needs which session.

Reading every entry anew for every removal would hold up the agent: their texts are most of the
file. So they are remembered. While nobody else commits, SQLite's own counter says that nothing
changed; when somebody did, an entry is read again unless its row's other columns are as they were
and its ``updated_at``, which OpenClaw sets with every change of an entry, lies well before it was
read. The entry that is about to go is read again in any case.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from .database import AgentDatabase
from .entries import Entry
from .plans import References

SLACK_MILLISECONDS = 5_000
"""How long before a reading an entry must have changed last to be as it was read then."""


class Catalogue:
    """All entries of a file, by key."""

    def __init__(self, database: AgentDatabase) -> None:
        self._database = database
        self._entries: dict[str, Entry] = {}
        self._references: References | None = None
        self._seen: int | None = None
        self._trusted_before = 0

    def entries(self) -> Mapping[str, Entry]:
        """Return the entries as they are now, in the order of their keys."""
        version = self._database.data_version()
        if version != self._seen:
            began = round(time.time() * 1000)
            found = self._database.entries(self._entries, self._trusted_before)
            self._note({entry.key: entry for entry in found})
            self._trusted_before = began - SLACK_MILLISECONDS
            self._seen = version
        return self._entries

    def entry(self, key: str) -> Entry | None:
        """Return an entry as it stands in the file this very moment; None for a mere shell."""
        entry = self._database.entry(key)
        if entry != self.entries().get(key):
            self._note({**self._entries, key: entry} if entry else self._without(key))
        return None if entry is None or entry.is_shell else entry

    def references(self) -> References:
        """Return who needs which session; UnreadableFamily when an entry does not tell."""
        entries = self.entries()
        if self._references is None:
            self._references = References(entries.values(), self._database.age)
        return self._references

    def _without(self, key: str) -> dict[str, Entry]:
        return {other: entry for other, entry in self._entries.items() if other != key}

    def _note(self, entries: dict[str, Entry]) -> None:
        """Replace the entries, and what they need where they are other ones than before."""
        references, self._references = self._references, None
        before, self._entries = self._entries, entries
        if references is None:
            return
        for key in before.keys() - entries.keys():
            references.drop(key)
        for key, entry in entries.items():
            if before.get(key) is not entry:
                references.put(entry)
        self._references = references

    def drop(self, key: str) -> None:
        """Take note that this connection removed an entry."""
        self._entries.pop(key, None)
        if self._references is not None:
            self._references.drop(key)

    def forget(self) -> None:
        """Look at everything again: what this connection changed was undone, or is not tracked."""
        self._entries = {}
        self._seen = self._references = None
