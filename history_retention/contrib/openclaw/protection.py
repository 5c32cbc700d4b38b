"""Why OpenClaw's own maintenance leaves an entry alone, as a pure decision.

Age A protects by what the key and the chat are. Age B adds what a person or an agent said of the
entry: pinned, archived, at work; and its main session and direct conversations.
"""

from __future__ import annotations

import re
from enum import StrEnum

from .ages import Age
from .entries import Entry

MAIN = "main"


class Protection(StrEnum):
    """What protects an entry; the first that fits, in this order."""

    LOCKED = "model_selection_locked"
    RUNNING = "running"
    ARCHIVED = "archived"
    PINNED = "pinned"
    MAIN = "main_session"
    EXTERNAL = "external_delivery"
    CHANNEL = "group_channel_or_thread"
    DIRECT = "direct_conversation"


_CHANNEL = re.compile(
    r".*:thread:.*|telegram:(group|channel|direct|dm):.*:topic:.*|[^:]+:(group|channel):.*",
    re.DOTALL,
)
_DIRECT = re.compile(
    r"[^:]+:(direct|dm|group|channel):.+|[^:]+:[^:]+:(direct|dm):.+|direct:.+", re.DOTALL
)
_CHANNEL_CHATS = ("group", "channel", "thread")


def protection(entry: Entry, age: Age) -> Protection | None:
    """Return what protects the entry by the rules of an age, or None."""
    return _said_of(entry, age) or (None if entry.is_synthetic else _by_shape(entry, age))


def _said_of(entry: Entry, age: Age) -> Protection | None:
    if entry.told.get("modelSelectionLocked") is True:
        return Protection.LOCKED
    if not age.has_nodes:
        return None
    if entry.told.get("status") == "running":
        return Protection.RUNNING
    if entry.archived_at is not None:
        return Protection.ARCHIVED
    if entry.pinned_at is not None and _may_be_pinned(entry):
        return Protection.PINNED
    return None


def _by_shape(entry: Entry, age: Age) -> Protection | None:
    if age.has_nodes and (entry.rest == MAIN or entry.key == "global"):
        return Protection.MAIN
    delivery = entry.told.get("delivery")
    if age.has_nodes and isinstance(delivery, dict) and delivery.get("kind") == "external":
        return Protection.EXTERNAL
    if _CHANNEL.fullmatch(entry.rest) or _chat_type(entry) in _CHANNEL_CHATS:
        return Protection.CHANNEL
    if age.has_nodes and _DIRECT.fullmatch(entry.rest):
        return Protection.DIRECT
    return None


def _may_be_pinned(entry: Entry) -> bool:
    """Tell whether a pin counts: not one on what another session started."""
    parent = entry.told.get("parentSessionKey")
    is_child = parent is not None and not re.fullmatch(rf"agent:[^:]+:{MAIN}", str(parent))
    return not (entry.is_subagent or entry.told.get("spawnedBy") or is_child)


def _chat_type(entry: Entry) -> object:
    origin = entry.told.get("origin")
    told = origin.get("chatType") if isinstance(origin, dict) else None
    return entry.told.get("chatType") or told
