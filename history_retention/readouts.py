"""What a measuring tells: a readout of a store, and each thread in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .facts import Naming, Space, State, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadThread:
    """One thread of a readout.

    ``stored_activity`` is that of its rows alone, without its conversations; None when unknown.
    """

    thread_id: str
    byte_count: int
    checkpoint_count: int
    write_count: int
    first_activity: datetime | None
    last_activity: datetime | None
    stored_activity: datetime | None
    state: State
    conversation_ids: tuple[int | str, ...]
    turn_count: int
    command: str
    project: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """What one measuring of a store found.

    ``unresumable`` counts every thread that no conversation names, ``reclaimable`` those of
    them that a reclaim would take now. ``notes`` are sentences about what could not be told.
    """

    database: str
    layout: str
    as_of: datetime
    space: Space
    naming: Naming
    checkpoint_bytes: int
    checkpoint_count: int
    write_count: int
    thread_count: int
    conversation_count: int
    turn_count: int
    transcript_bytes: int
    unresumable: Tally
    reclaimable: Tally
    largest_threads: tuple[ReadThread, ...]
    notes: tuple[str, ...]
