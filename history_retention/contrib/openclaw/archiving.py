"""The archives of an open agent's file: listed, verified, removed one by one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from .archives.files import Content
from .archives.inventory import Holding, inventory, verified
from .archives.names import stem_of
from .archives.retention import remove
from .database import AgentDatabase


class AgentArchives:
    """What was archived of an agent, in its folder and in its file."""

    def __init__(self, database: AgentDatabase, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def all(self) -> list[Holding]:
        """Return the archives, newest first."""
        return inventory(
            self._database.file, self._folder, keeps_archives=self._database.keeps_archives
        )

    def of(self, session_ids: Collection[str]) -> list[Holding]:
        """Return those of some sessions, newest first."""
        stems = {stem_of(session_id) for session_id in session_ids}
        return [holding for holding in self.all() if holding.name.stem in stems]

    def verified(self, holding: Holding) -> Content | None:
        """Read an archive whole; see ``archives.inventory``."""
        return verified(self._database.file, holding)

    def remove(self, holding: Holding) -> bool:
        """Remove an archive; see ``archives.retention``."""
        self._database.require_changeable()
        return remove(self._database.file, holding)
