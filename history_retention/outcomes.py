"""What an operation did: values that travel from the services to whoever reports them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .facts import Ending, SkipReason, Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What is gone from the store, counted after each commit."""

    thread_count: int = 0
    checkpoint_count: int = 0
    write_count: int = 0
    byte_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedThread:
    """A planned thread that was left alone when its turn came."""

    thread_id: str
    reason: SkipReason


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumResult:
    """Whether a vacuum ran, and the sentence that says why or why not.

    ``needed_bytes`` is the peak of extra disk it takes, ``wal_busy`` whether another process kept
    the write-ahead log from being truncated (None: no log), ``seconds`` how long writers waited.
    """

    ran: bool
    reason: str
    needed_bytes: int
    wal_busy: bool | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an operation did. ``error`` is a sentence when ``ending`` is partial or failed."""

    ending: Ending
    removed: Removed
    removed_ids: tuple[str, ...] = field(default=(), repr=False)
    skipped: tuple[SkippedThread, ...]
    space_before: Space
    space_after: Space
    vacuum: VacuumResult
    error: str = ""
