"""Sizes, counts, instants and tables for people, the same under every locale.

English on purpose: the output of a command is read by ``grep`` as often as by a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from unicodedata import east_asian_width

from django.utils.functional import Promise
from django.utils.translation import override

from ... import words
from ...words import spelled_out

ReasonT = TypeVar("ReasonT")


def size(byte_count: int) -> str:
    """Return bytes as ``96.3 MB``; 1 KB is 1,024 bytes, as in the admin."""
    if byte_count < 1024:
        return counted(byte_count, "byte")
    amount = byte_count / 1024
    for unit in ("KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TB"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 thread`` or ``1,204 threads``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def instant(at: datetime | None) -> str:
    """Return the instant in UTC, to the minute."""
    return "unknown" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def hours(length: timedelta) -> str:
    """Return a length of time as ``24 hours`` or ``1.5 hours``."""
    amount = length / timedelta(hours=1)
    return "1 hour" if amount == 1 else f"{amount:,g} hours"


def listed(parts: Sequence[str]) -> str:
    """Join the parts as a person would say them."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def printable(text: str) -> str:
    """Spell out what would move a cursor, reverse a line or not encode; quote what hides."""
    shown = spelled_out(text)
    return f"'{shown}'" if shown != shown.strip() or not shown else shown


def shortened(text: str) -> str:
    """Return the printable text, its middle left out when it is too long for a table."""
    return words.shortened(printable(text), "...")


def in_english(texts: Mapping[ReasonT, str | Promise]) -> dict[ReasonT, str]:
    """Return translatable words as they stand in the source."""
    with override(None):
        return {reason: str(text) for reason, text in texts.items()}


def cell(text: str) -> str:
    """Return the text for a table, an empty one as nothing."""
    return shortened(text) if text else ""


def identifiers(values: Sequence[int | str]) -> str:
    """Return conversation ids for a table."""
    return cell(", ".join(map(str, values)))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the rows under their columns; a column whose name starts with ``>`` to the right.

    A column that is empty in every row is left out.
    """
    kept = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    lines = [[columns[index].lstrip(">") for index in kept]]
    lines += [[row[index] for index in kept] for row in rows]
    widths = [max(width(line[place]) for line in lines) for place in range(len(kept))]
    return [
        "  ".join(
            _padded(cell, widths[place], columns[kept[place]].startswith(">"))
            for place, cell in enumerate(line)
        ).rstrip()
        for line in lines
    ]


def width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _padded(cell: str, columns: int, to_the_right: bool) -> str:
    padding = " " * (columns - width(cell))
    return padding + cell if to_the_right else cell + padding
