"""The two ages of OpenClaw's per-agent file, told by the tables that are there.

Age A (2026.7.2-beta.1 to beta.3) has ``session_entries`` and ``sessions``; age B (beta.4 and all
since) ``session_nodes`` and ``session_windows``. What holds the entries and what holds the
transcripts differ in name and in rules; everything else asks an ``Age``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...stores.base import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """What one age calls its tables, and which of its versions are known here.

    ``versions`` are the lowest and the highest ``user_version`` whose rules are known: a file with
    a newer one is listed and never changed.
    """

    name: str
    entries: str
    current_id: str
    windows: str
    versions: tuple[int, int]

    @property
    def has_nodes(self) -> bool:
        """Tell whether a window belongs to its entry by a foreign key, which is what B is."""
        return self is B


A = Age(
    name="A",
    entries="session_entries",
    current_id="session_id",
    windows="sessions",
    versions=(8, 11),
)
B = Age(
    name="B",
    entries="session_nodes",
    current_id="current_session_id",
    windows="session_windows",
    versions=(14, 23),
)

_NEEDED = {
    "A": {
        "session_entries": {"session_key", "session_id", "entry_json", "updated_at"},
        "sessions": {"session_id", "session_key", "updated_at"},
        "transcript_events": {"session_id", "seq", "event_json", "created_at"},
        "schema_meta": {"meta_key", "role"},
    },
    "B": {
        "session_nodes": {
            *("session_key", "current_session_id", "entry_json", "updated_at"),
            *("pinned_at", "archived_at"),
        },
        "session_windows": {"session_id", "session_key", "updated_at"},
        "transcript_events": {"session_id", "seq", "event_json", "created_at"},
        "transcript_rewrite_watermarks": {"session_id", "generation"},
        "schema_meta": {"meta_key", "role"},
    },
}


def age_of(tables: Tables) -> Age | None:
    """Return the age whose tables are there; None for a file of anything else, or of both."""
    found = [
        age
        for age in (A, B)
        if all(
            columns <= set(tables.get(table, ())) for table, columns in _NEEDED[age.name].items()
        )
    ]
    return found[0] if len(found) == 1 else None
