"""What OpenClaw's own maintenance would do with each entry: pure decisions, in its own words.

One pass goes in the vendor's order: probes of models, idle dashboards, age, then the cap. Age A
deletes; age B archives ordinary entries in place and deletes those that a program made for itself.
What is protected counts towards the cap, and alone may exceed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from .ages import Age
from .archives.blobs import milliseconds
from .entries import Entry
from .protection import protection

MODEL_RUN_AGE = timedelta(hours=24)
"""A probe of a model is of no use after this."""

GIGABYTE = 1024**3


class Action(StrEnum):
    """What happens to an entry."""

    KEEP = "keep"
    PRUNE_MODEL_RUN = "prune-model-run"
    ARCHIVE_DASHBOARD = "archive-dashboard"
    ARCHIVE_AGE = "archive-age"
    PRUNE_STALE = "prune-stale"
    ARCHIVE_CAP = "archive-cap"
    CAP_OVERFLOW = "cap-overflow"

    @property
    def archive_reason(self) -> str:
        """Return what the entry says of an archiving in place; empty for the other actions."""
        return _ARCHIVE_REASONS.get(self, "")

    @property
    def deletes(self) -> bool:
        """Tell whether the entry goes."""
        return self in (Action.PRUNE_MODEL_RUN, Action.PRUNE_STALE, Action.CAP_OVERFLOW)


_ARCHIVE_REASONS = {
    Action.ARCHIVE_DASHBOARD: "stale-dashboard",
    Action.ARCHIVE_AGE: "age-retention",
    Action.ARCHIVE_CAP: "active-session-cap",
}

RECENT = "recent"
UNREADABLE = "unreadable"
PRESERVED = "preserved_recent"
ACTIVE_CHAIN = "active_key_or_its_parent"
WARN_ONLY = "warn_only"
"""Why an entry stays, beside what ``protection`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The vendor's settings. None switches a rule off.

    ``enforces`` is False in mode ``warn``, which decides the same and changes nothing.
    ``active_key`` is the session that is in use, whose parents are protected along with it.
    """

    prune_after: timedelta | None = timedelta(days=30)
    max_entries: int | None
    archive_dashboard_after: timedelta | None
    preserve_recent: timedelta | None = None
    max_disk_bytes: int | None
    high_water_bytes: int | None = None
    enforces: bool = True
    active_key: str | None = None


def defaults_of(age: Age, version: int) -> Rules:
    """Return the vendor's defaults for a file of an age and schema."""
    if age.has_nodes:
        return Rules(
            max_entries=5_000 if version >= 21 else 500,
            archive_dashboard_after=timedelta(days=7),
            max_disk_bytes=10 * GIGABYTE,
        )
    return Rules(
        max_entries=500,
        archive_dashboard_after=None,
        max_disk_bytes=(10 if version >= 11 else 2) * GIGABYTE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What happens to one entry, or why it stays. ``activity`` is in milliseconds."""

    entry: Entry
    action: Action
    reason: str
    activity: int | None


def decide(entries: Iterable[Entry], age: Age, rules: Rules, now: datetime) -> list[Decision]:
    """Decide every entry, newest activity first."""
    told = sorted(
        (entry for entry in entries if not entry.is_shell),
        key=lambda entry: (-(entry.activity(age) or 0), entry.key),
    )
    standing = _Standing(told, age, rules, milliseconds(now))
    actions: dict[str, Action] = {}
    for step in (standing.model_runs, standing.dashboards, standing.stale, standing.overflow):
        actions |= step(actions)
    decisions = []
    for entry in told:
        action = actions.get(entry.key, Action.KEEP)
        reason = standing.why_kept(entry) if action is Action.KEEP else ""
        if action is not Action.KEEP and not rules.enforces:
            action, reason = Action.KEEP, WARN_ONLY
        decisions.append(
            Decision(entry=entry, action=action, reason=reason, activity=entry.activity(age))
        )
    return decisions


class _Standing:
    """The entries of one pass, and what protects each."""

    def __init__(self, entries: list[Entry], age: Age, rules: Rules, now: int) -> None:
        self._entries = entries
        self._age = age
        self._rules = rules
        self._now = now
        self._kept = {entry.key: reason for entry in entries if (reason := self._protection(entry))}
        for key in _chain({entry.key: entry for entry in entries}, rules.active_key):
            self._kept.setdefault(key, ACTIVE_CHAIN)

    def why_kept(self, entry: Entry) -> str:
        """Return what protects an entry, or that it is recent enough."""
        return self._kept.get(entry.key, RECENT)

    def model_runs(self, decided: Mapping[str, Action]) -> dict[str, Action]:
        """Choose probes of models, where there are more entries than the cap."""
        limit = self._rules.max_entries
        if limit is None or self._counted(decided) <= limit:
            return {}
        found = (entry for entry in self._free(decided) if entry.is_model_run)
        return {
            entry.key: Action.PRUNE_MODEL_RUN
            for entry in found
            if self._is_older(entry, MODEL_RUN_AGE)
        }

    def dashboards(self, decided: Mapping[str, Action]) -> dict[str, Action]:
        """Choose dashboards that were idle for long (B)."""
        after = self._rules.archive_dashboard_after
        if after is None or not self._age.has_nodes:
            return {}
        found = (entry for entry in self._free(decided) if entry.rest.startswith("dashboard:"))
        return {
            entry.key: Action.ARCHIVE_DASHBOARD for entry in found if self._is_older(entry, after)
        }

    def stale(self, decided: Mapping[str, Action]) -> dict[str, Action]:
        """Choose what is older than the age."""
        after = self._rules.prune_after
        if after is None:
            return {}
        return {
            entry.key: self._of(entry, Action.ARCHIVE_AGE, Action.PRUNE_STALE)
            for entry in self._free(decided)
            if self._is_older(entry, after)
        }

    def overflow(self, decided: Mapping[str, Action]) -> dict[str, Action]:
        """Choose the longest idle above the cap; of equals, those later in key order first."""
        limit = self._rules.max_entries
        if limit is None:
            return {}
        excess = self._counted(decided) - limit
        told = [(entry.activity(self._age), entry) for entry in self._free(decided)]
        known = [(activity, entry) for activity, entry in told if activity is not None]
        known.sort(key=lambda each: each[1].key, reverse=True)
        known.sort(key=lambda each: each[0])
        return {
            entry.key: self._of(entry, Action.ARCHIVE_CAP, Action.CAP_OVERFLOW)
            for _, entry in known[: max(excess, 0)]
        }

    def _counted(self, decided: Mapping[str, Action]) -> int:
        """Count what the cap counts: entries that stay and are not archived."""
        return sum(
            entry.key not in decided and entry.archived_at is None for entry in self._entries
        )

    def _free(self, decided: Mapping[str, Action]) -> Iterator[Entry]:
        for entry in self._entries:
            if entry.key not in decided and entry.key not in self._kept:
                yield entry

    def _of(self, entry: Entry, archives: Action, deletes: Action) -> Action:
        return archives if self._age.has_nodes and not entry.is_synthetic else deletes

    def _is_older(self, entry: Entry, than: timedelta) -> bool:
        activity = entry.activity(self._age)
        return activity is not None and self._now - activity > than / timedelta(milliseconds=1)

    def _protection(self, entry: Entry) -> str:
        if not entry.is_readable(self._age):
            return UNREADABLE
        found = protection(entry, self._age)
        if found is not None:
            return found.value
        recent = self._rules.preserve_recent
        if recent is not None and not entry.is_synthetic and not self._is_older(entry, recent):
            return PRESERVED
        return ""


def _chain(entries: Mapping[str, Entry], key: str | None) -> Iterator[str]:
    """Give a key and those that it was started from, as far as they are there."""
    seen: set[str] = set()
    while key is not None and key in entries and key not in seen:
        yield key
        seen.add(key)
        parent = entries[key].told.get("parentSessionKey")
        key = parent if isinstance(parent, str) else None
