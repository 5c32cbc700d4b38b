"""OpenClaw's settings of its maintenance, as flags of ``openclaw_sessions cleanup``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from .....management.commands import _flags
from ... import quantities
from ...maintenance import Rules

MODES = ("enforce", "warn")


def add_to(add: Callable[..., Any]) -> None:
    """Add the settings as flags."""
    add("--prune-after", metavar="TIME", help="Age of idle entries, as 30d; 0: any age stays.")
    add("--max-entries", metavar="N", help="How many entries may stay that are not archived.")
    add("--preserve-recent", metavar="TIME", help="Keep what was active in this time.")
    add(
        "--archive-dashboard-after",
        metavar="TIME",
        help="Age of idle dashboards; 0: they have no age of their own.",
    )
    add("--mode", default="enforce", metavar="enforce|warn", help="warn: change nothing.")
    add(
        "--max-disk-bytes",
        metavar="SIZE",
        help="What the store may take, as 2gb; above it, archives and idle sessions go. "
        "Without it OpenClaw's own budget is only told.",
    )
    add("--high-water-bytes", metavar="SIZE", help="How far down; by default 80 % of the most.")
    add("--active-key", metavar="KEY", help="The session in use, kept with its parents.")


def changed(rules: Rules, *, options: dict[str, Any]) -> Rules:
    """Return the vendor's defaults with what the flags say instead."""

    def time_of(name: str, default: timedelta | None) -> timedelta | None:
        given = _flags.text(f"--{name.replace('_', '-')}", options[name])
        return default if given is None else quantities.limit_of_time(given)

    def space_of(name: str, default: int | None) -> int | None:
        given = _flags.text(f"--{name.replace('_', '-')}", options[name])
        return default if given is None else quantities.limit_of_space(given)

    most = _flags.whole_number(
        "--max-entries", options["max_entries"], highest=_flags.HIGHEST_COUNT
    )
    return replace(
        rules,
        prune_after=time_of("prune_after", rules.prune_after),
        preserve_recent=time_of("preserve_recent", rules.preserve_recent),
        archive_dashboard_after=time_of("archive_dashboard_after", rules.archive_dashboard_after),
        max_entries=rules.max_entries if most is None else most,
        max_disk_bytes=space_of("max_disk_bytes", rules.max_disk_bytes),
        high_water_bytes=space_of("high_water_bytes", rules.high_water_bytes),
        enforces=_flags.word("--mode", options["mode"], MODES) == "enforce",
        active_key=_flags.text("--active-key", options["active_key"]),
    )
