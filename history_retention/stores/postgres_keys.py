"""Looking texts up in a column of whatever type, by that type: else its index would be of no use.

A column cast to text has no index; one that is a UUID or a number compares with no text at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .postgres import PostgresDatabase

_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A column to look texts up in: ``condition`` is SQL with one parameter, a list.

    ``could_be`` tells which texts a row could hold; the others are not to be asked for.
    """

    condition: str
    could_be: Callable[[str], bool]

    def among(self, texts: Sequence[str]) -> list[str]:
        """Return the texts to ask for."""
        return [text for text in texts if self.could_be(text)]


def key_of(database: PostgresDatabase, table: str, column: str) -> Key:
    """Return how to look texts up in the column of a table of the schema."""
    found = database.rows(
        "SELECT format_type(a.atttypid, NULL) FROM pg_attribute AS a"
        " WHERE a.attrelid = to_regclass(%s) AND a.attname = %s",
        [database.name(table), column],
    )
    kind = found[0][0] if found else ""
    if kind == "uuid":
        return Key(condition=f"{column} = ANY(%s::uuid[])", could_be=_is_uuid)
    if kind in _BITS:
        most = 2 ** (_BITS[kind] - 1)
        return Key(
            condition=f"{column} = ANY(%s::{kind}[])",
            could_be=lambda text: bool(_WHOLE.fullmatch(text)) and -most <= int(text) < most,
        )
    if kind in ("text", "character varying"):
        return Key(condition=f"{column} = ANY(%s::text[])", could_be=_is_any)
    return Key(condition=f"{column}::text = ANY(%s::text[])", could_be=_is_any)


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _is_any(_text: str) -> bool:
    return True
