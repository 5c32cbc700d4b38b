"""The names of archived transcripts, in both of OpenClaw's forms and those of its older files.

A name is ``<session id>.jsonl.<reason>.<stamp>[.<generation>][.zst]``; the generation is age B's.
An id that is no safe file name, or too long for one, is told by its digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import unquote

REASONS = ("deleted", "reset")
"""Why a transcript was archived; ``bak`` is what compacting a legacy file left behind."""

LONGEST_STEM_BYTES = 96
COMPRESSED = ".zst"

_SAFE_ID = re.compile(r"[^\W_][\w.-]{0,127}")
_ARCHIVED = re.compile(
    r"(?P<base>.+)\.(?P<reason>deleted|reset|bak)\."
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d{3})?)Z(?:\.(?P<generation>[0-9a-f]{32}))?",
    re.ASCII | re.DOTALL,
)
_TOPIC = "-topic-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveName:
    """What the name of an archive tells. ``stem`` is the session id, or stands for it.

    ``topic`` is that of a legacy file of one topic of the session.
    """

    name: str
    stem: str
    reason: str
    archived_at: datetime
    generation: str
    topic: str

    @property
    def is_compressed(self) -> bool:
        """Tell whether the file is zstd."""
        return self.name.endswith(COMPRESSED)


def stem_of(session_id: str) -> str:
    """Return the beginning of the name of every archive of the session."""
    if _SAFE_ID.fullmatch(session_id) and len(session_id.encode()) <= LONGEST_STEM_BYTES:
        return session_id
    return f"session-{sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def name_of(
    session_id: str, reason: str, at: datetime, *, generation: str = "", compressed: bool
) -> str:
    """Return the name of a new archive made at an instant, told to the millisecond in UTC."""
    stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    parts = [stem_of(session_id), "jsonl", reason, stamp.replace(":", "-")]
    if generation:
        parts.append(generation)
    return ".".join(parts) + (COMPRESSED if compressed else "")


def read_name(name: str) -> ArchiveName | None:
    """Return what the name tells, or None when it is no archive's."""
    matched = _ARCHIVED.fullmatch(name.removesuffix(COMPRESSED))
    if matched is None:
        return None
    try:
        archived_at = datetime.fromisoformat(_with_colons(matched["stamp"])).replace(tzinfo=UTC)
    except ValueError:  # a thirteenth month
        return None
    stem, _, topic = matched["base"].removesuffix(".jsonl").partition(_TOPIC)
    return ArchiveName(
        name=name,
        stem=stem,
        reason=matched["reason"],
        archived_at=archived_at,
        generation=matched["generation"] or "",
        topic=unquote(topic),
    )


def _with_colons(stamp: str) -> str:
    date, time = stamp.split("T")
    return f"{date}T{time.replace('-', ':')}"
