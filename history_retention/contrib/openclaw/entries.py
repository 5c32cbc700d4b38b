"""One session entry as it is stored, and what its key says of it.

An entry that cannot be read is a value like any other: it protects the session of its column and
stops nothing else. Instants are the vendor's: milliseconds since 1970, UTC.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from .ages import Age

EMPTY: Mapping[str, Any] = MappingProxyType({})

SYNTHETIC_PREFIXES = ("subagent:", "acp:", "cron:", "acp-bridge:", "hook:", "node:")
"""How the rest of a key begins that a program made for itself."""

FIELDS = (
    *("sessionId", "updatedAt", "previousSessionId", "usageFamilySessionIds"),
    *("compactionCheckpoints", "sessionStartedAt", "lastInteractionAt", "lastActivityAt"),
    *("status", "modelSelectionLocked", "chatType", "origin", "delivery", "spawnedBy"),
    *("parentSessionKey", "archiveReason", "label", "displayName"),
)
"""What retention asks of an entry."""

_AGENT_KEY = re.compile(r"agent:([^:]+):(.*)", re.DOTALL)
_HEARTBEAT = re.compile(r"heartbeat|.*:heartbeat(:.*)?", re.DOTALL)
_MODEL_RUN = re.compile(r"agent:[^:]+:explicit:model-run-[0-9a-f-]{36}")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row of the entries table.

    ``fields`` are what retention asks for of the JSON object, or None when the row holds none;
    ``digest`` and ``byte_count`` are those of the row's whole text, most of which is prompts and
    reports. ``pinned_at``, ``archived_at`` and ``valid`` are age B's columns; ``is_shell`` is its
    word for a node that only keeps windows.
    """

    key: str
    current_id: str
    updated_at: int
    digest: bytes = field(repr=False)
    byte_count: int
    fields: Mapping[str, Any] | None = field(repr=False)
    pinned_at: int | None = None
    archived_at: int | None = None
    valid: int = 1
    is_shell: bool = False

    @property
    def columns(self) -> tuple[str, int, int | None, int | None, int]:
        """Return what the row's other columns hold."""
        return self.current_id, self.updated_at, self.pinned_at, self.archived_at, self.valid

    @property
    def told(self) -> Mapping[str, Any]:
        """Return the fields, or none of them when they cannot be read."""
        return EMPTY if self.fields is None else self.fields

    def is_readable(self, age: Age) -> bool:
        """Tell whether the vendor reads this entry: B also wants id and time of the columns."""
        if self.fields is None or self.is_shell:
            return False
        if not age.has_nodes:
            return True
        return (
            self.fields.get("sessionId") == self.current_id
            and milliseconds_of(self.fields.get("updatedAt")) == self.updated_at
        )

    @cached_property
    def rest(self) -> str:
        """Return the key without ``agent:<id>:``; the whole key where that is missing."""
        matched = _AGENT_KEY.fullmatch(self.key)
        return matched[2] if matched else self.key

    @property
    def is_synthetic(self) -> bool:
        """Tell whether a program made the key for itself: a cron, a subagent, a heartbeat."""
        return (
            self.rest.startswith(SYNTHETIC_PREFIXES)
            or self.key.startswith(SYNTHETIC_PREFIXES)
            or _HEARTBEAT.fullmatch(self.rest) is not None
            or self.is_model_run
        )

    @property
    def is_subagent(self) -> bool:
        """Tell whether the key is that of a subagent."""
        return self.rest.startswith("subagent:") or self.key.startswith("subagent:")

    @property
    def is_model_run(self) -> bool:
        """Tell whether it is a model's probe, ``agent:<id>:explicit:model-run-<uuid>``."""
        return _MODEL_RUN.fullmatch(self.key) is not None

    def activity(self, age: Age) -> int | None:
        """Return when the session was last active, in milliseconds; None when nothing tells.

        A goes by ``updatedAt`` alone; B by the newest of four.
        """
        names = ["updatedAt"]
        if age.has_nodes:
            names += ["lastInteractionAt", "lastActivityAt", "sessionStartedAt"]
        if milliseconds_of(self.told.get("updatedAt")) is None:
            return None
        told = (milliseconds_of(self.told.get(name)) for name in names)
        return max(instant for instant in told if instant is not None)


def entry_of(
    key: str,
    current_id: str,
    entry_json: bytes,
    updated_at: int,
    *,
    pinned_at: int | None = None,
    archived_at: int | None = None,
    valid: int = 1,
) -> Entry:
    """Read a row; ``valid`` is B's column ``entry_valid``, -1 for a shell."""
    return Entry(
        key=key,
        current_id=current_id,
        updated_at=updated_at,
        digest=digest_of(entry_json),
        byte_count=len(entry_json),
        fields=_fields_of(entry_json),
        pinned_at=pinned_at,
        archived_at=archived_at,
        valid=valid,
        is_shell=valid == -1 or entry_json == b"{}",
    )


def digest_of(entry_json: bytes) -> bytes:
    """Return what tells two texts of an entry apart."""
    return blake2b(entry_json, digest_size=16).digest()


def text_of(fields: Mapping[str, Any]) -> bytes:
    """Return an entry as OpenClaw writes it: no blanks, keys in the order they have."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def milliseconds_of(value: object) -> int | None:
    """Return a finite number of milliseconds as a whole one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return math.floor(value)


def _refused(constant: str) -> object:
    """Refuse NaN and the infinities, which are no JSON to OpenClaw."""
    raise ValueError(constant)


def _fields_of(entry_json: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(entry_json, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {name: value[name] for name in FIELDS if name in value}
