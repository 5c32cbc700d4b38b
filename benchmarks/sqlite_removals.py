"""Removing from a SQLite store: what it writes and how long it takes beside plainer ways."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.db import models
from django.db.models.signals import post_delete
from langgraph.checkpoint.sqlite import SqliteSaver

from history_retention import services
from history_retention.conf import get_settings
from history_retention.facts import Plan
from history_retention.services import Trigger
from tests.stores.costs import bytes_written

from . import vendors_way
from .comparisons import Comparison, Goal
from .contests import medians
from .stage import ALIAS, Stage, paced
from .stores import NOW

ONE_BOX_SECONDS = 3_600.0
IDS_A_DELETE = 500


class Checkpoint(models.Model):
    """The vendor's table as a project would declare it that deletes through the ORM."""

    pk = models.CompositePrimaryKey("thread_id", "checkpoint_ns", "checkpoint_id")
    thread_id = models.TextField()
    checkpoint_ns = models.TextField()
    checkpoint_id = models.TextField()
    checkpoint = models.BinaryField()
    metadata = models.BinaryField()

    class Meta:
        app_label = "benchmarks"
        managed = False
        db_table = "checkpoints"

    def __str__(self) -> str:
        return self.checkpoint_id


class CheckpointWrite(models.Model):
    """The other table, likewise."""

    pk = models.CompositePrimaryKey("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
    thread_id = models.TextField()
    checkpoint_ns = models.TextField()
    checkpoint_id = models.TextField()
    task_id = models.TextField()
    idx = models.BigIntegerField()
    value = models.BinaryField()

    class Meta:
        app_label = "benchmarks"
        managed = False
        db_table = "checkpoint_writes"

    def __str__(self) -> str:
        return self.checkpoint_id


def executed(plan: Plan) -> None:
    """Remove what the plan lists."""
    outcome = services.execute(plan, trigger=Trigger.CODE, vacuum=False)
    if outcome.removed.thread_count != len(plan.threads):
        raise RuntimeError(f"a reclaim removed {outcome.removed} of {len(plan.threads)} threads")


def reclaimed(_path: Path) -> None:
    """Plan a reclaim and execute it."""
    executed(services.plan_reclaim(ALIAS, now=NOW))


def written_bytes(stage: Stage) -> Iterator[Comparison]:
    """Count what removing the unnamed threads writes, exactly, the ledger's rows included."""

    def plain(path: Path, plan: Plan) -> None:
        with vendors_way.opened(path) as connection:
            vendors_way.remove(connection, [thread.thread_id for thread in plan.threads])

    def counted(work: Callable[[Path, Plan], object]) -> int:
        with stage.copied() as copy:
            plan = services.plan_reclaim(ALIAS, now=NOW)
            before = bytes_written()
            work(copy, plan)
            return bytes_written() - before

    against = counted(plain)
    for name, box in (
        ("", get_settings().box_seconds),
        (", one box", ONE_BOX_SECONDS),
    ):
        with paced(box_seconds=box, gap_seconds=0):
            ours = counted(lambda _path, plan: executed(plan))
        yield Comparison(
            name=f"bytes written by deleting 30 %{name}",
            unit="bytes",
            ours=ours,
            against="one plain transaction, secure_delete off",
            against_value=against,
            goal=Goal(at_most=1.2),
        )


def reclaims(stage: Stage) -> Iterator[Comparison]:
    """Time whole reclaims: as the settings are, without gaps, as one box, and the vendor's."""
    ours = get_settings()
    paces = {
        "settings": (ours.box_seconds, ours.gap_seconds),
        "no gap": (ours.box_seconds, 0.0),
        "one box": (ONE_BOX_SECONDS, 0.0),
    }

    def at_pace(name: str) -> Callable[[Path], None]:
        def work(path: Path) -> None:
            with paced(box_seconds=paces[name][0], gap_seconds=paces[name][1]):
                reclaimed(path)

        return work

    ways: dict[str, Callable[[Path], object]] = {name: at_pace(name) for name in paces}
    ways["vendor"] = vendors_way.reclaim
    seconds = medians(ways, lambda _name: stage.copied(), stage.rounds)
    for name, way, goal in (
        ("whole reclaim, no gap between boxes", "no gap", 1.4),
        ("whole reclaim, as one box", "one box", 1.05),
        ("whole reclaim, as the settings are", "settings", None),
    ):
        yield Comparison(
            name=name,
            ours=seconds[way],
            against="the vendor's way in Python, one transaction",
            against_value=seconds["vendor"],
            goal=Goal(at_most=goal) if goal else None,
        )


def saver_loop(stage: Stage) -> Iterator[Comparison]:
    """Time the removal of a plan's threads beside LangGraph's own saver, which takes one a time.

    In WAL mode, which the saver sets, and over the same rows in a table of the saver's name.
    """

    @contextmanager
    def prepared(name: str) -> Iterator[tuple[Path, Plan]]:
        with stage.copied("wal") as copy:
            plan = services.plan_reclaim(ALIAS, now=NOW)
            if name == "saver":
                with closing(sqlite3.connect(copy)) as connection:
                    connection.execute("ALTER TABLE checkpoint_writes RENAME TO writes")
                    connection.execute(
                        "ALTER TABLE writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''"
                    )
            yield copy, plan

    def saver(given: tuple[Path, Plan]) -> None:
        path, plan = given
        with SqliteSaver.from_conn_string(str(path)) as own:
            for thread in plan.threads:
                own.delete_thread(thread.thread_id)

    def one_box(given: tuple[Path, Plan]) -> None:
        with paced(box_seconds=ONE_BOX_SECONDS, gap_seconds=0):
            executed(given[1])

    ways = {"settings": _executed, "one box": one_box, "saver": saver}
    seconds = medians(ways, prepared, stage.rounds)
    for name in ("settings", "one box"):
        yield Comparison(
            name=f"deleting 30 %, {'as the settings are' if name == 'settings' else name}",
            ours=seconds[name],
            against="SqliteSaver.delete_thread, one after another",
            against_value=seconds["saver"],
            goal=Goal(at_most=0.6),
        )


def receiver(stage: Stage) -> Iterator[Comparison]:
    """Time the same with a receiver of ``post_delete`` in the project, beside the ORM's delete."""

    def listening(**_kwargs: object) -> None:
        """Do nothing: that there is a receiver makes Django load every row."""

    @contextmanager
    def prepared(_name: str) -> Iterator[tuple[Path, Plan]]:
        with stage.copied() as copy:
            yield copy, services.plan_reclaim(ALIAS, now=NOW)

    def orm(given: tuple[Path, Plan]) -> None:
        ids = [thread.thread_id for thread in given[1].threads]
        tables: tuple[type[models.Model], ...] = (CheckpointWrite, Checkpoint)
        for start in range(0, len(ids), IDS_A_DELETE):
            for table in tables:
                rows: models.QuerySet[Any] = models.QuerySet(table, using=ALIAS)
                rows.filter(thread_id__in=ids[start : start + IDS_A_DELETE]).delete()

    post_delete.connect(listening)
    try:
        seconds = medians({"ours": _executed, "orm": orm}, prepared, stage.rounds)
    finally:
        post_delete.disconnect(listening)
    yield Comparison(
        name="deleting 30 % with a post_delete receiver, as the settings are",
        ours=seconds["ours"],
        against="the ORM's delete(), 500 threads at a time",
        against_value=seconds["orm"],
        goal=Goal(at_most=0.2),
    )


def _executed(given: tuple[Path, Plan]) -> None:
    executed(given[1])
