"""What removing an entry would archive, delete, hand over and leave, and why: pure decisions.

Only an id that no surviving entry needs may go, and only with its transcript archived. A window
that another entry needs is handed over to it before the entry goes, since in age B it would go
along with it. What is in cold storage is never touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .ages import Age
from .entries import Entry
from .families import family


class StayReason(StrEnum):
    """Why a session of a removed entry stays."""

    NEEDED = "needed_by_another_entry"
    COLD = "in_cold_storage"
    NOT_ASKED = "transcripts_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A session's row, and what tells that nothing was written to it since.

    ``key`` is the entry it belongs to. ``is_cold`` says that its transcript lies in cold storage.
    ``snapshot`` holds the times, the rewrite generation and the newest numbers of its rows.
    """

    session_id: str
    key: str
    updated_at: int
    generation: str | None
    is_cold: bool
    snapshot: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A session that stays, and why."""

    session_id: str
    reason: StayReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """All that removing one entry does.

    ``session_ids`` are archived and removed, in this order; ``handed_over`` maps windows to the
    keys that they go to; ``leaves_shell`` says that windows remain which only this node holds.
    """

    key: str
    session_ids: tuple[str, ...]
    stays: tuple[Stay, ...]
    handed_over: Mapping[str, str]
    leaves_shell: bool


class References:
    """Which entries need which sessions, kept up to date as entries come and go."""

    def __init__(self, entries: Iterable[Entry], age: Age) -> None:
        """Ask every entry; UnreadableFamily when one of them cannot be told."""
        self._age = age
        self._needed: dict[str, frozenset[str]] = {}
        self._needers: dict[str, set[str]] = defaultdict(set)
        self._retaining: set[str] = set()
        for entry in entries:
            self.put(entry)

    def copy(self) -> References:
        """Return one that comes and goes by itself."""
        copied = References((), self._age)
        copied._needed = dict(self._needed)
        copied._needers = defaultdict(set, {each: set(k) for each, k in self._needers.items()})
        copied._retaining = set(self._retaining)
        return copied

    def put(self, entry: Entry) -> None:
        """Take note of an entry as it is now; UnreadableFamily when it does not tell."""
        needed = frozenset([entry.current_id, *family(entry, self._age)])
        self.drop(entry.key)
        self._needed[entry.key] = needed
        for session_id in needed:
            self._needers[session_id].add(entry.key)
        if self._age.has_nodes and (entry.archived_at, entry.pinned_at) != (None, None):
            self._retaining.add(entry.key)

    def drop(self, key: str) -> None:
        """Forget an entry that is gone."""
        self._retaining.discard(key)
        for session_id in self._needed.pop(key, frozenset()):
            self._needers[session_id].discard(key)

    def is_needed(self, window: Window) -> bool:
        """Tell whether any entry needs the session."""
        return self.others(window.session_id, "", window.key) is not None

    def others(self, session_id: str, key: str, owner: str = "") -> str | None:
        """Return the first key, in order, of another entry that needs the session.

        Its ``owner`` does, beside those whose family it is of, if it is archived or pinned (B).
        """
        needers = self._needers.get(session_id, set()) | ({owner} & self._retaining)
        return min(needers - {key}, default=None)


def removal(
    entry: Entry,
    age: Age,
    references: References,
    windows: Mapping[str, Window],
    *,
    keeps_transcripts: bool = False,
) -> Removal:
    """Plan the removal of an entry.

    ``windows`` are those of its family and those that it owns, by id. With ``keeps_transcripts``
    the entry alone goes.
    """
    own = [entry.current_id, *family(entry, age)]
    owned = sorted(window.session_id for window in windows.values() if window.key == entry.key)
    older = [session_id for session_id in owned if session_id not in own] if age.has_nodes else []
    goes: list[str] = []
    stays: list[Stay] = []
    handed_over: dict[str, str] = {}
    for session_id in dict.fromkeys([*older, *own]):
        window = windows.get(session_id)
        owner = "" if window is None else window.key
        other = references.others(session_id, entry.key, owner)
        if other is not None:
            stays.append(Stay(session_id=session_id, reason=StayReason.NEEDED))
            if age.has_nodes and window is not None and window.key == entry.key:
                handed_over[session_id] = other
        elif window is not None and window.is_cold:
            stays.append(Stay(session_id=session_id, reason=StayReason.COLD))
        elif keeps_transcripts:
            stays.append(Stay(session_id=session_id, reason=StayReason.NOT_ASKED))
        elif window is not None:
            goes.append(session_id)
    return Removal(
        key=entry.key,
        session_ids=tuple(goes),
        stays=tuple(stays),
        handed_over=handed_over,
        leaves_shell=age.has_nodes and bool(set(owned) - set(goes) - set(handed_over)),
    )
