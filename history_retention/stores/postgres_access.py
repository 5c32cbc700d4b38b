"""What a PostgreSQL server lacks for a sweep: indexes of thread ids, and rights of this user.

Both are the owner's to give: nothing here builds an index or grants a right, it says how.
"""

from __future__ import annotations

from collections.abc import Sequence

from .base import Lack
from .postgres import PostgresDatabase

INDEX_NAMES = {
    "checkpoints": "checkpoints_thread_id_idx",
    "checkpoint_writes": "checkpoint_writes_thread_id_idx",
    "checkpoint_blobs": "checkpoint_blobs_thread_id_idx",
}
"""The indexes that the savers build since their migrations 6 to 8, by their tables."""

RIGHTS = ("SELECT", "DELETE", "UPDATE")
NEEDED = {"checkpoints": RIGHTS, "checkpoint_writes": RIGHTS, "checkpoint_blobs": RIGHTS[:2]}
"""What a removal needs on its tables; UPDATE is what locking a row takes, and blobs are not."""

_FIRST_COLUMNS = (
    "SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a"
    " ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
    " WHERE i.indrelid = to_regclass(t.name) AND a.attname = 'thread_id'"
    " AND i.indisvalid AND i.indpred IS NULL"
)


def lacking_indexes(database: PostgresDatabase, tables: Sequence[str]) -> list[Lack]:
    """Return the tables without an index of thread ids alone, with the statement that builds it."""
    names = [database.name(table) for table in tables]
    rows = database.rows(
        f"SELECT EXISTS ({_FIRST_COLUMNS} AND i.indnkeyatts = 1), EXISTS ({_FIRST_COLUMNS})"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place) ORDER BY t.place",
        [names],
    )
    return [
        Lack(
            sentence=(
                f"{database.alias}: {table} has no index of thread_id alone, as newer savers "
                f"build it; a removal {_in_spite(has_key)}. The table is its agent's: no index is "
                "ever built from here."
            ),
            remedy=f"CREATE INDEX CONCURRENTLY {INDEX_NAMES[table]} ON {name} (thread_id);",
        )
        for table, name, (has_index, has_key) in zip(tables, names, rows, strict=True)
        if not has_index
    ]


def lacking_rights(database: PostgresDatabase, tables: Sequence[str]) -> list[Lack]:
    """Return the tables on which this user lacks a right that a removal needs."""
    names = [database.name(table) for table in tables]
    rights = ", ".join(
        f"has_table_privilege(to_regclass(t.name)::oid, '{each}')" for each in RIGHTS
    )
    rows = database.rows(
        f"SELECT quote_ident(current_user), {rights}"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place) ORDER BY t.place",
        [names],
    )
    lacks = []
    for table, name, (user, *held) in zip(tables, names, rows, strict=True):
        lacking = [
            right
            for right, has in zip(RIGHTS, held, strict=True)
            if not has and right in NEEDED[table]
        ]
        if lacking:
            done = "read" if "SELECT" in lacking else "removed"
            sentence = f"user {user} lacks {_and(lacking)} on {table}, so nothing can be {done}."
            lacks.append(
                Lack(
                    sentence=f"{database.alias}: {sentence}",
                    remedy=f"GRANT {', '.join(NEEDED[table])} ON {name} TO {user};",
                )
            )
    return lacks


def not_vacuumed(database: PostgresDatabase, tables: Sequence[str]) -> list[str]:
    """Return the tables that this user may not vacuum: the server skips those with a warning.

    That is for their owner and the database's, and since version 17 also for a right of its own.
    """
    names = [database.name(table) for table in tables]
    rows = database.rows(
        "SELECT pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE')"
        " OR CASE WHEN current_setting('server_version_num')::int >= 170000"
        " THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place)"
        " JOIN pg_class AS c ON c.oid = to_regclass(t.name)"
        " JOIN pg_database AS d ON d.datname = current_database() ORDER BY t.place",
        [names],
    )
    return [table for table, (may,) in zip(tables, rows, strict=True) if not may]


def _in_spite(has_key: bool) -> str:
    if has_key:
        return "finds the rows by the primary key, which is larger"
    return "reads the whole table for each batch"


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
