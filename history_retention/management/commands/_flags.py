"""Read what stands after a flag, from a shell and from ``call_command`` alike.

``call_command`` hands keyword options over as they are, past argparse's types. So every value
comes here as an object, and leaves as what it must be or as a UsageError of one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

from ...exceptions import UsageError
from ._text import shortened

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")

HIGHEST_COUNT = 10**9
"""More than any store has threads; a larger number is a slip of the keyboard."""

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""No agent wrote before it, and every bound can still be counted back from it."""


def whole_number(
    flag: str, value: object, *, highest: int, unit: str = "a whole number", instead: str = ""
) -> int | None:
    """Return the number after the flag, from 1 to ``highest``; None when it was not given."""
    if value is None:
        return None
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and WHOLE_NUMBER.fullmatch(value):
        number = int(value)
    if number is None or not 1 <= number <= highest:
        raise UsageError(f"{flag} takes {unit} from 1 to {highest:,}, not {shown(value)}{instead}.")
    return number


def instant(flag: str, value: object) -> datetime | None:
    """Return the instant after the flag in UTC; no zone means UTC; None when not given."""
    if value is None:
        return None
    try:
        at = value if isinstance(value, datetime) else _parsed(value)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if at is None or at < EARLIEST:
        raise UsageError(
            f"{flag} takes a date and a time from 1970 on, such as 2026-11-30T12:00:00Z, "
            f"not {shown(value)}."
        )
    return at


def _parsed(value: object) -> datetime:
    """Parse ISO 8601 text that has a time; ValueError for anything else."""
    if not isinstance(value, str) or _is_date_alone(value):
        raise ValueError
    return datetime.fromisoformat(value)


def _is_date_alone(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def text(flag: str, value: object) -> str | None:
    """Return the text after the flag; None when it was not given, never an empty one."""
    if value is None or (isinstance(value, str) and value):
        return value
    raise UsageError(f"{flag} takes a text that is not empty, not {shown(value)}.")


def texts(flag: str, values: object) -> tuple[str, ...]:
    """Return all texts after a flag that may be repeated. An empty one is a legal thread id."""
    if values is None:
        return ()
    given = [values] if isinstance(values, str) else values
    if isinstance(given, Iterable):
        found = tuple(given)
        if all(isinstance(value, str) for value in found):
            return found
    raise UsageError(f"{flag} takes a thread id and may be repeated, not {shown(values)}.")


def word(flag: str, value: object, words: tuple[str, ...]) -> str:
    """Return the word after the flag, one of ``words``."""
    if isinstance(value, str) and value in words:
        return value
    raise UsageError(f"{flag} takes {' or '.join(words)}, not {shown(value)}.")


def switch(flag: str, value: object) -> bool:
    """Return whether the flag was given."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise UsageError(f"{flag} is given or not and takes no value, not {shown(value)}.")


def shown(value: object) -> str:
    """Return a value as it can stand in a sentence, whatever was typed."""
    if isinstance(value, str):
        return f"'{shortened(value).strip(chr(39))}'"
    return shortened(repr(value))
