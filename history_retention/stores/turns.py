"""What the turns in ``sessions`` tell of their conversations: how many there are, and the newest.

A turn's conversation stands behind its texts, so telling it reads them too: on a table of long
turns that is the dearest pass of all. Whether a conversation was active since an instant is told
by the rows after it alone, since turns are stored in the order of their time; where that instant
lies is found by halving. Where a look at the table does not bear that order out, all is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from ..facts import FOREVER, NEVER, Conversation
from .instants import instant_of_text
from .scratch import Scratch
from .spelling import plain
from .sqlite import BEFORE_ALL_ROWS, SQLiteFile

ROWS_A_CHUNK = 5_000
SAMPLES = 64
"""How many turns, spread over those that are not read, must be older than those that are."""

SLACK = timedelta(days=1)
"""How far behind a turn may be stored: a clock that was set back, another zone."""

PUT_TURN = (
    "INSERT INTO turns VALUES (?, 1, ?, ?) ON CONFLICT DO UPDATE SET count = count + 1,"
    " newest = MAX(newest, excluded.newest), untold = untold + excluded.untold"
)
"""Takes a conversation's id and what ``turn_values`` says of the turn."""

SCHEMA = "CREATE TABLE turns (id PRIMARY KEY, count INTEGER, newest INTEGER, untold INTEGER)"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OutOfOrder(Exception):
    """The turns are not stored in the order of their time, one tells none, or some go just now."""


@dataclass(slots=True)
class _Tally:
    """What the turns read so far tell of one conversation."""

    conversation: Conversation
    count: int = 0
    newest: int = 0
    is_untold: bool = False

    def add(self, ts: object) -> None:
        told, is_untold = turn_values(ts)
        self.count += 1
        self.newest = max(self.newest, told)
        self.is_untold = self.is_untold or bool(is_untold)

    def completed(self) -> Conversation:
        if self.is_untold:
            active = None
        elif self.count:
            active = instant_of_microseconds(self.newest)
        else:
            active = self.conversation.started
        return replace(self.conversation, last_activity=active, turn_count=self.count)


class Turns:
    """The turns of one store, if it has any."""

    def __init__(self, file: SQLiteFile, columns: Iterable[str]) -> None:
        self._file = file
        self.are_told = {"conversation_id", "ts"} <= set(columns)

    def collect(self, scratch: Scratch, since: datetime | None) -> bool:
        """Count the turns by conversation; with ``since``, those after it where that is enough.

        ``FOREVER`` asks for none. Returns whether all of them were counted.
        """
        after = BEFORE_ALL_ROWS
        if since == FOREVER:
            return False
        if since is not None and self.are_told:
            try:
                after = self._last_before(since)
            except OutOfOrder:
                since = None
        for rows in self._chunks(after):
            scratch.put(
                PUT_TURN,
                ((str(plain(key)), *turn_values(ts)) for _, key, ts in rows if key is not None),
            )
        return since is None

    def completed(self, conversations: Iterable[Conversation]) -> dict[object, Conversation]:
        """Return the conversations, by id, with all that their turns tell.

        What was stored before all of them were started is read too if one of them has no turn
        after.
        """
        tallies = {str(each.conversation_id): _Tally(each) for each in conversations}
        start = self._last_before_start_of(tallies.values())
        self._tally(tallies, start, None)
        if start != BEFORE_ALL_ROWS and not all(tally.count for tally in tallies.values()):
            self._tally(tallies, BEFORE_ALL_ROWS, start)
        return {tally.conversation.conversation_id: tally.completed() for tally in tallies.values()}

    def _tally(self, tallies: dict[str, _Tally], after: float, until: float | None) -> None:
        for rows in self._chunks(after, until):
            for _, key, ts in rows:
                tally = tallies.get(str(plain(key)))
                if tally is not None:
                    tally.add(ts)

    def mark(self) -> int:
        """Return the newest turn's row."""
        if not self.are_told:
            return 0
        return int(self._file.value("SELECT COALESCE(MAX(rowid), 0) FROM sessions"))

    def since(self, mark: int) -> set[Any]:
        """Return the conversations with turns after the mark."""
        if not self.are_told:
            return set()
        return {
            plain(key)
            for (key,) in self._file.rows(
                "SELECT DISTINCT conversation_id FROM sessions WHERE rowid > %s", [mark]
            )
        }

    def _last_before_start_of(self, tallies: Iterable[_Tally]) -> float:
        """Return a row before all turns of the conversations, as far as their starts tell."""
        starts = [tally.conversation.started or NEVER for tally in tallies]
        if not self.are_told or not starts or min(starts) == NEVER:
            return BEFORE_ALL_ROWS
        try:
            return self._last_before(min(starts))
        except OutOfOrder:
            return BEFORE_ALL_ROWS

    def _last_before(self, instant: datetime) -> float:
        """Return a row up to which all turns are older than the instant; OutOfOrder if unsure."""
        first, last = self._file.rows(
            "SELECT (SELECT MIN(rowid) FROM sessions), (SELECT MAX(rowid) FROM sessions)"
        )[0]
        if first is None:
            return BEFORE_ALL_ROWS
        bound = instant - SLACK
        low, high = first - 1, last + 1  # rows up to low are older, rows from high are not
        while high - low > 1:
            middle = (low + high) // 2
            row, at = self._at_or_after(middle)
            if row >= high or at >= bound:
                high = middle
            else:
                low = row
        step = max(1, (low - first) // SAMPLES)
        if any(self._at_or_after(row)[1] >= bound for row in range(first, low + 1, step)):
            raise OutOfOrder
        return float(low)

    def _at_or_after(self, row: int) -> tuple[int, datetime]:
        """Return the first row from this one on, and its time; OutOfOrder if there is none now."""
        for found, ts in self._file.rows(
            "SELECT rowid, ts FROM sessions WHERE rowid >= %s ORDER BY rowid LIMIT 1", [row]
        ):
            at = instant_of_text(ts)
            if at is not None:
                return found, at
        raise OutOfOrder

    def _chunks(self, after: float, until: float | None = None) -> Iterator[list[tuple[Any, ...]]]:
        if not self.are_told:
            return
        while rows := self._file.rows(
            "SELECT rowid, conversation_id, ts FROM sessions WHERE rowid > %s"
            f" AND rowid <= %s ORDER BY rowid LIMIT {ROWS_A_CHUNK}",
            [after, inf if until is None else until],
        ):
            yield rows
            after = rows[-1][0]


def microseconds(instant: datetime | None) -> int | None:
    """Return microseconds since 1970, by which the scratch database compares instants."""
    return None if instant is None else (instant - _EPOCH) // timedelta(microseconds=1)


def instant_of_microseconds(number: int | None) -> datetime | None:
    """Return the instant so many microseconds after 1970."""
    return None if number is None else _EPOCH + timedelta(microseconds=number)


def turn_values(ts: object) -> tuple[int, int]:
    """Return a turn's microseconds and 0, or 0 and 1 for one that tells no time."""
    told = microseconds(instant_of_text(ts))
    return (0, 1) if told is None else (told, 0)
