"""What a store takes on disk, in words: a file and what is free inside it, or a server's tables."""

from __future__ import annotations

from ...facts import Space
from ...outcomes import Outcome
from ._text import counted, size


def space_line(database: str, space: Space) -> str:
    """Say what the store takes now."""
    if not space.tables:
        return (
            f"{database}: file {size(space.file_bytes)}, of which {size(space.free_bytes)} free "
            "inside"
        )
    each = ", ".join(f"{table.name} {size(table.total_bytes)}" for table in space.tables)
    return f"{database}: tables {size(space.file_bytes)}, indexes included ({each}); {_dead(space)}"


def space_lines(database: str, outcome: Outcome) -> list[str]:
    """Say what the store took and takes, and what became of the vacuum."""
    before, after = outcome.space_before, outcome.space_after
    what, left = (
        ("tables", _dead(after))
        if after.tables
        else ("file", f"of which {size(after.free_bytes)} free inside")
    )
    lines = [
        f"{database}: {what} {size(before.file_bytes)} before, {size(after.file_bytes)} after, "
        f"{left}"
    ]
    if outcome.vacuum.reason:
        lines.append(outcome.vacuum.reason)
    return lines


def dead_rows(space: Space) -> int:
    """Count the rows that were removed or replaced and still take space."""
    return sum(table.dead_rows for table in space.tables)


def _dead(space: Space) -> str:
    return f"{counted(dead_rows(space), 'dead row')} as far as the server knows"
