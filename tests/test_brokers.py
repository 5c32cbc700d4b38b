"""Workers in processes of their own, behind real brokers: killed, cancelled, left without messages.

Redis and RabbitMQ are used where they run on this machine; a broker of plain files always is.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from .sites import ENDING, REMOVED, SKIPPED, Site, is_listening, started, wait_for
from .store_files import ThreadRows, threads_in, write_store

pytestmark = pytest.mark.endurance

THREADS = [ThreadRows(thread_id=f"t{number:04}") for number in range(250)]
BROKERS = {"files": "filesystem://"}
if is_listening(6379):
    BROKERS["redis"] = "redis://127.0.0.1:6379/9"
if is_listening(5672):
    BROKERS["rabbitmq"] = "amqp://guest:guest@127.0.0.1:5672//"


OWNER = (
    "SELECT COALESCE(MAX(owner), '') FROM history_retention_batch"
    " WHERE dealt_with BETWEEN 3 AND 150"
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites = []

    def set_up(broker: str, *, gap: float = 0.01) -> Site:
        store = write_store(tmp_path / "store.db", THREADS)
        sites.append(Site(tmp_path, f"sqlite:///{store}", broker, gap=gap))
        return sites[-1]

    yield set_up
    for each in sites:
        each.end_workers()


@pytest.mark.parametrize("broker", BROKERS)
def test_a_killed_worker_loses_nothing_and_its_batch_is_taken_again(
    site: Callable[..., Site], tmp_path: Path, broker: str
) -> None:
    shop = site(BROKERS[broker])
    shop.start_worker()
    shop.manage("history_reclaim", "--celery", "--no-input")

    owner = shop.until(OWNER, bool)
    os.kill(int(owner.partition(" ")[0]), signal.SIGKILL)
    ending = shop.until(ENDING, lambda answer: answer != "running")

    assert ending == "done"
    assert threads_in(tmp_path / "store.db") == set()
    removed, gone = shop.asked(REMOVED), shop.asked(SKIPPED)
    assert (removed + gone, gone) in {(250, 0), (250, 1)}


@pytest.mark.parametrize("broker", BROKERS)
def test_a_cancelled_sweep_ends_after_the_thread_it_is_at(
    site: Callable[..., Site], tmp_path: Path, broker: str
) -> None:
    shop = site(BROKERS[broker])
    shop.start_worker()
    shop.manage("history_reclaim", "--celery", "--no-input")

    shop.until(OWNER, bool)
    shop.manage("history_sweeps", "--cancel=1")
    ending = shop.until(ENDING, lambda answer: answer != "running")

    left = len(threads_in(tmp_path / "store.db"))
    assert (ending, left) == ("interrupted", 250 - shop.asked(REMOVED))
    assert left > 0


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a Redis of its own")
def test_a_broker_that_forgot_its_messages_is_told_again(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    redis = ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1",
             "--dir", str(tmp_path), "--loglevel", "warning"]  # fmt: skip
    shop = site(f"redis://127.0.0.1:{port}/0", gap=0)

    with started(redis):
        wait_for(port)
        shop.manage("history_reclaim", "--celery", "--no-input")
    with started(redis):
        wait_for(port)
        shop.start_worker()
        assert "2 of 2 batches left" in shop.manage("history_sweeps")
        shop.manage("history_sweeps", "--resume=1")
        ending = shop.until(ENDING, lambda answer: answer != "running")
        shop.end_workers()

    assert (ending, shop.asked(REMOVED)) == ("done", 250)
    assert threads_in(tmp_path / "store.db") == set()
