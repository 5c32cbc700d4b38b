"""What one reading costs a process of its own: bytes read or written, and memory.

Run as ``python -m tests.stores.costs NAME``, with the store and the ledger in the environment;
prints one JSON object. The kernel's own counts are exact, so a test can hold them to a number.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections import deque
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import django

PROCESS = Path("/proc/self")


def bytes_read() -> int:
    return _counter("io", "rchar")


def bytes_written() -> int:
    return _counter("io", "wchar")


def peak_memory() -> int:
    """Return the most bytes of memory used since ``forget_peak``."""
    return _counter("status", "VmHWM") * 1024


def forget_peak() -> None:
    (PROCESS / "clear_refs").write_text("5")


def _counter(file: str, name: str) -> int:
    for line in (PROCESS / file).read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def pages() -> dict[str, int]:
    """Read the store in both ways, in bytes read from its file."""
    from history_retention.policy import Bounds, Rules, choose
    from history_retention.services import silent
    from history_retention.stores import open_store

    from ..store_files import NOW

    bounds = Bounds(older_than_days=30, keep_last=100)
    costs = {}
    with open_store("history") as store:
        before = bytes_read()
        deque(store.measured_threads(silent), maxlen=0)
        costs["measuring"] = bytes_read() - before
    with open_store("history") as store:
        rules = Rules(
            now=NOW, grace=timedelta(hours=24), naming=store.naming, bounds=bounds, protected={}
        )
        before = bytes_read()
        choose(store.indexed_threads(silent), rules)
        costs["choosing"] = bytes_read() - before
    return costs


def recalling() -> dict[str, int]:
    """Measure twice, and the second time in bytes read; the ledger should lie in memory."""
    from django.core.management import call_command

    from history_retention import services
    from history_retention.remembering import Memory
    from history_retention.stores import open_store

    from ..store_files import NOW

    call_command("migrate", verbosity=0)
    services.measure("history", now=NOW)
    memory = Memory("history")
    with open_store("history") as store:
        before = bytes_read()
        again = store.remeasured_threads(services.silent, memory.marks(), memory)
        recalled = sum(1 for _ in again or ())
        return {"read": bytes_read() - before, "recalled": recalled}


def removal() -> dict[str, int]:
    """Reclaim in one box without a vacuum, in bytes written, those of the ledger included."""
    from django.core.management import call_command
    from django.test import override_settings

    from history_retention import services

    from ..store_files import NOW

    call_command("migrate", verbosity=0)
    with override_settings(HISTORY_RETENTION={"STORES": {"history": {}}, "BOX_SECONDS": 60}):
        plan = services.plan_reclaim("history", now=NOW)
        before = bytes_written()
        outcome = services.execute(plan, trigger=services.Trigger.CODE, vacuum=False)
    written = bytes_written() - before
    return {"written": written, "removed": outcome.removed.thread_count}


def plain_removal() -> dict[str, int]:
    """Delete the same threads in one transaction, as a script that knows their ids would."""
    path = os.environ["HISTORY_DATABASE_URL"].removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        named = "SELECT thread_id FROM conversations"
        before = bytes_written()
        with connection:
            for table in ("checkpoint_writes", "checkpoints"):
                connection.execute(f"DELETE FROM {table} WHERE thread_id NOT IN ({named})")
        return {"written": bytes_written() - before}


def memory() -> dict[str, int]:
    """Measure, save, measure again and plan, in bytes of memory that each adds at its peak."""
    from django.core.management import call_command

    from history_retention import services
    from history_retention.policy import Bounds

    from ..store_files import NOW

    call_command("migrate", verbosity=0)
    services.vacuum_forecast("history")
    forget_peak()
    before = peak_memory()
    services.measure("history", now=NOW, save=False)
    measuring = peak_memory() - before
    forget_peak()
    before = peak_memory()
    services.measure("history", now=NOW)
    services.measure("history", now=NOW)
    saving = peak_memory() - before
    forget_peak()
    before = peak_memory()
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    planning = peak_memory() - before
    return {
        "measuring": measuring,
        "saving": saving,
        "planning": planning,
        "planned": len(plan.threads),
    }


if __name__ == "__main__":
    django.setup()
    work = {work.__name__: work for work in (pages, recalling, removal, plain_removal, memory)}[
        sys.argv[1]
    ]
    sys.stdout.write(json.dumps(work()))
