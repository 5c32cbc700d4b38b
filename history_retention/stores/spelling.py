"""How the id of a thread or of a conversation is spelled in a column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from .sqlite import encoded, sort_key

_DIGITS = re.compile(r"[0-9a-fA-F]{32}")
_CANONICAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def named_by(name: object) -> list[str]:
    """Return the ids of the threads that a column's value names.

    A UUID is 32 digits in some columns and 16 bytes in others, while the agent was given its
    text; were only one spelling to name the thread, it would look unresumable.
    """
    if isinstance(name, UUID):
        return [str(name), name.hex]
    if isinstance(name, bytes):
        text = name.decode("utf-8", "surrogateescape")
        return [text, str(UUID(bytes=name))] if len(name) == 16 else [text]
    text = str(name)
    return [text, str(UUID(text))] if _DIGITS.fullmatch(text) else [text]


def spelled_in_columns(thread_ids: Iterable[str]) -> tuple[list[str], list[bytes]]:
    """Return the texts and the bytes by which a column may name the threads."""
    texts, blobs = [], []
    for thread_id in thread_ids:
        texts.append(thread_id)
        blobs.append(sort_key(thread_id))
        if _CANONICAL.fullmatch(thread_id):
            texts.append(UUID(thread_id).hex)
            blobs.append(UUID(thread_id).bytes)
    return texts, blobs


def plain(key: Any) -> int | str:
    """Return a conversation's id as JSON can hold it, a whole number as one."""
    if isinstance(key, float) and key.is_integer() and abs(key) < 2**53:
        key = int(key)
    if isinstance(key, str):
        key = encoded(key)
    if isinstance(key, bytes):
        return key.hex()
    return key if isinstance(key, int) else str(key)


def legible(text: str) -> str:
    """Return the text with bytes that are none escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
