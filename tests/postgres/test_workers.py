"""Workers that sweep one store in PostgreSQL side by side."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..sites import ENDING, REMOVED, SKIPPED, Site
from ..store_files import ThreadRows
from ..test_brokers import BROKERS
from .conftest import Create
from .stores import TABLES, add_threads, set_up, threads_in

MANY = 800
MOST_BYTES_A_SECOND = 50_000
"""So few that the workers are at it for seconds, since nothing else keeps them waiting there."""

AT_WORK = (
    "SELECT COUNT(*) FROM history_retention_batch WHERE owner <> '' AND dealt_with < thread_count"
)
AN_OWNER = "SELECT MIN(owner) FROM history_retention_batch WHERE owner <> ''"
BATCHES = "SELECT COUNT(*) FROM history_retention_batch"


@pytest.fixture
def store(create: Create) -> str:
    """Many threads idle for forty days; its URL."""
    url = create()
    set_up(url)
    add_threads(url, [ThreadRows(thread_id=f"t{number:03}") for number in range(MANY)])
    return url


@pytest.fixture
def site(store: str, tmp_path: Path) -> Iterator[Site]:
    """A project over the store, whose workers hear of their work from the best broker here."""
    broker = list(BROKERS.values())[-1]
    project = Site(tmp_path, store, broker, most=MOST_BYTES_A_SECOND)
    yield project
    project.end_workers()


def test_two_workers_sweep_side_by_side_and_one_that_is_killed_loses_nothing(
    site: Site, store: str
) -> None:
    site.start_worker()
    site.manage("history_prune", "--all", "--celery", "--no-input")

    site.until(AT_WORK, lambda answer: answer == 2)
    owner = site.asked(AN_OWNER)
    os.kill(int(owner.partition(" ")[0]), signal.SIGKILL)
    ending = site.until(ENDING, lambda answer: answer != "running")

    assert site.asked(BATCHES) == 4
    assert [threads_in(store, table) for table in TABLES] == [set()] * 3
    assert ending == "done"
    removed, gone = site.asked(REMOVED), site.asked(SKIPPED)
    assert removed + gone == MANY
    assert gone <= 100
