"""Layout ``openclaw``: the per-agent file of OpenClaw, with the session key as the thread.

A thread is an entry with its sessions: those of its family and, in age B, all windows that it
owns. Each entry names itself, so none is unresumable and reclaim takes nothing; prune takes what
its bounds allow and nothing that OpenClaw itself protects. A session that another entry needs
stays, and every transcript that goes is archived first (``removals``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, Self

from django.utils import timezone

from ...conf import StoreOptions
from ...exceptions import UsageError
from ...facts import (
    Conversation,
    KeepReason,
    NamedThread,
    Naming,
    PlannedThread,
    SkipReason,
    StoredThread,
    Transcripts,
)
from ...stores.base import Progress, Tables
from ...stores.instants import instant_of_milliseconds
from ...stores.sqlite import SQLiteFile
from ...stores.sqlite_space import SQLiteStore
from .ages import Age, B, age_of
from .archives.blobs import milliseconds
from .archiving import AgentArchives
from .catalogue import Catalogue
from .database import AgentDatabase
from .entries import Entry
from .listing import Listing, listing_of, told_ids
from .plans import Removal
from .protection import Protection, protection
from .removals import Deletion, Removals, errand, require_removable
from .resets import Reset, Resets
from .sizes import Size, Sizes

Clock = Callable[[], datetime]

_KEPT = {Protection.RUNNING: KeepReason.LEASED, Protection.PINNED: KeepReason.HELD}


class OpenClawStore(SQLiteStore):
    """An agent's entries and their sessions."""

    layout = "openclaw"
    rows_a_check = 200
    threads_a_removal = 1
    transcripts = Transcripts.ARCHIVED

    def __init__(self, database: AgentDatabase, clock: Clock = timezone.now) -> None:
        self.alias = database.file.alias
        self.naming = Naming.KNOWN
        self.notes = ()
        self._file = database.file
        self._clock = clock
        self._database = database
        self.sizes = Sizes(database.file, database.tables)
        self._catalogue = Catalogue(database)
        self.remover = Removals(database, self._catalogue)
        self._deleted: list[Deletion] = []

    @classmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by the tables of either age."""
        return age_of(tables) is not None

    @classmethod
    def over(
        cls, database: SQLiteFile, tables: dict[str, tuple[str, ...]], options: StoreOptions
    ) -> Self:
        """Return the store; UsageError for CONVERSATIONS, since its entries name themselves."""
        if options.conversations:
            raise UsageError(
                f"{database.alias}: CONVERSATIONS is for LangGraph's own tables; in a file of "
                "OpenClaw every entry names itself. Remove the option; nothing was touched."
            )
        age = age_of(tables)
        assert age is not None  # noqa: S101 - recognised, or it would not be opened
        return cls(AgentDatabase(database, tables, age))

    @property
    def age(self) -> Age:
        """Return the file's age."""
        return self._database.age

    @property
    def version(self) -> int:
        """Return OpenClaw's schema version of the file."""
        return self._database.version

    @property
    def archives(self) -> AgentArchives:
        """Return the archives of the agent."""
        return AgentArchives(self._database, self.remover.folder)

    def family_ids(self, key: str) -> tuple[str, ...]:
        """Return the ids of an entry's family as far as they can be told."""
        entry = self._catalogue.entries().get(key)
        return told_ids(entry, self._database) if entry else ()

    def entries(self) -> Sequence[Entry]:
        """Return all entries, shells among them, in the order of their keys."""
        return tuple(self._catalogue.entries().values())

    def listing(self, progress: Progress) -> Listing:
        """Describe every entry; reads every transcript to tell its size."""
        sizes = self.sizes.of_all(lambda done, all_: progress("measuring", done, all_))
        return listing_of(self._database, self._catalogue, sizes)

    def family_of(self, key: str) -> list[tuple[str, Size, str]]:
        """Return the sessions of an entry: id, size, and another key that needs it, or none."""
        needed = self._catalogue.references()
        transcripts = self._database.transcripts
        ids = dict.fromkeys([*self.family_ids(key), *transcripts.owned_by(key)])
        owners = {each.session_id: each.key for each in transcripts.windows(ids).values()}
        return [
            (each, self.sizes.of([each]), needed.others(each, key, owners.get(each, "")) or "")
            for each in ids
        ]

    def measured_threads(self, progress: Progress) -> Iterator[NamedThread]:
        """Stream every entry with the bytes of the sessions that are counted to it.

        A session is counted once: to the entry that it belongs to, or else to the first that
        needs it.
        """
        for each in self.listing(progress).entries:
            yield self._thread(each.entry, each.size)

    def indexed_threads(
        self, progress: Progress, settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Stream every entry without reading a transcript."""
        for entry in self._catalogue.entries().values():
            yield self._thread(entry, None)

    def weighed(self, threads: Sequence[NamedThread]) -> Iterator[NamedThread]:
        """Return those still there, with the bytes that removing one after another would free.

        A session that several of them share is counted to the last one.
        """
        keys = [thread.stored.thread_id for thread in threads]
        for plan in self.removals(keys):
            entry = self._catalogue.entries()[plan.key]
            yield self._thread(entry, self.sizes.of(plan.session_ids), self._fingerprint(entry))

    def protections(self) -> dict[str, KeepReason]:
        """Return the entries that OpenClaw's maintenance never removes, by its newest rules."""
        found = ((entry.key, protection(entry, B)) for entry in self._catalogue.entries().values())
        return {key: _KEPT.get(why, KeepReason.PROTECTED) for key, why in found if why is not None}

    def conversation_totals(self) -> tuple[int, int, int]:
        """Return entries and messages; and the bytes of the archives that the file keeps."""
        entries = sum(not entry.is_shell for entry in self._catalogue.entries().values())
        messages = self._file.value(
            "SELECT COUNT(*) FROM transcript_event_identities WHERE event_type = 'message'"
        )
        archives = 0
        if self._database.keeps_archives:
            archives = self._file.value(
                "SELECT COALESCE(SUM(LENGTH(archive_blob)), 0) FROM session_transcript_archives"
            )
        return entries, messages, archives

    def naming_mark(self) -> int:
        """Return 0: an entry names itself, and changes with its own row."""
        return 0

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Hold the file's write lock; afterwards publish what was archived in it."""
        self._database.require_changeable()
        self._catalogue.entries()  # what takes long is read before the lock is taken
        try:
            with super().removing():
                yield
        except BaseException:
            self._undone()
            raise
        asked = errand.get()
        pending = self.remover.publish(self._clock())
        if asked is not None:
            asked.deletions += self._deleted
            asked.pending = pending
        self._deleted.clear()

    def rechecked(
        self, threads: Sequence[PlannedThread], naming_mark: int
    ) -> Mapping[str, SkipReason]:
        """Compare the entries and their sessions with what the plan saw."""
        changed = {}
        for thread in threads:
            entry = self._catalogue.entry(thread.thread_id)
            if entry is None:
                changed[thread.thread_id] = SkipReason.GONE
            elif self._fingerprint(entry) != thread.fingerprint:
                changed[thread.thread_id] = SkipReason.ACTIVE
        return changed

    def remove(self, threads: Sequence[PlannedThread]) -> None:
        """Archive and delete; see ``removals``."""
        asked = errand.get()
        keeps = asked is not None and asked.keeps_transcripts
        for thread in threads:
            self._deleted.append(
                self.remover.remove(thread.thread_id, self._clock(), keeps_transcripts=keeps)
            )

    def reset(self, key: str, at: datetime, changes: Mapping[str, Any] | None = None) -> Reset:
        """Inside ``removing``: give a key an empty transcript; see ``resets``."""
        resets = Resets(self._database, self._catalogue, self.remover)
        return resets.reset(key, at, changes=changes)

    def archive_in_place(self, entry: Entry, reason: str, at: datetime) -> bool:
        """Inside ``removing``: mark an entry (B) as archived, unless somebody changed it."""
        is_same = self._catalogue.entry(entry.key) == entry
        if is_same:
            self._database.archive_in_place(entry.key, reason, milliseconds(at))
            self._catalogue.forget()
        return is_same

    def removals(
        self, keys: Sequence[str], *, keeps_transcripts: bool = False
    ) -> Iterator[Removal]:
        """Plan the removal of one entry after another, of those that are there."""
        references = self._catalogue.references().copy()
        for key in keys:
            entry = self._catalogue.entries().get(key)
            if entry is not None and not entry.is_shell:
                yield self.remover.planned(entry, references, keeps_transcripts=keeps_transcripts)
                references.drop(key)

    def require_removable(self, keys: Sequence[str]) -> None:
        """Raise EntryProtected if one of the entries is at work, locked, or cannot be read."""
        self._database.require_changeable()
        for key in keys:
            entry = self._catalogue.entries().get(key)
            if entry is not None and not entry.is_shell:
                require_removable(entry, self._database)

    def _undone(self) -> None:
        self.remover.undone()
        self._deleted.clear()

    def _thread(self, entry: Entry, size: Size | None, fingerprint: bytes = b"") -> NamedThread:
        age = self._database.age
        last = instant_of_milliseconds(entry.activity(age)) if entry.is_readable(age) else None
        first = instant_of_milliseconds(entry.told.get("sessionStartedAt")) or last
        stored = StoredThread(
            thread_id=entry.key,
            checkpoint_count=size.event_count if size else 0,
            write_count=size.side_event_count if size else 0,
            byte_count=size.byte_count + entry.byte_count if size else None,
            first_activity=first,
            last_activity=last,
            fingerprint=fingerprint,
        )
        if entry.is_shell:
            return NamedThread(stored=stored)
        conversation = Conversation(
            conversation_id=entry.current_id,
            last_activity=last,
            command=entry.rest.partition(":")[0],
            label=str(entry.told.get("label") or entry.told.get("displayName") or ""),
        )
        return NamedThread(stored=stored, conversations=(conversation,))

    def _fingerprint(self, entry: Entry) -> bytes:
        """Return what changes when the entry does, or any session that would go with it."""
        windows = self.remover.windows(entry)
        told = (
            entry.digest,
            entry.columns,
            sorted((w.session_id, w.snapshot) for w in windows.values()),
        )
        return blake2b(repr(told).encode("utf-8", "surrogateescape"), digest_size=8).digest()
