"""Workers in processes of their own, behind real brokers: killed, cancelled, left without messages.

Redis and RabbitMQ are used where they run on this machine; a broker of plain files always is.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from .commands import PROJECT, environment
from .store_files import ThreadRows, threads_in, write_store

PATIENCE_SECONDS = 90
THREADS = [ThreadRows(thread_id=f"t{number:04}") for number in range(250)]
SETTINGS = """
from project.settings import *
HISTORY_RETENTION = {{**HISTORY_RETENTION, "BOX_SECONDS": 0, "GAP_SECONDS": {gap}}}
CELERY_BROKER_URL = {broker!r}
CELERY_BROKER_TRANSPORT_OPTIONS = {transport!r}
CELERY_TASK_DEFAULT_QUEUE = {queue!r}
"""


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


BROKERS = {"files": "filesystem://"}
if is_listening(6379):
    BROKERS["redis"] = "redis://127.0.0.1:6379/9"
if is_listening(5672):
    BROKERS["rabbitmq"] = "amqp://guest:guest@127.0.0.1:5672//"


class Site:
    """A project of its own: a store, a ledger, settings, and workers that are ended after it."""

    def __init__(self, folder: Path, broker: str, gap: float) -> None:
        self.store = write_store(folder / "store.db", THREADS)
        self.ledger = folder / "ledger.db"
        self._workers = ExitStack()
        files = {
            "data_folder_in": str(folder / "queue"),
            "data_folder_out": str(folder / "queue"),
            "control_folder": str(folder / "control"),
        }
        for name in ("queue", "control"):
            (folder / name).mkdir()
        (folder / "site_settings.py").write_text(
            SETTINGS.format(
                broker=broker,
                gap=gap,
                transport=files if broker.startswith("filesystem") else {},
                queue=f"history-test-{uuid4()}",
            )
        )
        self.environment = environment(self.store, self.ledger) | {
            "DJANGO_SETTINGS_MODULE": "site_settings",
            "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}",
            "PYTHONWARNINGS": "default",
        }
        self.manage("migrate", "--verbosity=0")

    def manage(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return done.stdout

    def start_worker(self) -> None:
        self._workers.enter_context(
            started(
                [sys.executable, "-m", "celery", "--app=project", "worker", "--concurrency=2",
                 "--loglevel=WARNING", "--without-gossip", "--without-mingle"],
                env=self.environment,
            )
        )  # fmt: skip

    def end_workers(self) -> None:
        self._workers.close()

    def asked(self, sql: str) -> Any:
        with closing(sqlite3.connect(self.ledger, timeout=30)) as connection:
            return connection.execute(sql).fetchone()[0]

    def until(self, sql: str, wanted: Callable[[Any], bool]) -> Any:
        """Ask the ledger until the answer is the one wanted, and return it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not wanted(answer := self.asked(sql)):
            assert time.monotonic() < end, f"{sql} is still {answer!r}"
            time.sleep(0.02)
        return answer


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a group of its own, and end the whole group afterwards."""
    with subprocess.Popen(command, cwd=PROJECT, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


ENDING = "SELECT ending FROM history_retention_sweep"
REMOVED = "SELECT removed_threads FROM history_retention_sweep"
SKIPPED = "SELECT skipped_threads FROM history_retention_sweep"
OWNER = (
    "SELECT COALESCE(MAX(owner), '') FROM history_retention_batch"
    " WHERE dealt_with BETWEEN 3 AND 150"
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites = []

    def set_up(broker: str, *, gap: float = 0.01) -> Site:
        sites.append(Site(tmp_path, broker, gap))
        return sites[-1]

    yield set_up
    for each in sites:
        each.end_workers()


@pytest.mark.parametrize("broker", BROKERS)
def test_a_killed_worker_loses_nothing_and_its_batch_is_taken_again(
    site: Callable[..., Site], broker: str
) -> None:
    shop = site(BROKERS[broker])
    shop.start_worker()
    shop.manage("history_reclaim", "--celery", "--no-input")

    owner = shop.until(OWNER, bool)
    os.kill(int(owner.partition(" ")[0]), signal.SIGKILL)
    ending = shop.until(ENDING, lambda answer: answer != "running")

    assert ending == "done"
    assert threads_in(shop.store) == set()
    removed, gone = shop.asked(REMOVED), shop.asked(SKIPPED)
    assert (removed + gone, gone) in {(250, 0), (250, 1)}


@pytest.mark.parametrize("broker", BROKERS)
def test_a_cancelled_sweep_ends_after_the_thread_it_is_at(
    site: Callable[..., Site], broker: str
) -> None:
    shop = site(BROKERS[broker])
    shop.start_worker()
    shop.manage("history_reclaim", "--celery", "--no-input")

    shop.until(OWNER, bool)
    shop.manage("history_sweeps", "--cancel=1")
    ending = shop.until(ENDING, lambda answer: answer != "running")

    left = len(threads_in(shop.store))
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
    assert threads_in(shop.store) == set()


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_listening(port):
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.02)
