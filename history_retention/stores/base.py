"""What a layout must give, so that services can see, plan, remove and vacuum.

A layout is one module with one ``Store`` subclass. It knows its vendor's tables and holds every
statement on them; it decides nothing. ``services`` opens it with ``stores.open_store(alias)``,
which tells the layout by the tables present.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from ..facts import (
    KeepReason,
    NamedThread,
    Naming,
    PlannedThread,
    SkipReason,
    Space,
    StoredThread,
    Transcripts,
)
from ..outcomes import VacuumResult

if TYPE_CHECKING:
    from ..conf import StoreOptions

Tables = Mapping[str, Collection[str]]
"""Table name to column names, as introspection found them."""

Progress = Callable[[str, int, int], None]
"""Called with a verb ("measuring"), how much is done and how much there is."""

KEPT_LOG = (
    ", but another process reads the old pages, so the write-ahead log keeps its size until that "
    "process is done"
)
"""What is added to a sentence when ``VacuumResult.wal_busy``."""

T = TypeVar("T")
THREADS_A_PART = 200
"""Threads named in one statement; the limit of parameters is 999 on old builds of SQLite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something that a store's owner has not given it, and the statement that gives it."""

    sentence: str
    remedy: str


class Store(ABC):
    """An open store. Readers stream threads in thread id order, with bounded memory."""

    layout: ClassVar[str]
    vendor: ClassVar[str]
    """What Django calls the database the layout lies in: ``sqlite`` or ``postgresql``."""
    rows_a_check: ClassVar[int]
    """Rows of threads that one ``rechecked`` compares in a few milliseconds."""
    threads_a_removal: ClassVar[int]
    """How many threads one ``remove`` takes at best."""
    bytes_a_removal: ClassVar[int] = 2**63
    """How many bytes of threads one ``remove`` takes at best; a thread that has more goes alone."""
    threads_a_box: ClassVar[int] = 2**31
    """How many threads one transaction removes at most, however little time they take."""
    sweeps_side_by_side: ClassVar[bool]
    """Whether workers may sweep parts of one plan at once: where one writer locks out all others
    they would only be in each other's way, and in the agents'."""
    vacuums_beside_writers: ClassVar[bool] = False
    """Whether nobody waits for a vacuum, so that there is no reason to put one off."""
    transcripts: ClassVar[Transcripts] = Transcripts.STAY
    """What becomes of the transcripts of threads that are removed."""
    alias: str
    naming: Naming
    named_by: str = ""
    """What names the threads, if it is the host's and could be the wrong one; empty when it is
    the vendor's own table, which lies beside its threads and may well be empty."""
    notes: tuple[str, ...]
    """Sentences about what this file lacks and what cannot be told because of it."""

    @classmethod
    @abstractmethod
    def recognises(cls, tables: Tables) -> bool:
        """Tell by its tables whether a database holds this layout."""

    @classmethod
    @abstractmethod
    def over(cls, database: Any, tables: dict[str, tuple[str, ...]], options: StoreOptions) -> Self:
        """Return the store in an open database of its vendor, whose tables it recognised."""

    @abstractmethod
    def only_one(self, work: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Hold the store for a kind of work, as "sweep"; SweepRunning at once if another does.

        With ``shared``, others who also share it may work beside.
        """

    def lacking_indexes(self) -> Sequence[Lack]:
        """Return the indexes whose absence makes a removal slow, where a layout can tell."""
        return ()

    def lacking_rights(self) -> Sequence[Lack]:
        """Return the rights that the database's user lacks, where it knows of users."""
        return ()

    @abstractmethod
    def space(self) -> Space:
        """Return what the database takes on disk now."""

    @abstractmethod
    def measured_threads(self, progress: Progress) -> Iterator[NamedThread]:
        """Stream every thread with its bytes. Reads no overflow page of a payload."""

    def row_marks(self) -> dict[str, Any]:
        """Return, as JSON can hold it, what tells later which rows are new since now."""
        return {}

    def remeasured_threads(
        self, progress: Progress, marks: Mapping[str, Any], memory: Memory
    ) -> Iterator[NamedThread] | None:
        """Stream what ``measured_threads`` would, from what is new since the marks were made.

        None when that is not sure to be the same, or this layout cannot tell what is new.
        """
        return None

    @abstractmethod
    def indexed_threads(
        self, progress: Progress, settled_before: datetime | None = None
    ) -> Iterator[NamedThread]:
        """Stream every thread without bytes, from the primary-key indexes alone.

        Of a conversation that was not active since ``settled_before`` it may be left open how
        long before that it was, and how many turns it has: ``completed`` tells.
        """

    def completed(self, threads: Sequence[NamedThread]) -> Sequence[NamedThread]:
        """Return the threads with what ``indexed_threads`` has left open of conversations."""
        return threads

    @abstractmethod
    def weighed(self, threads: Sequence[NamedThread]) -> Iterator[NamedThread]:
        """Return those still there, in their order, with bytes and dated by their own time too.

        Tells also what an unfinished thread awaits.
        """

    def protections(self) -> dict[str, KeepReason]:
        """Return the threads that the vendor itself would not remove unasked, and why not."""
        return {}

    @abstractmethod
    def conversation_totals(self) -> tuple[int, int, int]:
        """Return how many conversations and turns there are, and the bytes of the transcripts."""

    def names_any(self, thread_ids: Sequence[str]) -> bool:
        """Tell whether a conversation names one of the ids, be the thread here or not.

        Asked where ``named_by`` is set; False is the careful answer.
        """
        return False

    @abstractmethod
    def naming_mark(self) -> int:
        """Return a mark after which ``rechecked`` looks for new turns."""

    @property
    @abstractmethod
    def patience_seconds(self) -> float:
        """Return how long the connection would wait for another's lock, in seconds."""

    @abstractmethod
    def removing(self) -> AbstractContextManager[None]:
        """Enter a write transaction; commit on leaving, roll back on any error.

        Raises StoreBusy soon, and not only after ``patience_seconds``, when somebody else has
        the lock, so that the caller decides how to wait.
        """

    @abstractmethod
    def rechecked(
        self, threads: Sequence[PlannedThread], naming_mark: int
    ) -> Mapping[str, SkipReason]:
        """Inside ``removing``: name the threads that changed since the plan, and how."""

    @abstractmethod
    def remove(self, threads: Sequence[PlannedThread]) -> None:
        """Inside ``removing``: delete all rows of the threads from all of their tables.

        StoreTimedOut and WriterAtWork, from here or from the commit, are about these threads and
        not about the store.
        """

    @abstractmethod
    def live_bytes(self) -> int:
        """Return the bytes of the pages in use, which a vacuum rewrites."""

    @abstractmethod
    def vacuum_need(self) -> int:
        """Return the bytes of free disk that a vacuum takes at its peak."""

    @abstractmethod
    def vacuum_refusal(self) -> str:
        """Say why a vacuum cannot run now, or return an empty string."""

    @abstractmethod
    def vacuum_rate(self) -> float | None:
        """Try how many live bytes a second a vacuum rewrites here; None when nothing tells."""

    @abstractmethod
    def vacuum(self) -> VacuumResult:
        """Give free pages back to the file system; reports instead of raising when it cannot."""


class StepwiseStore(Store):
    """A store that may be able to give its free space back in short write transactions."""

    @abstractmethod
    def steps_refusal(self) -> str:
        """Say why this store cannot and how it could, or return an empty string."""

    @abstractmethod
    def free_some(self, deadline: float) -> int:
        """Inside ``removing``: give space back until ``time.monotonic()`` says so, at least once.

        Returns the bytes that are no longer free inside; 0 when none were.
        """

    @abstractmethod
    def truncate_log(self) -> bool | None:
        """Give back what the steps wrote beside; True when another process keeps it for now."""

    @abstractmethod
    def enabling_refusal(self) -> str:
        """Say that steps need not be enabled, or return an empty string."""

    @abstractmethod
    def enable_steps(self) -> VacuumResult:
        """Change the vendor's database so that steps work from now on; blocks its writers."""


class Memory(Protocol):
    """The store's threads as they were last measured."""

    def count(self) -> int:
        """Return how many there are."""

    def stored(self, thread_ids: Sequence[str]) -> Mapping[str, StoredThread]:
        """Return those of the threads that are known."""


class Rows(Protocol):
    """Something that knows how many rows a thread has."""

    @property
    def checkpoint_count(self) -> int:
        """Rows of checkpoints."""

    @property
    def write_count(self) -> int:
        """Rows of writes."""


def parts(
    threads: Sequence[T], rows_of: Callable[[T], Rows], most_rows: int
) -> Iterator[Sequence[T]]:
    """Cut threads into parts of at most so many rows, or of one thread that has more.

    A part goes into one statement, so it has no more threads than old builds of SQLite take
    parameters.
    """
    start = rows = 0
    for position, thread in enumerate(threads):
        counts = rows_of(thread)
        size = counts.checkpoint_count + counts.write_count
        if position > start and (rows + size > most_rows or position - start == THREADS_A_PART):
            yield threads[start:position]
            start, rows = position, 0
        rows += size
    if threads:
        yield threads[start:]
