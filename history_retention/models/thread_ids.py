"""A vendor's thread id in a column of ours, be it of any text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Text = models.TextField[str, str]
else:
    _Text = models.TextField

ESCAPED = "json:"
"""What a stored id starts with when it is spelled as JSON."""


class ThreadIdField(_Text):
    """A thread id, whose NUL and stray bytes no database's text can hold, so they are spelled."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the id as it is stored."""
        return stored_id(value) if isinstance(value, str) else super().get_prep_value(value)

    def from_db_value(self, value: str | None, *_context: object) -> str | None:
        """Return the id that was stored."""
        return None if value is None else thread_id_of(value)


def stored_id(thread_id: str) -> str:
    """Return the id as a database's text can hold it; NUL and stray bytes are spelled."""
    plain = thread_id.encode("utf-8", "ignore").decode() == thread_id
    if plain and "\0" not in thread_id and not thread_id.startswith(ESCAPED):
        return thread_id
    return ESCAPED + json.dumps(thread_id)


def thread_id_of(text: str) -> str:
    """Return the id that ``stored_id`` spelled."""
    return str(json.loads(text.removeprefix(ESCAPED))) if text.startswith(ESCAPED) else text
