"""What a plan and its outcome say: complete sentences, each of which can be grepped for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...facts import Ending, KeptThread, Plan, PlannedThread
from ...models import Sweep
from ...outcomes import Outcome, Removed
from ...policy import Bounds
from ...words import AWAITED, BECOME_OF_TRANSCRIPTS, KEPT_BECAUSE, SKIPPED_BECAUSE
from ._space_text import space_lines
from ._text import (
    cell,
    counted,
    hours,
    identifiers,
    in_english,
    instant,
    listed,
    printable,
    shortened,
    size,
    table,
)

FIRST_ROWS = 10
"""How many threads a plan shows unless ``-v 2`` asks for all."""

KEEP_WORDS = in_english(KEPT_BECAUSE)
AWAITING_WORDS = in_english(AWAITED)
TRANSCRIPT_WORDS = in_english(BECOME_OF_TRANSCRIPTS)
SKIP_WORDS = in_english(SKIPPED_BECAUSE)
ENDING_WORDS = {
    Ending.PARTIAL: "incomplete",
    Ending.INTERRUPTED: "interrupted",
    Ending.FAILED: "failed",
}


def plan_lines(plan: Plan, *, dry_run: bool, verbosity: int) -> list[str]:
    """Say what would go and what stays and why, with the rows that the verbosity asks for."""
    if not plan.threads:
        return [*_idle_lines(plan), *_kept_rows(plan.kept, _shown_rows(plan, verbosity))]
    will = "would" if dry_run else "will"
    shown_rows = _shown_rows(plan, verbosity)
    lines: list[str] = []
    if plan.bounds is not None:
        lines.append(
            f"{plan.database}: {will} prune {_threads(plan.prunable)} {criteria(plan.bounds)}"
        )
        if plan.prunable:
            lines += _span(plan)
            lines += _rows(plan.prunable, shown_rows)
    if plan.reclaimable or plan.bounds is None:
        lines.append(
            f"{plan.database}: {will} reclaim {_threads(plan.reclaimable)} that no one can "
            f"resume, still for {hours(plan.grace)}"
        )
        lines += _rows(plan.reclaimable, shown_rows)
    if plan.kept:
        lines.append(f"{plan.database}: {kept_words(plan.kept)}")
        lines += _kept_rows(plan.kept, shown_rows)
    if plan.left_by_limit:
        lines.append(f"{plan.database}: {left_words(plan)}")
    lines.append(
        "Dry run: nothing was removed."
        if dry_run
        else f"This cannot be undone. {TRANSCRIPT_WORDS[plan.transcripts]}"
    )
    return lines


def handed_over_lines(plan: Plan, sweep: Sweep) -> list[str]:
    """Say that workers will remove what was planned, and how to follow them."""
    return [
        f"{plan.database}: handed {_threads(plan.threads)} to the workers as sweep {sweep.pk}, in "
        f"{counted(sweep.batch_count, 'batch', 'batches')}; follow it with history_sweeps, end it "
        f"with history_sweeps --cancel {sweep.pk}."
    ]


def sweep_line(sweep: Sweep) -> str:
    """Say how far a sweep has come."""
    removed = counted(sweep.removed_threads, "thread")
    parts = [
        f"{sweep.store}: sweep {sweep.pk} ({sweep.kind}) of {instant(sweep.started_at)}: removed "
        f"{removed} of {sweep.planned_threads:,} ({size(sweep.removed_bytes)}), "
        f"{sweep.skipped_threads:,} skipped"
    ]
    if sweep.batch_count:
        left = sweep.batches.open().count()
        parts.append(f"{left:,} of {counted(sweep.batch_count, 'batch', 'batches')} left")
    if sweep.ending != Ending.RUNNING:
        parts.append(ENDING_WORDS.get(Ending(sweep.ending), sweep.ending))
    elif sweep.cancelled_at:
        parts.append("cancelled, ends after the current batch")
    else:
        parts.append("running")
    return "; ".join(parts) + "."


def outcome_lines(plan: Plan, outcome: Outcome) -> list[str]:
    """Say what was removed, kept and skipped, how it ended, and what the file takes now."""
    if not plan.threads:
        return [*_idle_lines(plan), *([outcome.vacuum.reason] if outcome.vacuum.ran else [])]
    verb = "reclaimed" if plan.bounds is None else "pruned"
    what = "that no one can resume" if plan.bounds is None else criteria(plan.bounds)
    if plan.bounds is not None and plan.reclaimable:
        what += ", unresumable ones along with them"
    parts = [f"{plan.database}: {verb} {removed_words(outcome.removed)} {what}"]
    if outcome.ending is not Ending.DONE:
        parts.append(
            f"{ENDING_WORDS.get(outcome.ending, outcome.ending.value)} after "
            f"{outcome.removed.thread_count:,} of {counted(plan.planned.thread_count, 'thread')}"
        )
    if plan.kept:
        parts.append(kept_words(plan.kept))
    if outcome.skipped:
        counts = Counter(SKIP_WORDS[thread.reason] for thread in outcome.skipped)
        parts.append(f"{len(outcome.skipped):,} skipped: {_counts(counts)}")
    if plan.left_by_limit:
        parts.append(left_words(plan))
    return ["; ".join(parts), *space_lines(plan.database, outcome)]


def criteria(bounds: Bounds) -> str:
    """Say the bounds as what a thread must be: ``idle for 30 days``."""
    parts = []
    if bounds.older_than_days is not None:
        parts.append(f"idle for {counted(bounds.older_than_days, 'day')}")
    if bounds.keep_last is not None:
        parts.append(f"beyond the {bounds.keep_last:,} most recently active")
    if bounds.everything:
        parts.append("of any age")
    if bounds.command is not None:
        parts.append(f"of command {printable(bounds.command)}")
    if bounds.project is not None:
        parts.append(f"of project {printable(bounds.project)}")
    if bounds.skip_unfinished:
        parts.append("finished")
    return listed(parts)


def kept_words(kept: Sequence[KeptThread]) -> str:
    """Say how many stay and why: ``3 kept: held``."""
    counts = Counter(KEEP_WORDS[thread.reason] for thread in kept)
    return f"{len(kept):,} kept: {_counts(counts)}"


def left_words(plan: Plan) -> str:
    """Say how many wait for the next run: ``12 threads left by --limit 5 for the next run``."""
    left = counted(plan.left_by_limit, "thread")
    return f"{left} left by --limit {plan.limit:,} for the next run"


def removed_words(removed: Removed) -> str:
    """Say what is gone: ``41 threads (1,204 rows, 96.3 MB)``."""
    rows = removed.checkpoint_count + removed.write_count
    return (
        f"{counted(removed.thread_count, 'thread')} "
        f"({counted(rows, 'row')}, {size(removed.byte_count)})"
    )


def _idle_lines(plan: Plan) -> list[str]:
    """Say that there is nothing to do, and what was kept."""
    if plan.bounds is None:
        line = (
            f"{plan.database}: nothing to reclaim: no unresumable thread has been still for "
            f"{hours(plan.grace)}"
        )
    else:
        line = f"{plan.database}: nothing to prune {criteria(plan.bounds)}"
    return [f"{line}; {kept_words(plan.kept)}" if plan.kept else line]


def _shown_rows(plan: Plan, verbosity: int) -> int:
    return {0: 0, 1: FIRST_ROWS}.get(verbosity, len(plan.threads) + len(plan.kept))


def _threads(threads: Sequence[PlannedThread]) -> str:
    return removed_words(
        Removed(
            thread_count=len(threads),
            checkpoint_count=sum(thread.checkpoint_count for thread in threads),
            write_count=sum(thread.write_count for thread in threads),
            byte_count=sum(thread.byte_count for thread in threads),
        )
    )


def _counts(counts: Counter[str]) -> str:
    """Say one reason plainly, several with their numbers."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{number:,} {reason}" for reason, number in counts.most_common())


def _span(plan: Plan) -> list[str]:
    recent = sum(thread.recently_active for thread in plan.prunable)
    instants = [thread.last_activity for thread in plan.prunable]
    return [
        f"{plan.database}: last active from {instant(min(instants))} to "
        f"{instant(max(instants))} UTC; {recent or 'none'} within the last {hours(plan.grace)}"
    ]


def _rows(threads: Sequence[PlannedThread], shown_rows: int) -> list[str]:
    """Show the first threads as a table, those active within the grace window marked."""
    first = threads[:shown_rows]
    if not first:
        return []
    columns = (
        "thread", "last activity", ">checkpoints", ">writes", ">size", ">turns",
        "conversations", "command", "project", "note",
    )  # fmt: skip
    rows = [
        (
            shortened(thread.thread_id),
            instant(thread.last_activity),
            f"{thread.checkpoint_count:,}",
            f"{thread.write_count:,}",
            size(thread.byte_count),
            f"{thread.turn_count:,}" if thread.conversation_ids else "",
            identifiers(thread.conversation_ids),
            cell(thread.command),
            cell(thread.project),
            _note(thread),
        )
        for thread in first
    ]
    return [f"  {line}" for line in table(columns, rows) + _more(len(threads) - len(first))]


def _note(thread: PlannedThread) -> str:
    recent = "recently active" if thread.recently_active else ""
    return ", ".join(filter(None, [recent, AWAITING_WORDS.get(thread.awaiting, "")]))


def _kept_rows(kept: Sequence[KeptThread], shown_rows: int) -> list[str]:
    first = kept[:shown_rows]
    if not first:
        return []
    rows = [(shortened(thread.thread_id), KEEP_WORDS[thread.reason]) for thread in first]
    lines = table(("thread", "kept because"), rows) + _more(len(kept) - len(first))
    return [f"  {line}" for line in lines]


def _more(number: int) -> list[str]:
    return [f"and {number:,} more; -v 2 shows all"] if number else []
