"""Durations and sizes as OpenClaw's configuration spells them."""

from __future__ import annotations

import re
from datetime import timedelta

from ...exceptions import UsageError

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

OFF = ("false", "0")
"""How a limit is switched off."""


def duration(text: str) -> timedelta:
    """Read ``500ms``, ``30s``, ``1h30m``, ``7d``; a bare number is days. Raises UsageError."""
    spelled = text.strip().lower()
    try:
        if _NUMBER.fullmatch(spelled):
            return timedelta(days=float(spelled))
        if _DURATION.fullmatch(spelled):
            parts: dict[str, float] = {}
            for number, unit in _PART.findall(spelled):
                parts[_UNITS[unit]] = parts.get(_UNITS[unit], 0.0) + float(number)
            return timedelta(**parts)
    except OverflowError:
        pass
    raise UsageError(
        f"{text!r} is no duration: write 30d, 12h, 1h30m, 45s or 500ms; a bare number is days."
    )


def size(text: str) -> int:
    """Read ``500mb``, ``2gb``; units are of 1,024, a bare number is bytes. Raises UsageError."""
    matched = _SIZE.fullmatch(text.strip().lower())
    if matched is None:
        raise UsageError(
            f"{text!r} is no size: write 500mb, 2gb or 1tb, of 1,024 each; a bare number is bytes."
        )
    return round(float(matched[1]) * 1024.0 ** _POWERS[matched[2]])


def limit_of_time(text: str) -> timedelta | None:
    """Read a duration, or None from ``0`` and ``false``."""
    return None if text.strip().lower() in OFF else duration(text)


def limit_of_space(text: str) -> int | None:
    """Read a size, or None from ``0`` and ``false``."""
    return None if text.strip().lower() in OFF else size(text)
