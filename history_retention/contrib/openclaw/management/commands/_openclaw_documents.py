"""The JSON of ``openclaw_sessions``: names and nesting are a promise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .....facts import KeptThread, SkipReason
from .....stores.instants import instant_of_milliseconds
from ...archives.files import Archive
from ...archives.inventory import Holding
from ...budget import BudgetPlan
from ...budgeting import Budgeted
from ...cleanups import CleanedUp
from ...listing import ListedEntry, Listing
from ...maintenance import Decision
from ...operations import Deleted
from ...plans import Removal, Stay
from ...removals import Deletion
from ...resets import Reset

Document = dict[str, object]


def listing_document(database: str, age: str, version: int, listing: Listing) -> Document:
    """Describe every entry."""
    return {
        "database": database,
        "layout": "openclaw",
        "age": age,
        "schema_version": version,
        "sessions": [_listed(each) for each in listing.entries],
        "unneeded": {
            "session_ids": list(listing.unneeded_ids),
            "bytes": listing.unneeded.byte_count,
        },
    }


def deletion_document(key: str, deletion: Deletion | None, left: str | None) -> Document:
    """Describe what deleting one key did; ``left`` says why a key that is there was not."""
    document: Document = {
        "deleted": deletion is not None and deletion.deleted,
        "key": key,
        "archived": _archives(deletion.archived if deletion else ()),
        "removed": dict(deletion.removed) if deletion else {},
        "kept": _stays(deletion.kept if deletion else ()),
    }
    return document if left is None else {**document, "left": left}


def rehearsal_document(database: str, keys: Sequence[str], removals: Sequence[Removal]) -> Document:
    """Describe what a delete would do."""
    planned = {removal.key: removal for removal in removals}
    return {
        "database": database,
        "layout": "openclaw",
        "dry_run": True,
        "results": [
            {
                "key": key,
                "deletable": key in planned,
                "archived": list(planned[key].session_ids) if key in planned else [],
                "kept": _stays(planned[key].stays) if key in planned else [],
            }
            for key in keys
        ],
    }


def reset_document(reset: Reset) -> Document:
    """Describe a reset."""
    return {
        "reset": reset.reset,
        "key": reset.key,
        "session_id": reset.session_id,
        "archived": _archives(reset.archived),
        "removed": dict(reset.removed),
        "kept": _stays(reset.kept),
    }


def cleanup_document(
    database: str,
    decisions: Sequence[Decision],
    done: CleanedUp | None,
    freed: Budgeted | None = None,
    *,
    mode: str,
    budget: BudgetPlan,
) -> Document:
    """Describe the decision of every key, and with ``done`` what was carried out."""
    document: Document = {
        "database": database,
        "layout": "openclaw",
        "dry_run": done is None,
        "mode": mode,
        "sessions": [
            {
                "key": each.entry.key,
                "session_id": each.entry.current_id,
                "action": each.action.value,
                "reason": each.reason,
                "last_activity": moment(each.activity),
            }
            for each in decisions
        ],
    }
    document["disk_budget"] = {
        "total_bytes": budget.total_bytes,
        "max_bytes": budget.max_bytes,
        "high_water_bytes": budget.high_water_bytes,
        "over_budget": budget.is_over,
        "victims": [
            {"kind": each.tier.value, "name": each.name, "bytes": each.byte_count}
            for each in budget.victims
        ],
    }
    if done is None:
        return document
    if freed is not None:
        document["freed"] = {
            "archives": list(freed.archives),
            "sessions": _archives(freed.sessions),
            "entries": [each.key for each in (freed.deleted.deletions if freed.deleted else ())],
        }
    return {
        **document,
        "archived_in_place": list(done.archived),
        "changed_meanwhile": list(done.changed),
        "kept": [{"key": each.thread_id, "reason": each.reason.value} for each in done.kept],
        "deleted": [
            deletion_document(each.key, each, None)
            for each in (done.deleted.deletions if done.deleted else ())
        ],
        "pending_archives": list(done.deleted.pending if done.deleted else ()),
    }


def holding_document(holding: Holding, told: Document) -> Document:
    """Describe an archive; ``told`` is what verifying it found."""
    name = holding.name
    return {
        "session_id": name.stem,
        "topic": name.topic,
        "reason": name.reason,
        "archived_at": _iso(name.archived_at),
        "generation": name.generation,
        "path": str(holding.path) if holding.path else None,
        "bytes": holding.byte_count,
        "pending": holding.path is None,
        **told,
    }


def left_of(key: str, deleted: Deleted, kept: Sequence[KeptThread]) -> str | None:
    """Say why a planned or named key is still there; None when it is gone or never was."""
    for thread in kept:
        if thread.thread_id == key:
            return thread.reason.value
    for skipped in deleted.outcome.skipped:
        if skipped.thread_id == key and skipped.reason is not SkipReason.GONE:
            return skipped.reason.value
    return None


def moment(milliseconds: int | None) -> str | None:
    """Return the vendor's instant in ISO 8601; None when it tells none."""
    at = instant_of_milliseconds(milliseconds)
    return None if at is None else _iso(at)


def _listed(listed: ListedEntry) -> Document:
    entry = listed.entry
    return {
        "key": entry.key,
        "session_id": entry.current_id,
        "session_ids": list(listed.session_ids),
        "label": str(entry.told.get("label") or ""),
        "last_activity": moment(entry.updated_at),
        "event_count": listed.size.event_count,
        "bytes": listed.size.byte_count + entry.byte_count,
        "family_bytes": listed.family_size.byte_count,
        "archived_at": moment(entry.archived_at),
        "pinned_at": moment(entry.pinned_at),
        "protection": listed.protection.value if listed.protection else None,
        "is_shell": entry.is_shell,
    }


def _archives(archives: Sequence[Archive]) -> list[Document]:
    return [
        {
            "session_id": archive.session_id,
            "path": str(archive.path),
            "reason": archive.reason,
            "events": archive.event_count,
            "bytes": archive.byte_count,
        }
        for archive in archives
    ]


def _stays(stays: Sequence[Stay]) -> list[Document]:
    return [{"session_id": stay.session_id, "reason": stay.reason.value} for stay in stays]


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
