"""Behind a proxy that hands the server's sessions out transaction by transaction (pgbouncer)."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dj_database_url
import psycopg
import pytest

from history_retention import services
from history_retention.exceptions import SweepRunning
from history_retention.facts import Ending
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store

from ..store_files import NOW, ThreadRows
from .stores import TABLES, add_threads, threads_in

PATIENCE_SECONDS = 30
PGBOUNCER = shutil.which("pgbouncer")
CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 20
logfile =
pidfile =
"""

pytestmark = [
    pytest.mark.django_db(databases=["default", "history"]),
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed; .ci/run installs it"),
]


@pytest.fixture
def proxied(database: str, point_at: Callable[..., str], tmp_path: Path) -> Iterator[str]:
    """Let "history" reach its database through three sessions that are shared by transaction."""
    parsed = dj_database_url.parse(database)
    user = str(parsed.get("USER") or "postgres")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    config = tmp_path / "pgbouncer.ini"
    options = parsed.get("OPTIONS", {})
    host = parsed.get("HOST") or options.get("host") or "127.0.0.1"
    config.write_text(
        CONFIG.format(host=host, user=user, port=parsed.get("PORT") or 5432, listen=listen)
        + (f"user = {_who_may_enter(host)}\n" if os.getuid() == 0 else "")
    )
    with subprocess.Popen([str(PGBOUNCER), "--quiet", str(config)]) as process:
        try:
            _wait_for(listen)
            point_at(f"postgresql://{user}@127.0.0.1:{listen}/{parsed['NAME']}")
            yield database
        finally:
            process.terminate()


def _who_may_enter(host: str) -> str:
    """Return a user who is not root, as pgbouncer insists, and reaches a socket in a folder."""
    return pwd.getpwuid(Path(host).stat().st_uid).pw_name if host.startswith("/") else "nobody"


def _wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        with closing(socket.socket()) as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < end, "pgbouncer did not start"
        time.sleep(0.02)


def test_everything_works_through_three_sessions_that_are_shared(
    proxied: str, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0)
    add_threads(proxied, [ThreadRows(thread_id=f"t{number:03}") for number in range(300)])
    add_threads(proxied, [ThreadRows(thread_id="new", age=NOW - NOW)])

    readout = services.measure("history", now=NOW)
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert readout.thread_count == 301
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, 300)
    assert outcome.vacuum.ran
    assert [threads_in(proxied, table) for table in TABLES] == [{"new"}] * 3


def test_a_sweep_keeps_others_off_and_leaves_nothing_behind_in_the_sessions(proxied: str) -> None:
    with (
        open_store("history") as one,
        one.only_one("sweep"),
        open_store("history") as other,
        pytest.raises(SweepRunning),
        other.only_one("sweep"),
    ):
        pytest.fail("two sweep at once")

    with psycopg.connect(proxied) as connection:
        locks = connection.execute("SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert locks.fetchone() == (0,)
    with open_store("history") as again, again.only_one("sweep"):
        assert again.space().file_bytes > 0
