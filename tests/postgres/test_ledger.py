"""A ledger in PostgreSQL: workers go on when its server ends their connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections, router

from history_retention import recording
from history_retention.exceptions import LedgerMissing

from ..sites import ENDING, PATIENCE_SECONDS, REMOVED, SKIPPED, Site
from ..store_files import ThreadRows, threads_in, write_store
from ..test_brokers import BROKERS
from .conftest import Create

BEGUN = "SELECT COALESCE(MAX(dealt_with), 0) FROM history_retention_batch"
ERRORS = "SELECT COUNT(*) FROM history_retention_batch WHERE error <> ''"
END_THE_OTHERS = (
    "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
THREADS = 120


def asked(url: str, sql: Any) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        (answer,) = connection.execute(sql).fetchone() or (None,)
        return answer


def until(url: str, sql: str, wanted: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not wanted(answer := asked(url, sql)):
        assert time.monotonic() < end, f"{sql} is still {answer!r}"
        time.sleep(0.02)
    return answer


def test_workers_whose_ledger_ends_their_connections_lose_neither_a_batch_nor_a_count(
    create: Create, tmp_path: Path
) -> None:
    ledger = create()
    rows = [ThreadRows(thread_id=f"t{number:03}") for number in range(THREADS)]
    store = write_store(tmp_path / "store.db", rows)
    broker = list(BROKERS.values())[-1]
    site = Site(tmp_path, f"sqlite:///{store}", broker, gap=0.02, ledger_url=ledger)
    try:
        site.start_worker()
        site.manage("history_reclaim", "--celery", "--no-input")
        until(ledger, BEGUN, lambda answer: answer >= 3)

        ended = asked(ledger, END_THE_OTHERS)

        ending = until(ledger, ENDING, lambda answer: answer != "running")
    finally:
        site.end_workers()

    assert ended > 0
    assert (ending, asked(ledger, ERRORS)) == ("done", 0)
    assert (asked(ledger, REMOVED), asked(ledger, SKIPPED)) == (THREADS, 0)
    assert threads_in(store) == set()


@pytest.mark.django_db(databases=["default", "history"])
def test_a_connection_that_the_ledgers_server_ended_is_made_anew_for_the_next_use(
    create: Create, point_at: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = point_at(create())
    monkeypatch.setattr(router, "db_for_write", lambda _model: "history")
    with connections["history"].cursor() as cursor:
        asked(url, END_THE_OTHERS)

        with pytest.raises(LedgerMissing, match="terminating connection"), recording.ledger():
            cursor.execute("SELECT 1")

    with recording.ledger(), connections["history"].cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
