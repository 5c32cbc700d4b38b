"""What ``openclaw_sessions`` says: complete sentences, each of which can be grepped for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .....management.commands._text import cell, counted, instant, listed, printable, size, table
from .....stores.instants import instant_of_milliseconds
from ...archives.inventory import Holding
from ...budget import BudgetPlan, Tier
from ...budgeting import Budgeted
from ...cleanups import CleanedUp
from ...listing import Listing
from ...maintenance import Action, Decision
from ...plans import Removal
from ...removals import Deletion
from ...resets import Reset

STAY_WORDS = {
    "needed_by_another_entry": "needed by another entry",
    "in_cold_storage": "in cold storage",
    "transcripts_kept": "kept as asked",
}


def listing_lines(database: str, listing: Listing) -> list[str]:
    """Show every entry with its sizes and what protects it."""
    total = sum(each.size.byte_count + each.entry.byte_count for each in listing.entries)
    lines = [f"{database}: {counted(len(listing.entries), 'entry', 'entries')}, {size(total)}"]
    rows = [
        [
            cell(each.entry.key),
            instant(instant_of_milliseconds(each.entry.updated_at)),
            f"{len(each.session_ids):,}",
            f"{each.size.event_count:,}",
            size(each.size.byte_count + each.entry.byte_count),
            size(each.family_size.byte_count),
            each.protection.value.replace("_", " ") if each.protection else "",
        ]
        for each in listing.entries
    ]
    if rows:
        columns = ["key", "updated", ">sessions", ">events", ">size", ">family", "protected as"]
        lines += ["", *table(columns, rows)]
    if listing.unneeded_ids:
        lines.append(
            f"{database}: {counted(len(listing.unneeded_ids), 'session')} "
            f"({size(listing.unneeded.byte_count)}) that no entry needs; they are left alone."
        )
    return lines


def removal_lines(removals: Sequence[Removal], *, dry_run: bool) -> list[str]:
    """Say what a delete is about to archive, remove, hand over and leave."""
    will = "would" if dry_run else "will"
    lines = []
    for removal in removals:
        lines.append(
            f"{printable(removal.key)}: {will} be deleted; "
            f"{counted(len(removal.session_ids), 'session')} archived and removed"
            f"{', a shell of it stays' if removal.leaves_shell else ''}"
        )
        lines += [f"  archives {printable(session_id)}" for session_id in removal.session_ids]
        lines += [
            f"  keeps {printable(stay.session_id)}: {STAY_WORDS[stay.reason.value]}"
            for stay in removal.stays
        ]
    return lines


def deletion_lines(deletions: Sequence[Deletion], left: Sequence[tuple[str, str]]) -> list[str]:
    """Say what was deleted, and of every other key why it was not."""
    lines = []
    for deletion in deletions:
        rows = sum(deletion.removed.values())
        lines.append(
            f"{printable(deletion.key)}: deleted ({counted(rows, 'row')}); "
            f"{counted(len(deletion.archived), 'transcript')} archived"
        )
        lines += [f"  {printable(str(archive.path))}" for archive in deletion.archived]
        lines += [
            f"  kept {printable(stay.session_id)}: {STAY_WORDS[stay.reason.value]}"
            for stay in deletion.kept
        ]
    return lines + [f"{printable(key)}: not deleted: {why}" for key, why in left]


def reset_lines(reset: Reset) -> list[str]:
    """Say what a reset did."""
    if not reset.reset:
        return [f"{printable(reset.key)}: not reset: there is no such entry"]
    archived = counted(len(reset.archived), "transcript")
    return [
        f"{printable(reset.key)}: reset; it goes on with session {printable(reset.session_id)}; "
        f"{archived} archived",
        *(f"  {printable(str(archive.path))}" for archive in reset.archived),
    ]


def cleanup_lines(database: str, decisions: Sequence[Decision], *, dry_run: bool) -> list[str]:
    """Show the decision of every key, and how many there are of each."""
    actions = Counter(each.action for each in decisions)
    will = "would" if dry_run else "will"
    deleted = sum(count for action, count in actions.items() if action.deletes)
    in_place = sum(count for action, count in actions.items() if action.archive_reason)
    rows = [
        [
            each.action.value,
            cell(each.entry.key),
            instant(instant_of_milliseconds(each.activity)),
            each.reason.replace("_", " "),
        ]
        for each in decisions
    ]
    return [
        f"{database}: {will} delete {counted(deleted, 'entry', 'entries')} with their "
        f"transcripts archived, archive {in_place:,} in place, and keep "
        f"{actions[Action.KEEP]:,}",
        *(table(["action", "key", "last activity", "kept because"], rows) if rows else []),
    ]


def budget_lines(database: str, budget: BudgetPlan, enforces: bool) -> list[str]:
    """Say what the store takes of its budget, and what would go to keep it; nothing within it."""
    if not budget.is_over or budget.max_bytes is None:
        return []
    counts = Counter(each.tier for each in budget.victims)
    takes = f"{database}: takes {size(budget.total_bytes)}, more than {size(budget.max_bytes)}"
    if not enforces:
        return [f"{takes}; nothing goes for that without --max-disk-bytes."]
    went = [
        counted(counts[Tier.ARCHIVE], "archive"),
        counted(counts[Tier.SESSION], "session") + " that no entry needs",
        counted(counts[Tier.ENTRY], "entry", "entries"),
    ]
    return [f"{takes}: {listed(went)} go, {size(sum(v.byte_count for v in budget.victims))}"]


def cleaned_lines(database: str, done: CleanedUp, freed: Budgeted | None = None) -> list[str]:
    """Say what a cleanup did."""
    deletions = done.deleted.deletions if done.deleted else ()
    parts = [
        f"{database}: deleted {counted(len(deletions), 'entry', 'entries')}, archived "
        f"{len(done.archived):,} in place"
    ]
    if done.changed:
        parts.append(f"{len(done.changed):,} changed meanwhile and left as they are")
    if done.kept:
        parts.append(f"{len(done.kept):,} held or in use")
    if freed is not None:
        deletions = (*deletions, *(freed.deleted.deletions if freed.deleted else ()))
        parts.append(
            f"for the budget, {counted(len(freed.archives), 'archive')} went, "
            f"{counted(len(freed.sessions), 'session')} archived and "
            f"{counted(len(freed.deleted.deletions) if freed.deleted else 0, 'entry', 'entries')} "
            "deleted"
        )
    return ["; ".join(parts), *deletion_lines(deletions, ())]


def holding_lines(database: str, holdings: Sequence[tuple[Holding, str]]) -> list[str]:
    """Show archives, each with what verifying it found."""
    total = sum(holding.byte_count for holding, _ in holdings)
    rows = [
        [
            cell(holding.name.stem),
            cell(holding.name.topic),
            holding.name.reason,
            f"{holding.name.archived_at:%Y-%m-%d %H:%M}",
            size(holding.byte_count),
            _place(holding.path),
            told,
        ]
        for holding, told in holdings
    ]
    lines = [f"{database}: {counted(len(holdings), 'archive')}, {size(total)}"]
    if rows:
        columns = ["session", "topic", "reason", "archived", ">size", "file", "verified"]
        lines += ["", *table(columns, rows)]
    return lines


def _place(path: Path | None) -> str:
    return "pending: in the database" if path is None else printable(path.name)
