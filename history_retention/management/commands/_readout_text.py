"""What a readout says: what is stored, what of it no one can resume, what to run next."""

from __future__ import annotations

from collections.abc import Iterable

from ...facts import Naming
from ...readouts import Readout
from ._space_text import space_line
from ._text import cell, counted, identifiers, instant, shortened, size, table


def readout_lines(readout: Readout) -> list[str]:
    """Say what is stored, what of it no one can resume, and which threads are largest."""
    name = readout.database
    lines = [
        f"{name}: {counted(readout.thread_count, 'thread')} with "
        f"{size(readout.checkpoint_bytes)} of state "
        f"({counted(readout.checkpoint_count, 'checkpoint')}, "
        f"{counted(readout.write_count, 'write')}) in layout {readout.layout}, "
        f"as of {instant(readout.as_of)} UTC",
        space_line(name, readout.space)
        + ("" if readout.space.tables else f"; write-ahead log {size(readout.space.wal_bytes)}"),
        f"{name}: {counted(readout.conversation_count, 'conversation')} with "
        f"{counted(readout.turn_count, 'turn')}, transcripts {size(readout.transcript_bytes)}",
    ]
    if readout.naming is Naming.KNOWN:
        lines.append(
            f"{name}: {counted(readout.unresumable.thread_count, 'thread')} "
            f"({size(readout.unresumable.byte_count)}) unresumable, of which "
            f"{readout.reclaimable.thread_count:,} ({size(readout.reclaimable.byte_count)}) "
            "reclaimable now"
        )
    else:
        lines.append(f"{name}: unresumable threads cannot be told: nothing here names threads")
    if readout.largest_threads:
        lines += ["", *_largest(readout)]
    return [*lines, "", *_advice(readout)]


def _largest(readout: Readout) -> list[str]:
    columns = (
        "thread", ">size", ">checkpoints", ">writes", "last activity", "state",
        "conversations", "command", "project",
    )  # fmt: skip
    rows = [
        (
            shortened(thread.thread_id),
            size(thread.byte_count),
            f"{thread.checkpoint_count:,}",
            f"{thread.write_count:,}",
            instant(thread.last_activity),
            thread.state.value.replace("_", " "),
            identifiers(thread.conversation_ids),
            cell(thread.command),
            cell(thread.project),
        )
        for thread in readout.largest_threads
    ]
    return table(columns, rows)


def _advice(readout: Readout) -> Iterable[str]:
    """Say what to run next, the harmless things first."""
    where = f" --database {readout.database}"
    if readout.reclaimable.thread_count:
        yield (
            f"Next: history_reclaim{where} --dry-run lists what no one can resume "
            f"({size(readout.reclaimable.byte_count)})."
        )
    named = readout.thread_count > readout.unresumable.thread_count
    if named and readout.naming is not Naming.BROKEN:  # without its table no prune finds any
        yield (
            f"Next: history_prune{where} --older-than 30 --dry-run lists what has been idle "
            "for 30 days."
        )
    if readout.space.free_bytes:
        yield (
            f"Next: history_vacuum{where} --dry-run says what it takes to give "
            f"{size(readout.space.free_bytes)} back to the file system."
        )
