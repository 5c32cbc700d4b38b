"""What tables take in PostgreSQL, and making the space of removed rows usable again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..exceptions import HistoryRetentionError
from ..facts import Space, TableSpace
from ..outcomes import VacuumResult
from . import postgres_access
from .base import Lack, Store
from .postgres import PostgresDatabase


class PostgresStore(Store):
    """A store in tables of a PostgreSQL database."""

    vendor = "postgresql"
    vacuums_beside_writers = True

    _database: PostgresDatabase
    _table_names: tuple[str, ...]

    def lacking_indexes(self) -> Sequence[Lack]:
        """Return which tables have no index of thread ids alone."""
        return postgres_access.lacking_indexes(self._database, self._table_names)

    def lacking_rights(self) -> Sequence[Lack]:
        """Return on which tables this user lacks a right that a removal needs."""
        return postgres_access.lacking_rights(self._database, self._table_names)

    def space(self) -> Space:
        """Return the tables' sizes with indexes and TOAST, and how many rows are live and dead.

        What is free inside is told by no catalogue, so it counts 0.
        """
        rows = self._database.rows(
            "SELECT c.relname, pg_total_relation_size(c.oid), pg_indexes_size(c.oid),"
            " COALESCE(s.n_live_tup, 0), COALESCE(s.n_dead_tup, 0)"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place)"
            " JOIN pg_class AS c ON c.oid = to_regclass(t.name)"
            " LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid ORDER BY t.place",
            [[self._database.name(table) for table in self._table_names]],
        )
        tables = tuple(
            TableSpace(
                name=name, total_bytes=total, index_bytes=indexes, live_rows=live, dead_rows=dead
            )
            for name, total, indexes, live, dead in rows
        )
        return Space(
            file_bytes=sum(table.total_bytes for table in tables),
            wal_bytes=0,
            free_bytes=0,
            tables=tables,
        )

    def live_bytes(self) -> int:
        """Return what the tables take: nothing here rewrites them."""
        return self.space().file_bytes

    def vacuum_need(self) -> int:
        """Return 0: VACUUM works in place."""
        return 0

    def vacuum_refusal(self) -> str:
        """Say that the tables are not this user's to vacuum; the server would just skip them."""
        others = postgres_access.not_vacuumed(self._database, self._table_names)
        if not others:
            return ""
        return (
            f"{self.alias}: not vacuumed: this user may not vacuum {', '.join(others)}; their "
            "owner may, and autovacuum does it in its time."
        )

    def vacuum_rate(self) -> float | None:
        """Return None: no writer waits for it."""
        return None

    def vacuum(self) -> VacuumResult:
        """Run VACUUM (ANALYZE), beside all readers and writers."""
        started = time.monotonic()
        try:
            if refusal := self.vacuum_refusal():
                return VacuumResult(ran=False, reason=refusal, needed_bytes=0)
            with self._database.sentences():
                for table in self._table_names:
                    self._database.run(f"VACUUM (ANALYZE) {self._database.name(table)}")
        except HistoryRetentionError as error:
            return VacuumResult(ran=False, reason=str(error), needed_bytes=0)
        return VacuumResult(
            ran=True,
            reason=(
                f"{self.alias}: vacuumed: the space of removed rows will be used again. The file "
                "system gets none of it back; for that, run pg_repack, since VACUUM FULL blocks "
                "agents."
            ),
            needed_bytes=0,
            seconds=time.monotonic() - started,
        )
