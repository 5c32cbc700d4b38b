"""A project in a folder of its own, with workers in processes of their own."""

from __future__ import annotations

import os
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

from .commands import PROJECT, environment

PATIENCE_SECONDS = 90
SETTINGS = """
from project.settings import *
HISTORY_RETENTION = {{
    **HISTORY_RETENTION, "BOX_SECONDS": 0, "GAP_SECONDS": {gap}, "MAX_BYTES_PER_SECOND": {most}
}}
CELERY_BROKER_URL = {broker!r}
CELERY_BROKER_TRANSPORT_OPTIONS = {transport!r}
CELERY_TASK_DEFAULT_QUEUE = {queue!r}
"""


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_listening(port):
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.02)


class Site:
    """A project of its own over a store of anyone's: a ledger, settings, and its workers."""

    def __init__(
        self,
        folder: Path,
        store_url: str,
        broker: str,
        *,
        gap: float = 0,
        most: int | None = None,
        ledger_url: str = "",
    ) -> None:
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
                most=most,
                transport=files if broker.startswith("filesystem") else {},
                queue=f"history-test-{uuid4()}",
            )
        )
        self.environment = environment(folder / "none.db", self.ledger) | {
            "HISTORY_DATABASE_URL": store_url,
            "DJANGO_SETTINGS_MODULE": "site_settings",
            "PYTHONPATH": f"{folder}{os.pathsep}{PROJECT}",
            "PYTHONWARNINGS": "default",
        }
        if ledger_url:
            self.environment["DATABASE_URL"] = ledger_url
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
                 f"--hostname={uuid4()}@%h",  # RabbitMQ lets no two workers have one name
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
