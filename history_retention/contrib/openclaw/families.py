"""The family of an entry: every session that it names.

An entry that is no JSON object names none, and is protected by its column alone. A list of ids
or a compaction history that cannot be read stops the whole operation, as it does in OpenClaw.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...exceptions import HistoryRetentionError
from .ages import Age
from .entries import Entry

BLANKS = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What JavaScript trims; Python's own idea of a blank is another."""


class UnreadableFamily(HistoryRetentionError):
    """An entry's family cannot be told, so nobody knows what may go."""


def family(entry: Entry, age: Age) -> tuple[str, ...]:
    """Return the ids of the entry's sessions: trimmed, no blanks, each once, first seen first.

    Raises UnreadableFamily where a list of ids or a compaction checkpoint is not what it should
    be. An entry that is no JSON object has no family to tell.
    """
    return tuple(dict.fromkeys(filter(None, _told_ids(entry, age))))


def _told_ids(entry: Entry, age: Age) -> Iterator[str]:
    told = entry.told
    yield _trimmed(told.get("sessionId"))
    if age.has_nodes:
        yield _trimmed(told.get("previousSessionId"))
    for session_id in _listed(told.get("usageFamilySessionIds"), entry):
        yield _trimmed(session_id)
    for checkpoint in _listed(told.get("compactionCheckpoints"), entry):
        yield from _ids_of_checkpoint(checkpoint, entry)


def _ids_of_checkpoint(checkpoint: object, entry: Entry) -> Iterator[str]:
    sides = [checkpoint]
    if isinstance(checkpoint, dict):
        sides += [checkpoint.get("preCompaction"), checkpoint.get("postCompaction")]
    for side in sides:
        if not isinstance(side, dict):
            raise _unreadable(entry, "a compaction checkpoint")
        yield _trimmed(side.get("sessionId"))


def _listed(value: object, entry: Entry) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unreadable(entry, "a list of sessions")
    return value


def _trimmed(session_id: object) -> str:
    """Return the id; nothing for a value that can be none, since ids are texts."""
    return session_id.strip(BLANKS) if isinstance(session_id, str) else ""


def _unreadable(entry: Entry, what: str) -> UnreadableFamily:
    return UnreadableFamily(
        f"{entry.key}: {what} in its entry is not what OpenClaw writes, so nobody can tell which "
        "sessions it still needs; nothing was removed. Repair it with `openclaw doctor --fix`."
    )
