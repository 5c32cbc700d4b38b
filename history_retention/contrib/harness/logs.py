"""What the event logs of a file tell of their sessions, read without loading an event.

A log has no index but its key, so telling times is one pass over the rows: in row order, in short
statements, and without the payloads' overflow pages unless bytes are asked for. A text is measured
in bytes, which SQLite before 3.43 reads it for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...stores.sqlite import BEFORE_ALL_ROWS, SQLiteFile, encoded

ROWS_A_CHUNK = 5_000
END_SEED = "session/end-seed"
"""Written whenever a session is opened, so it is no activity."""

_FACTS = (
    "COUNT(*) AS rows, SUM(size) AS bytes, MIN(time) AS first,"
    f" MAX(CASE WHEN type <> '{END_SEED}' THEN time END) AS last,"
    " MAX(CASE WHEN type = 'turn/start' THEN seq END) AS started,"
    " MAX(CASE WHEN type = 'turn/end' THEN seq END) AS ended,"
    " SUM(type = 'turn/start') AS turns"
)
_SIZE = " + ".join(
    f"COALESCE(LENGTH(CAST({column} AS BLOB)), 0)"
    for column in ("data", "source_event_seqs", "surface_op")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The rows of one session. Times are in milliseconds; ``last`` leaves out end-seed markers.

    ``started`` and ``ended`` are the numbers of the newest turn's start and end.
    """

    row_count: int = 0
    byte_count: int = 0
    first: int | None = None
    last: int | None = None
    started: int | None = None
    ended: int | None = None
    turn_count: int = 0

    @property
    def has_open_turn(self) -> bool:
        """Tell whether the newest turn has no end, as while an agent is at work in it."""
        return self.started is not None and (self.ended is None or self.ended < self.started)

    def __add__(self, other: Log) -> Log:
        return Log(
            row_count=self.row_count + other.row_count,
            byte_count=self.byte_count + other.byte_count,
            first=_least(self.first, other.first),
            last=_most(self.last, other.last),
            started=_most(self.started, other.started),
            ended=_most(self.ended, other.ended),
            turn_count=self.turn_count + other.turn_count,
        )


def all_logs(
    file: SQLiteFile, advanced: Callable[[int, int], None], *, weigh: bool
) -> dict[str, Log]:
    """Return the log of every session that has a row; with its bytes if ``weigh``."""
    size = _SIZE if weigh else "0"
    expected = file.value("SELECT COALESCE(MAX(rowid), 0) FROM events")
    logs: dict[str, Log] = {}
    after, read = BEFORE_ALL_ROWS, 0
    while rows := file.rows(
        f"SELECT session_id, {_FACTS}, MAX(number) FROM (SELECT session_id, seq, type, time,"
        f" rowid AS number, {size} AS size FROM events NOT INDEXED WHERE rowid > %s"
        f" ORDER BY rowid LIMIT {ROWS_A_CHUNK}) GROUP BY session_id",
        [after],
    ):
        for session_id, *facts, _ in rows:
            logs[session_id] = logs.get(session_id, Log()) + _log(facts)
            read += facts[0]
        after = max(row[-1] for row in rows)
        advanced(read, max(read, expected))
    return logs


def log_of(file: SQLiteFile, session_id: str) -> Log:
    """Return the log of one session with its bytes, found by its key."""
    (facts,) = file.rows(
        f"SELECT {_FACTS} FROM (SELECT seq, type, time, {_SIZE} AS size FROM events"
        " WHERE session_id = CAST(%s AS TEXT) LIMIT -1)",
        [encoded(session_id)],
    )
    return _log(facts)


def _log(facts: Iterable[int | None]) -> Log:
    row_count, byte_count, first, last, started, ended, turn_count = facts
    return Log(
        row_count=row_count or 0,
        byte_count=byte_count or 0,
        first=first,
        last=last,
        started=started,
        ended=ended,
        turn_count=turn_count or 0,
    )


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)
