"""The one JSON object that each command prints: names and nesting are a promise."""

from __future__ import annotations

from datetime import UTC, datetime

from ...facts import Plan, PlannedThread, Space, Tally
from ...models import Sweep
from ...outcomes import Outcome, VacuumResult
from ...policy import Bounds
from ...readouts import Readout, ReadThread
from ...vacuuming import VacuumForecast

Document = dict[str, object]


def readout_document(readout: Readout) -> Document:
    """Describe what a measuring found."""
    return {
        "database": readout.database,
        "layout": readout.layout,
        "as_of": instant(readout.as_of),
        "file_bytes": readout.space.file_bytes,
        "wal_bytes": readout.space.wal_bytes,
        "free_bytes": readout.space.free_bytes,
        "checkpoint_bytes": readout.checkpoint_bytes,
        "checkpoint_count": readout.checkpoint_count,
        "write_count": readout.write_count,
        "thread_count": readout.thread_count,
        "conversation_count": readout.conversation_count,
        "turn_count": readout.turn_count,
        "unresumable": _tally(readout.unresumable),
        "reclaimable": _tally(readout.reclaimable),
        "largest_threads": [_read_thread(thread) for thread in readout.largest_threads],
        **_tables(readout.space),
    }


def prune_document(plan: Plan, *, dry_run: bool, outcome: Outcome | None) -> Document:
    """Describe a prune; without an outcome, what it would do."""
    return {
        **_heading(plan, dry_run),
        "prunable": [_planned_thread(thread) for thread in plan.prunable],
        **_kept(plan),
        "left_by_limit": {"thread_count": plan.left_by_limit},
        "reclaimable": _planned_tally(plan),
        **_result(outcome),
    }


def reclaim_document(plan: Plan, *, dry_run: bool, outcome: Outcome | None) -> Document:
    """Describe a reclaim; without an outcome, what it would do."""
    return {
        **_heading(plan, dry_run),
        **_kept(plan),
        "reclaimable": {
            **_planned_tally(plan),
            "thread_ids": [thread.thread_id for thread in plan.reclaimable],
        },
        **_result(outcome),
    }


def vacuum_document(
    *,
    database: str,
    as_of: datetime,
    dry_run: bool,
    way: str,
    forecast: VacuumForecast,
    after: Space | None,
    result: VacuumResult,
) -> Document:
    """Describe a vacuum; sizes after it are null when it did not begin."""
    before = forecast.space
    return {
        "database": database,
        "layout": forecast.layout,
        "as_of": instant(as_of),
        "dry_run": dry_run,
        "way": way,
        "file_bytes_before": before.file_bytes,
        "file_bytes_after": after and after.file_bytes,
        "wal_bytes_after": after and after.wal_bytes,
        "free_bytes_before": before.free_bytes,
        "free_bytes_after": after and after.free_bytes,
        "needed_bytes": result.needed_bytes,
        "forecast": {
            "blocked_seconds": round(forecast.blocked_seconds, 3),
            "bytes_per_second": round(forecast.bytes_per_second),
            "rate_source": forecast.rate_source.value,
            "is_worthwhile": not forecast.unworthy,
            "is_incremental": not forecast.steps_refusal,
        },
        "blocked_seconds": result.seconds and round(result.seconds, 3),
        "vacuum": {"ran": result.ran, "reason": result.reason, "wal_busy": result.wal_busy},
    }


def sweep_summary(sweep: Sweep) -> Document:
    """Describe a sweep that workers share, as far as it has come."""
    return {
        "id": sweep.pk,
        "database": sweep.store,
        "kind": sweep.kind,
        "ending": sweep.ending,
        "started_at": instant(sweep.started_at),
        "cancelled_at": instant(sweep.cancelled_at),
        "batch_count": sweep.batch_count,
        "open_batch_count": sweep.batches.open().count(),
        "planned": {"thread_count": sweep.planned_threads, "bytes": sweep.planned_bytes},
        "removed": {"thread_count": sweep.removed_threads, "bytes": sweep.removed_bytes},
        "skipped_count": sweep.skipped_threads,
        "error": sweep.error,
    }


def instant(at: datetime | None) -> str | None:
    """Return the instant as ISO 8601 in UTC with milliseconds."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _heading(plan: Plan, dry_run: bool) -> Document:
    return {
        "database": plan.database,
        "layout": plan.layout,
        "as_of": instant(plan.as_of),
        "dry_run": dry_run,
        "bounds": _bounds(plan.bounds),
    }


def _bounds(bounds: Bounds | None) -> Document:
    """Describe the bounds; a reclaim has none, and the same keys."""
    return {
        "older_than_days": bounds and bounds.older_than_days,
        "keep_last": bounds and bounds.keep_last,
        "all": bounds is not None and bounds.everything,
        "command": bounds and bounds.command,
        "project": bounds and bounds.project,
        **({"skip_unfinished": True} if bounds and bounds.skip_unfinished else {}),
    }


def _kept(plan: Plan) -> Document:
    return {
        "kept": [
            {"thread_id": thread.thread_id, "reason": thread.reason.value} for thread in plan.kept
        ]
    }


def _result(outcome: Outcome | None) -> Document:
    if outcome is None:
        return {}
    return {
        "removed": {
            "thread_count": outcome.removed.thread_count,
            "checkpoint_count": outcome.removed.checkpoint_count,
            "write_count": outcome.removed.write_count,
            "bytes": outcome.removed.byte_count,
        },
        "skipped": [
            {"thread_id": thread.thread_id, "reason": thread.reason.value}
            for thread in outcome.skipped
        ],
        "file_bytes_before": outcome.space_before.file_bytes,
        "file_bytes_after": outcome.space_after.file_bytes,
        "vacuum": {"ran": outcome.vacuum.ran, "reason": outcome.vacuum.reason},
    }


def _tables(space: Space) -> Document:
    """Describe a server's tables; a file has none."""
    if not space.tables:
        return {}
    return {
        "tables": [
            {
                "name": table.name,
                "bytes": table.total_bytes,
                "index_bytes": table.index_bytes,
                "live_rows": table.live_rows,
                "dead_rows": table.dead_rows,
            }
            for table in space.tables
        ]
    }


def _tally(tally: Tally) -> Document:
    return {"thread_count": tally.thread_count, "bytes": tally.byte_count}


def _planned_tally(plan: Plan) -> Document:
    return {
        "thread_count": len(plan.reclaimable),
        "bytes": sum(thread.byte_count for thread in plan.reclaimable),
    }


def _planned_thread(thread: PlannedThread) -> Document:
    return {
        "thread_id": thread.thread_id,
        "conversation_ids": list(thread.conversation_ids),
        "command": thread.command,
        "project": thread.project,
        "last_activity": instant(thread.last_activity),
        "turn_count": thread.turn_count,
        "checkpoint_count": thread.checkpoint_count,
        "write_count": thread.write_count,
        "bytes": thread.byte_count,
        "recently_active": thread.recently_active,
        **({"awaiting": thread.awaiting.value} if thread.awaiting else {}),
    }


def _read_thread(thread: ReadThread) -> Document:
    return {
        "thread_id": thread.thread_id,
        "bytes": thread.byte_count,
        "checkpoint_count": thread.checkpoint_count,
        "write_count": thread.write_count,
        "last_activity": instant(thread.last_activity),
        "state": thread.state.value,
        "conversation_ids": list(thread.conversation_ids),
        "command": thread.command,
        "project": thread.project,
    }
