"""The frozen values that travel between the layers.

Nothing here decides or does anything. Every instant is an aware datetime in UTC, every size is
in bytes; a thread's bytes are its checkpoints, their metadata and its writes, NULL counting 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .policy import Bounds

NEVER = datetime.min.replace(tzinfo=UTC)
"""The last activity of a conversation whose model has no activity field: older than anything."""

FOREVER = datetime.max.replace(tzinfo=UTC)
"""How an unknown activity sorts: as the newest of all."""


class State(StrEnum):
    """What can be done with a thread now; the first that fits, in this order."""

    HELD = "held"
    LEASED = "leased"
    UNKNOWN_AGE = "unknown_age"
    RESUMABLE = "resumable"
    GRACE = "grace"
    UNRESUMABLE = "unresumable"
    UNTOLD = ""
    """The store lacks the table that names threads, so nobody can tell."""


class KeepReason(StrEnum):
    """Why a thread that the bounds alone would have taken stays."""

    NAMED_BY_KEPT_CONVERSATION = "named_by_kept_conversation"
    HELD = "held"
    LEASED = "leased"
    UNKNOWN_AGE = "unknown_age"
    LIVE = "live"
    PROTECTED = "protected"
    """Its own vendor never removes it unasked."""
    UNFINISHED = "unfinished"
    """Somebody or something is still awaited, and the prune was told to leave those."""


class Transcripts(StrEnum):
    """What becomes of the transcript of a thread that is pruned."""

    STAY = "stay"
    ARCHIVED = "archived"
    """It goes, and was written to an archive first."""
    GO = "go"


class Awaiting(StrEnum):
    """What an unfinished thread waits for before it goes on."""

    NOTHING = ""
    INTERRUPT = "interrupt"
    """A person's answer: its newest checkpoint is interrupted and nobody resumed it."""
    TASKS = "tasks"
    """Steps that its newest checkpoint says come next."""


class SkipReason(StrEnum):
    """Why a planned thread was left alone when its turn came."""

    ACTIVE = "active"
    NAMED = "named"
    HELD = "held"
    LEASED = "leased"
    GONE = "gone"
    BUSY = "busy"
    """Somebody's open transaction may be writing to it, and nobody can tell."""
    TIMED_OUT = "timed_out"
    """It alone takes longer to remove than the database lets a statement run."""


class Ending(StrEnum):
    """How a sweep ended."""

    RUNNING = "running"
    DONE = "done"
    PARTIAL = "partial"
    """Some planned threads went, others were refused."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Naming(StrEnum):
    """What a store can tell about who names its threads."""

    KNOWN = "known"
    """A conversations table or model names threads; the others are unresumable."""
    ABSENT = "absent"
    """The layout has no such table: every thread is addressed by its id alone."""
    BROKEN = "broken"
    """The layout relies on such a table and the file lacks it: nothing can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row that names a thread. ``last_activity`` is its newest turn, or its start.

    ``started`` is told where how long ago it was active may have been left open.
    """

    conversation_id: int | str
    last_activity: datetime | None
    started: datetime | None = None
    turn_count: int = 0
    command: str = ""
    project: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredThread:
    """A thread's rows in the state tables, as one pass over the store saw them.

    ``last_activity`` is None when at least one row tells no time: the age is unknown then,
    however old the other rows are. ``byte_count`` is None when the pass read index pages only.
    ``fingerprint`` changes whenever the thread gains, loses or replaces a row; a measuring, from
    which nothing is planned, has none. ``awaiting`` is told by ``weighed`` alone.
    """

    thread_id: str
    checkpoint_count: int
    write_count: int
    byte_count: int | None
    first_activity: datetime | None
    last_activity: datetime | None
    fingerprint: bytes = field(repr=False)
    awaiting: Awaiting = Awaiting.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedThread:
    """A stored thread with the conversations that name it."""

    stored: StoredThread
    conversations: tuple[Conversation, ...] = ()

    @property
    def last_activity(self) -> datetime | None:
        """The newest instant of the thread and of its conversations; None when unknown."""
        if self.stored.last_activity is None:
            return None
        instants = [self.stored.last_activity]
        for conversation in self.conversations:
            if conversation.last_activity is None:
                return None
            instants.append(conversation.last_activity)
        return max(instants)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpace:
    """What one table takes on a server, its indexes and outsourced values included.

    ``dead_rows`` were removed or replaced, and keep their space until a vacuum.
    """

    name: str
    total_bytes: int
    index_bytes: int
    live_rows: int
    dead_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What the database takes on disk. ``free_bytes`` lie inside the file, for reuse.

    On a server there is no file of the store's own: its ``tables`` tell, and add up to the file.
    """

    file_bytes: int
    wal_bytes: int
    free_bytes: int
    tables: tuple[TableSpace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A number of threads and the bytes of their stored state."""

    thread_count: int = 0
    byte_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptThread:
    """A thread that the bounds alone would have taken, and why it stays."""

    thread_id: str
    reason: KeepReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedThread:
    """A thread that an operation would remove, as the plan saw it."""

    thread_id: str
    conversation_ids: tuple[int | str, ...]
    command: str
    project: str
    last_activity: datetime
    turn_count: int
    checkpoint_count: int
    write_count: int
    byte_count: int
    recently_active: bool
    awaiting: Awaiting = Awaiting.NOTHING
    fingerprint: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The exact list of what an operation would remove, and what it keeps and why.

    ``bounds`` is None for a reclaim, ``naming_mark`` the store's note of the turns seen;
    ``witnesses`` are named by the host's table ``named_by``, ``left_by_limit`` may go later.
    """

    database: str
    layout: str
    as_of: datetime
    grace: timedelta
    bounds: Bounds | None
    prunable: tuple[PlannedThread, ...]
    reclaimable: tuple[PlannedThread, ...]
    kept: tuple[KeptThread, ...]
    naming_mark: int
    notes: tuple[str, ...] = ()
    transcripts: Transcripts = Transcripts.STAY
    named_by: str = ""
    witnesses: tuple[str, ...] = ()
    left_by_limit: int = 0
    limit: int | None = None
    reclaims: bool = True
    orphan_writes: bool = False
    excluded: frozenset[str] = frozenset()
    unmatched_exclusions: tuple[str, ...] = ()

    @property
    def threads(self) -> tuple[PlannedThread, ...]:
        """List all that would go, prunable first."""
        return self.prunable + self.reclaimable

    @property
    def planned(self) -> Tally:
        """Count all that would go."""
        return Tally(
            thread_count=len(self.threads),
            byte_count=sum(thread.byte_count for thread in self.threads),
        )
