"""What the processes do that the tests start beside their own.

Each function runs in a process of its own, on a store and a ledger that are files, and talks to
the test through a pipe: it says where it is and waits until it may go on.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from history_retention import conf, services
from history_retention.exceptions import HistoryRetentionError
from history_retention.facts import Plan
from history_retention.models import Sweep
from history_retention.policy import Bounds

from ..commands import run
from ..store_files import NOW

PATIENCE_SECONDS = 60
"""How long a test waits for another process before it gives up."""

NOBODY = 65534

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([f"{__package__}.ready", __name__])


@dataclass(frozen=True, slots=True)
class Child:
    """A process that was started, and the test's end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def heard(self) -> Any:
        """Return the next thing that the process says."""
        assert self.pipe.poll(PATIENCE_SECONDS), "the other process is silent"
        return self.pipe.recv()

    def told(self, word: object = "go on") -> None:
        """Let the process go on."""
        self.pipe.send(word)

    def ended(self) -> int:
        """Wait for its end and return its exit status."""
        self.process.join(PATIENCE_SECONDS)
        assert self.process.exitcode is not None, "the other process does not end"
        return self.process.exitcode


@contextmanager
def started(work: Callable[..., None], *args: object, **options: object) -> Iterator[Child]:
    """Run the function in a process of its own; one that is left over is killed."""
    pipe, far_end = _context.Pipe()
    process = _context.Process(target=work, args=(far_end, *args), kwargs=options)
    process.start()
    far_end.close()
    try:
        yield Child(process, pipe)
    finally:
        process.kill()
        process.join()
        process.close()
        pipe.close()


def go_on(sweeper: Child) -> dict[str, Any]:
    """Let a stepwise sweep go on to its end and return what came of it."""
    sweeper.told()
    while not isinstance(heard := sweeper.heard(), dict):
        sweeper.told()
    return heard


def hold(pipe: Connection, path: Path, *statements: str) -> None:
    """Take the locks of the statements, say so, and keep them until told to let go."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        cursors = [connection.execute(statement) for statement in statements]
        for cursor in cursors:
            cursor.fetchone()
        pipe.send("held")
        pipe.recv()


def sweep(pipe: Connection, store: Path, ledger: Path, **options: Any) -> None:
    """Plan to prune everything, say so, wait, execute, and say what came of it.

    With ``stepwise`` it also stops after every commit. A ``temporary_folder`` of its own gives it
    a lock file of its own too.
    """
    if folder := options.pop("temporary_folder", None):
        tempfile.tempdir = str(folder)
    stepwise = options.pop("stepwise", False)
    vacuum = options.pop("vacuum", None)
    use_files(store, ledger, **options)

    def committed(verb: str, done: int, total: int) -> None:
        if stepwise and verb == "removing":
            pipe.send(done)
            pipe.recv()

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    pipe.send(plan.planned.thread_count)
    pipe.recv()
    pipe.send(_executed(plan, vacuum, committed))


def _executed(
    plan: Plan, vacuum: bool | None, committed: Callable[[str, int, int], None]
) -> dict[str, Any]:
    try:
        outcome = services.execute(
            plan, trigger=Sweep.Trigger.CODE, vacuum=vacuum, progress=committed
        )
    except HistoryRetentionError as error:
        return {"ending": type(error).__name__, "error": str(error)}
    return {
        "ending": outcome.ending.value,
        "error": outcome.error,
        "removed": outcome.removed.thread_count,
        "rows": outcome.removed.checkpoint_count + outcome.removed.write_count,
        "skipped": {thread.thread_id: thread.reason.value for thread in outcome.skipped},
        "vacuumed": outcome.vacuum.ran,
        "vacuum": outcome.vacuum.reason,
    }


def command(
    pipe: Connection,
    store: object,
    ledger: Path,
    *words: str,
    as_nobody: bool = False,
    largest_file: int | None = None,
    reports_memory: bool = False,
    **options: Any,
) -> None:
    """Run a command as another user, or where no file grows past a size, and say how it went."""
    use_files(store, ledger, **options)
    if as_nobody and os.geteuid() == 0:
        run("history_readout", "--no-save")  # what is imported later may be out of reach
        connections.close_all()
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    if largest_file is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, hard))
    before = _peak_bytes()
    pipe.send(run(*words))
    if reports_memory:
        pipe.send(_peak_bytes() - before)


def _peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def use_files(
    store: object,
    ledger: Path,
    *,
    timeout: float = 5,
    ledger_timeout: float = 20,
    engine: object = "django.db.backends.sqlite3",
    debug: bool = False,
    **retention: object,
) -> None:
    """Point this process at the files, with these options in HISTORY_RETENTION."""
    connections.close_all()
    files = {"history": (store, timeout), "default": (ledger, ledger_timeout)}
    for alias, (name, seconds) in files.items():
        connections.databases[alias].update({"NAME": name, "OPTIONS": {"timeout": seconds}})
        with suppress(AttributeError):  # never opened
            del connections[alias]
    connections.databases["history"]["ENGINE"] = engine
    settings.DEBUG = debug
    settings.HISTORY_RETENTION = {**settings.HISTORY_RETENTION, **retention}
    conf.get_settings.cache_clear()
