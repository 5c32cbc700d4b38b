"""Planned threads as bytes, for the ledger to keep until a worker takes them.

JSON, compressed: a plan names most of its threads with ids that differ in a few characters. It
is ASCII within, so that an id of stray bytes survives a database that has no text for it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from .facts import Awaiting, PlannedThread

_NAMES = tuple(field.name for field in fields(PlannedThread))


def packed(threads: Sequence[PlannedThread]) -> bytes:
    """Return the threads as bytes."""
    rows = [[_plain(getattr(thread, name)) for name in _NAMES] for thread in threads]
    return zlib.compress(json.dumps([_NAMES, rows]).encode())


def unpacked(data: bytes) -> tuple[PlannedThread, ...]:
    """Return the threads that were packed."""
    names, rows = json.loads(zlib.decompress(data))
    return tuple(_thread(dict(zip(names, row, strict=True))) for row in rows)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value


def _thread(values: dict[str, Any]) -> PlannedThread:
    return PlannedThread(
        **values
        | {
            "conversation_ids": tuple(values["conversation_ids"]),
            "last_activity": datetime.fromisoformat(values["last_activity"]),
            "awaiting": Awaiting(values["awaiting"]),
            "fingerprint": bytes.fromhex(values["fingerprint"]),
        }
    )
