"""Which version of DeepSeek Harness's schema a file has; everything else is left alone.

Other programs use the same application id, or none, so the id and the number are not enough: the
columns have to be those of that version too.
"""

from __future__ import annotations

from ...exceptions import LayoutUnknown
from ...stores.base import Tables
from ...stores.sqlite import SQLiteFile

APPLICATION_ID = 0x44534850
"""``DSHP``, which files have had since version 10."""

_HEADER = ("id", "version", "created_at", "cwd", "parent_session", "seed_length")
_EVENT = ("session_id", "seq", "type", "time", "data", "source_event_seqs", "surface_op")
_LATER_HEADER = (
    *_HEADER,
    *("origin", "delegation_depth", "agent_preset", "incarnation", "revision"),
)
_STATE = ("singleton", "store_id")

COLUMNS = {
    4: {"sessions": _HEADER, "events": _EVENT},
    14: {"sessions": _LATER_HEADER, "events": _EVENT, "persistence_state": _STATE},
    15: {
        "sessions": _LATER_HEADER,
        "events": (*_EVENT, "ignorable"),
        "persistence_state": _STATE,
    },
    17: {
        "sessions": _LATER_HEADER,
        "events": (*_EVENT, "ignorable"),
        "persistence_state": _STATE,
    },
}
"""The tables of each known version, their columns in order."""


def looks_like_harness(tables: Tables) -> bool:
    """Tell by the tables alone whether a file could be of any version."""
    return set(_HEADER) <= set(tables.get("sessions", ())) and set(_EVENT) <= set(
        tables.get("events", ())
    )


def version_of(file: SQLiteFile, tables: Tables) -> int:
    """Return the version of a file; LayoutUnknown for one that is not wholly known here."""
    application_id = file.value("PRAGMA application_id")
    version = int(file.value("PRAGMA user_version"))
    expected = COLUMNS.get(version)
    wanted = 0 if version == 4 else APPLICATION_ID
    if expected is None or application_id != wanted:
        raise LayoutUnknown(
            f"{file.alias}: this file has a schema of version {version} and application id "
            f"{application_id}; of DeepSeek Harness the versions {_listed()} are known here. "
            "Nothing was listed and nothing was touched."
        )
    for table, columns in expected.items():
        if tuple(tables.get(table, ())) != columns:
            raise LayoutUnknown(
                f"{file.alias}: table {table} does not have the columns of DeepSeek Harness's "
                f"version {version}, so another program made it; nothing was listed and nothing "
                "was touched."
            )
    return version


def _listed() -> str:
    *some, last = map(str, COLUMNS)
    return f"{', '.join(some)} and {last}"
