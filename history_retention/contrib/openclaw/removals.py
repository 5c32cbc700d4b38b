"""Removing entries with their sessions: the one path that every removal takes.

Inside one transaction, everything is looked at anew, each session that no other entry needs is
archived, and only then are its rows deleted. In files of age A the archive is on disk before the
first row goes; in those of age B it is a row of the same commit. So at any instant there are the
rows, or a readable archive, or both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.db import DatabaseError

from ...exceptions import HistoryRetentionError, StoreUnreadable
from .archives import blobs, files
from .archives.files import Archive
from .catalogue import Catalogue
from .database import AgentDatabase
from .entries import Entry
from .families import family
from .plans import References, Removal, Stay, Window, removal


class EntryProtected(HistoryRetentionError):
    """An entry may not be removed, whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What removing an entry did. ``removed`` counts the rows of each table."""

    key: str
    deleted: bool
    archived: tuple[Archive, ...] = ()
    removed: Mapping[str, int]
    kept: tuple[Stay, ...] = ()


@dataclass(slots=True, kw_only=True)
class Errand:
    """What somebody asks of a sweep beside its plan, and what it did for that.

    With ``keeps_transcripts`` entries alone are removed. ``pending`` are the names of archives
    that have no file yet.
    """

    keeps_transcripts: bool = False
    deletions: list[Deletion] = field(default_factory=list)
    pending: tuple[str, ...] = ()


errand: ContextVar[Errand | None] = ContextVar("errand", default=None)
"""The errand of the sweep that runs in this context, if it runs on one."""


class Removals:
    """Removes entries of an open file that may be changed."""

    def __init__(self, database: AgentDatabase, catalogue: Catalogue) -> None:
        self._database = database
        self._catalogue = catalogue
        self._folder = files.folder_beside(database.path)
        self._fresh: list[str] = []

    @property
    def folder(self) -> Path:
        """Return where archives lie."""
        return self._folder

    def planned(
        self, entry: Entry, references: References, *, keeps_transcripts: bool = False
    ) -> Removal:
        """Plan the removal of an entry; UnreadableFamily when its family cannot be told."""
        return removal(
            entry,
            self._database.age,
            references,
            self.windows(entry),
            keeps_transcripts=keeps_transcripts,
        )

    def windows(self, entry: Entry) -> dict[str, Window]:
        """Return the windows of the entry's family, and those that it owns."""
        ids = [entry.current_id, *family(entry, self._database.age)]
        if self._database.age.has_nodes:
            ids += self._database.transcripts.owned_by(entry.key)
        return self._database.transcripts.windows(dict.fromkeys(ids))

    def remove(self, key: str, at: datetime, *, keeps_transcripts: bool = False) -> Deletion:
        """Inside the file's transaction: remove an entry and what only it needs.

        Raises EntryProtected for one that OpenClaw itself never removes, UnreadableFamily and
        StoreUnreadable for what cannot be read, ArchiveUnwritable for a full disk. The caller
        rolls back and calls ``undone``.
        """
        entry = self._catalogue.entry(key)
        if entry is None or self._is_unread(entry):
            return Deletion(key=key, deleted=False, removed={})
        require_removable(entry, self._database)
        references = self._catalogue.references()
        plan = self.planned(entry, references, keeps_transcripts=keeps_transcripts)
        archived = self.archived(plan.session_ids, "deleted", at)
        removed = self._removed(plan)
        self._catalogue.drop(key)
        return Deletion(key=key, deleted=True, archived=archived, removed=removed, kept=plan.stays)

    def unneeded(self) -> list[Window]:
        """Return the sessions that no entry needs, those longest idle first; no cold ones."""
        references = self._catalogue.references()
        owned = self._database.transcripts.owned().values()
        ids = [session_id for session_ids in owned for session_id in session_ids]
        windows = self._database.transcripts.windows(ids).values()
        warm = (window for window in windows if not window.is_cold)
        free = [window for window in warm if not references.is_needed(window)]
        return sorted(free, key=lambda window: (window.updated_at, window.session_id))

    def remove_unneeded(self, session_id: str, at: datetime) -> tuple[Archive, ...]:
        """Inside the file's transaction: archive and remove a session, if still no entry needs it.

        Raises as ``remove`` does.
        """
        windows = self._database.transcripts.windows([session_id])
        window = windows.get(session_id)
        references = self._catalogue.references()
        if window is None or window.is_cold or references.is_needed(window):
            return ()
        archives = self.archived([session_id], "deleted", at)
        self._database.dependents.remove_window(session_id)
        self._catalogue.forget()
        return archives

    def archived(
        self, session_ids: Sequence[str], reason: str, at: datetime
    ) -> tuple[Archive, ...]:
        """Archive transcripts where the file's age wants them; none of one without a line."""
        windows = self._database.transcripts.windows(session_ids)
        archives = [self._archive(windows[session_id], reason, at) for session_id in session_ids]
        return tuple(archive for archive in archives if archive is not None)

    def undone(self) -> None:
        """Take note that the transaction was rolled back."""
        self._catalogue.forget()
        self._fresh.clear()

    def publish(self, at: datetime) -> tuple[str, ...]:
        """After the commit: make the files of the archives; return the names of those pending.

        What refuses that does not undo the commit, so it is not raised: they stay pending.
        """
        fresh, self._fresh = self._fresh, []
        if not self._database.keeps_archives:
            return ()
        try:
            return blobs.publish(self._database.file, self._folder, at, fresh).pending
        except (DatabaseError, HistoryRetentionError):
            return tuple(fresh)

    def _is_unread(self, entry: Entry) -> bool:
        """Tell whether age A passes the entry over, where B says that it needs a repair."""
        return not self._database.age.has_nodes and not entry.is_readable(self._database.age)

    def _removed(self, plan: Removal) -> dict[str, int]:
        """Delete the rows of a plan whose transcripts are archived.

        An entry of age A hangs from its session and one of age B holds its windows, so the one
        goes first and the other last.
        """
        dependents = self._database.dependents
        removed: Counter[str] = Counter()
        if not self._database.age.has_nodes:
            removed.update(dependents.remove_entry(plan.key))
        for session_id in plan.session_ids:
            removed.update(dependents.remove_window(session_id))
        for session_id, heir in plan.handed_over.items():
            self._database.transcripts.hand_over(session_id, heir)
        if plan.leaves_shell:
            removed.update(dependents.strip_entry(plan.key))
            self._database.turn_into_shell(plan.key)
        elif self._database.age.has_nodes:
            removed.update(dependents.remove_entry(plan.key))
        return dict(removed)

    def _archive(self, window: Window, reason: str, at: datetime) -> Archive | None:
        database = self._database
        session_id = window.session_id

        def lines() -> Iterator[bytes]:
            return database.transcripts.lines(session_id)

        if not database.age.has_nodes:
            return files.write(self._folder, session_id, reason, at, lines)
        if window.generation is None:
            if not database.transcripts.event_count(session_id):
                return None
            raise StoreUnreadable(
                f"{database.file.alias}: session {session_id} has no rewrite watermark, without "
                "which OpenClaw archives nothing, so it stays. Run `openclaw doctor --fix`."
            )
        if not database.keeps_archives:
            return files.write(
                self._folder, session_id, reason, at, lines, generation=window.generation
            )
        archive = blobs.insert(
            database.file,
            self._folder,
            session_id,
            window.key,
            window.generation,
            reason,
            at,
            lines,
        )
        if archive is not None:
            self._fresh.append(archive.path.name)
        return archive


def require_removable(entry: Entry, database: AgentDatabase) -> None:
    """Raise EntryProtected for an entry that is at work, locked, or cannot be read."""
    alias = database.file.alias
    if not entry.is_readable(database.age):
        raise EntryProtected(
            f"{alias}: the entry of {entry.key} cannot be read as OpenClaw reads it, so it and "
            "its sessions stay. Repair it with `openclaw doctor --fix`."
        )
    if entry.told.get("modelSelectionLocked") is True:
        raise EntryProtected(
            f"{alias}: {entry.key} has its model selection locked, and OpenClaw never removes "
            "such an entry. Unlock it there first."
        )
    if entry.told.get("status") == "running":
        raise EntryProtected(
            f"{alias}: {entry.key} is at work now, so nothing of it was removed. Run this again "
            "when it is done."
        )
