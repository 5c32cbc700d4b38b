"""The vendor's own store: what goes is what the rules say, and its saver reads what stays."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from history_retention import services
from history_retention.exceptions import NoNamingTable
from history_retention.facts import Awaiting, Ending, Naming
from history_retention.models import Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger

from ..store_files import NOW
from ..vendor_reader import Reading, Serde, read_by
from .conftest import Create
from .stores import TABLES, restore, rows_of, threads_in

pytestmark = pytest.mark.django_db(databases=["default", "history"])

DUMP = "lg-postgres-inserts.sql.gz"
OLDER = {
    365: {"chat-400d"},
    100: {"subgraph-pending", "subgraph-resumed"},
    90: {"interrupt-pending", "subgraph-stateful"},
    30: {"errored", "forked", "interrupt-resumed", "large-state"},
}
"""The threads that become old enough with each bound, beside those of the longer ones."""

EXPECTED = {
    days: set().union(*(names for bound, names in OLDER.items() if bound >= days)) for days in OLDER
}


def read_by_the_vendor(url: str, thread_ids: set[str]) -> dict[str, Reading]:
    """Return what the vendor's saver tells of the threads."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        return read_by(PostgresSaver(connection, serde=Serde()), thread_ids)


def pruned(days: int) -> set[str]:
    plan = services.plan_prune("history", Bounds(older_than_days=days), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)
    assert (outcome.ending, outcome.skipped) == (Ending.DONE, ())
    return {thread.thread_id for thread in plan.prunable}


@pytest.mark.parametrize("days", [30, 90, 100, 365])
def test_a_prune_takes_what_is_older_and_leaves_the_rows_that_the_vendors_own_delete_leaves(
    fixture_database: Callable[[str], str], create: Create, days: int
) -> None:
    url = fixture_database(DUMP)
    theirs = create()
    restore(theirs, DUMP)

    gone = pruned(days)

    with PostgresSaver.from_conn_string(theirs) as saver:
        for thread_id in gone:
            saver.delete_thread(thread_id)
    assert gone == EXPECTED[days]
    assert len(gone) == {30: 9, 90: 5, 100: 3, 365: 1}[days]
    assert rows_of(url) == rows_of(theirs)


def test_what_is_kept_is_read_by_the_vendors_saver_as_before(
    fixture_database: Callable[[str], str],
) -> None:
    url = fixture_database(DUMP)
    kept = threads_in(url) - EXPECTED[30]
    before = read_by_the_vendor(url, kept)

    pruned(30)

    assert len(kept) == 21
    assert threads_in(url) == kept
    assert read_by_the_vendor(url, kept) == before


def test_a_second_run_finds_nothing(fixture_database: Callable[[str], str]) -> None:
    fixture_database(DUMP)

    assert len(pruned(90)) == 5
    assert pruned(90) == set()


def test_a_readout_adds_up_what_the_tables_hold_and_keeps_it(
    fixture_database: Callable[[str], str],
) -> None:
    url = fixture_database(DUMP)
    before = rows_of(url)

    readout = services.measure("history", now=NOW)

    assert (readout.layout, readout.naming) == ("langgraph_postgres", Naming.ABSENT)
    assert (readout.thread_count, readout.checkpoint_count, readout.write_count) == (30, 208, 380)
    assert readout.checkpoint_bytes == sum(Thread.objects.values_list("byte_count", flat=True))
    assert [table.name for table in readout.space.tables] == list(TABLES)
    assert readout.space.file_bytes == sum(table.total_bytes for table in readout.space.tables)
    assert readout.space.file_bytes > readout.checkpoint_bytes
    assert rows_of(url) == before


def test_a_plan_says_who_is_unfinished(fixture_database: Callable[[str], str]) -> None:
    fixture_database(DUMP)

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert {thread.thread_id: thread.awaiting for thread in plan.prunable if thread.awaiting} == {
        "interrupt-pending": Awaiting.INTERRUPT,
        "subgraph-pending": Awaiting.INTERRUPT,
        "errored": Awaiting.TASKS,
        "forked": Awaiting.TASKS,
    }


def test_without_anything_that_names_threads_reclaim_refuses(
    fixture_database: Callable[[str], str],
) -> None:
    url = fixture_database(DUMP)

    with pytest.raises(NoNamingTable, match="nothing here tells which threads"):
        services.plan_reclaim("history", now=NOW)

    assert len(threads_in(url)) == 30
