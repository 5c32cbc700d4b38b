"""Telling when something was stored: from an id, from an ISO text, from a payload's first bytes.

Every function returns an aware datetime in UTC, or None when the value tells no time. None means
"unknown" to every caller, and unknown is kept; so each of them would rather say None than guess.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
"""No agent stored anything before; an older value is a clock that was not set."""

PREFIX_BYTES = 200
"""How much of a payload holds its time: it stands before the channel values."""

HEX_DIGITS = b"0123456789abcdef"
_SHAPE = "xxxxxxxx-xxxx-6xxx-xxxx-xxxxxxxxxxxx".replace("x", "[0-9a-f]")
HAS_TIMED_ID = f"(typeof(checkpoint_id) = 'text' AND checkpoint_id GLOB '{_SHAPE}')"
"""SQL true of lower-case version-6 UUIDs, whose order as text is their order in time."""

_TIMED_ID = re.compile(_SHAPE)
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)


def instant_of_id(checkpoint_id: str) -> datetime | None:
    """Return the instant in a version-6 UUID (RFC 9562, section 5.6), told by its nibble alone.

    One vendor writes ids whose variant bits are not RFC 4122; ``uuid.UUID(...).version`` is
    None for those, though their time is as good as any.
    """
    text = checkpoint_id.lower()
    if _TIMED_ID.fullmatch(text) is None:
        return None
    ticks = int(text[:8] + text[9:13] + text[15:18], 16)
    return _plausible(_GREGORIAN + timedelta(microseconds=ticks // 10))


def instant_of_text(text: object) -> datetime | None:
    """Return the instant of an ISO 8601 date and time; without a zone it is UTC."""
    if not isinstance(text, str) or _ISO.fullmatch(text.strip()) is None:
        return None
    try:
        instant = datetime.fromisoformat(text.strip().upper())
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return _plausible(instant.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def instant_of_milliseconds(number: object) -> datetime | None:
    """Return the instant so many milliseconds after 1970."""
    if not isinstance(number, int):
        return None
    try:
        return _plausible(_EPOCH + timedelta(milliseconds=number))
    except OverflowError:
        return None


def later_of(*instants: datetime | None) -> datetime | None:
    """Return the latest of those that are told."""
    return max((instant for instant in instants if instant is not None), default=None)


def instant_of_payload(prefix: bytes) -> datetime | None:
    """Return the top-level ``ts`` of a checkpoint from its first bytes, JSON or msgpack.

    Nothing is unpickled and no object is built. A payload of another kind (encrypted, pickled),
    or one whose ``ts`` lies behind the prefix, tells no time.
    """
    if prefix[:1] == b"{":
        return instant_of_text(_json_member(prefix, "ts"))
    return instant_of_text(_msgpack_member(prefix, b"ts"))


def _plausible(instant: datetime) -> datetime | None:
    return instant if instant >= EARLIEST else None


def _json_member(prefix: bytes, name: str) -> object:
    """Return a scalar member of the outermost object, reading no further than it lies."""
    text = prefix.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    position = 1
    try:
        while True:
            position = _skip_space(text, position)
            key, position = decoder.raw_decode(text, position)
            position = _skip_space(text, position)
            if not isinstance(key, str) or text[position] != ":":
                return None
            value, position = decoder.raw_decode(text, _skip_space(text, position + 1))
            position = _skip_space(text, position)
            if text[position] not in ",}":
                return None
            if key == name:
                return value
            position += 1
    except (ValueError, IndexError, RecursionError):
        return None


def _skip_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position


def _msgpack_member(prefix: bytes, name: bytes) -> object:
    """Return a text member of the outermost map (msgpack specification, "Formats")."""
    try:
        first = prefix[0]
        if 0x80 <= first <= 0x8F:
            count, position = first & 0x0F, 1
        elif first == 0xDE:
            count, position = int.from_bytes(prefix[1:3], "big"), 3
        else:
            return None
        for _ in range(count):
            key, position = _msgpack_scalar(prefix, position)
            value, position = _msgpack_scalar(prefix, position)
            if key == name:
                return value.decode() if value is not None else None
    except (IndexError, UnicodeDecodeError):
        pass
    return None


_FIXED_BYTES = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
_FIXED_BYTES |= {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def _msgpack_scalar(prefix: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a text (as bytes) or skip a number, nil or boolean; IndexError at anything else."""
    first = prefix[position]
    position += 1
    if 0xA0 <= first <= 0xBF:
        size = first & 0x1F
    elif 0xD9 <= first <= 0xDB:
        width = 1 << (first - 0xD9)
        size = int.from_bytes(prefix[position : position + width], "big")
        position += width
    elif first <= 0x7F or first >= 0xE0:
        return None, position
    elif first in _FIXED_BYTES:
        return None, position + _FIXED_BYTES[first]
    else:
        raise IndexError(position)
    if position + size > len(prefix):
        raise IndexError(position)
    return prefix[position : position + size], position + size
