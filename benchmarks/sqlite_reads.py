"""Reading a SQLite store: what a readout and a choice read, and how long they take."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import timedelta
from pathlib import Path

from history_retention import services
from history_retention.policy import Bounds, Choice, Rules, choose, settled_activity
from history_retention.services import silent
from history_retention.stores import open_store
from history_retention.stores.naming import ConversationsTable
from history_retention.stores.sqlite import opened
from project.checkpoint_ids import checkpoint_id_at
from tests.stores.costs import bytes_read

from . import vendors_way
from .comparisons import Comparison, Goal
from .contests import evicted, medians, warm
from .stage import ALIAS, Stage
from .stores import NOW
from .vendors_way import STATE_TABLES

LEAF_SCAN = "; ".join(f"SELECT COUNT(*) FROM {table} NOT INDEXED" for table in STATE_TABLES)
DAYS = 31
SHELL = shutil.which("sqlite3")
LEAF_SCANNER = f"COUNT(*) NOT INDEXED on both tables, {'sqlite3 shell' if SHELL else 'sqlite3'}"


def measured(_given: object = None) -> None:
    """Read the whole store, and keep nothing of it."""
    services.measure(ALIAS, now=NOW, save=False)


def chosen(bounds: Bounds | None = None) -> Choice:
    """Choose what may go, from the indexes."""
    with open_store(ALIAS) as store:
        rules = Rules(now=NOW, grace=timedelta(days=1), naming=store.naming, bounds=bounds)
        return choose(store.indexed_threads(silent, settled_activity(rules)), rules)


def pages(stage: Stage) -> Iterator[Comparison]:
    """Count the pages read, exactly, against those that hold what is asked for."""
    found = _pages(stage.store)
    leaves = _count(found, STATE_TABLES)
    keys = _count(found, [f"sqlite_autoindex_{table}_1" for table in STATE_TABLES])
    names = _count(found, ["conversations", "sessions"])
    size = _page_size(stage.store)
    before = bytes_read()
    measured()
    read = (bytes_read() - before) / size
    yield Comparison(
        name="pages read by measuring",
        unit="pages",
        ours=read,
        against="leaf and interior pages of the state tables and of those that name threads",
        against_value=leaves + names,
        goal=Goal(at_most=1.06),
        note=f"overflow pages there: {found.get(('checkpoints', 'overflow'), 0):,}",
    )
    before = bytes_read()
    chosen()
    read = (bytes_read() - before) / size
    yield Comparison(
        name="pages read by choosing candidates",
        unit="pages",
        ours=read,
        against="pages of the key indexes and of those that name threads",
        against_value=keys + names,
        goal=Goal(at_most=1.06),
    )


def measuring(stage: Stage) -> Iterator[Comparison]:
    """Time a readout beside a bare scan of the leaf pages and beside the vendor's way."""

    def ours_and(against: str, way: str, goal: float | None, name: str) -> Comparison:
        return Comparison(
            name=name,
            ours=seconds["ours"],
            against=against,
            against_value=seconds[way],
            goal=Goal(at_most=goal) if goal else None,
        )

    ways = {
        "ours": measured,
        "scan": lambda _given: _scan(stage.store),
        "vendor": lambda _given: vendors_way.readout(stage.store),
    }
    seconds = medians(ways, warm, stage.rounds)
    yield ours_and(LEAF_SCANNER, "scan", 3.2, "measuring, warm")
    yield ours_and("the vendor's way in Python", "vendor", 0.65, "measuring, warm, vendor's way")

    def cold(_name: str) -> nullcontext[None]:
        evicted(stage.store)
        return nullcontext()

    seconds = medians(ways, cold, stage.rounds)
    yield ours_and(LEAF_SCANNER, "scan", 1.4, "measuring, cold")
    yield ours_and("the vendor's way in Python", "vendor", None, "measuring, cold, vendor's way")


def measuring_again(stage: Stage) -> Iterator[Comparison]:
    """Time a readout that is kept when one thread in a hundred has a new row since the last."""
    with stage.copied() as copy:
        services.measure(ALIAS, now=NOW)

        def touched(name: str) -> nullcontext[None]:
            if name == "ours":
                _touch(copy)
            return nullcontext()

        seconds = medians(
            {
                "ours": lambda _given: services.measure(ALIAS, now=NOW),
                "scan": lambda _given: _scan(copy),
                "exact": lambda _given: services.measure(ALIAS, now=NOW, exact=True),
                "unkept": measured,
            },
            touched,
            stage.rounds,
        )
    yield Comparison(
        name="measuring again, 1 % of the threads touched, kept",
        ours=seconds["ours"],
        against=LEAF_SCANNER,
        against_value=seconds["scan"],
        goal=Goal(at_most=0.5),
    )
    yield Comparison(
        name="measuring every row, kept",
        ours=seconds["exact"],
        against="the same, not kept",
        against_value=seconds["unkept"],
    )


def candidates(stage: Stage) -> Iterator[Comparison]:
    """Time the choice of what to reclaim beside the vendor's way to it."""

    def vendor(_given: object) -> None:
        with vendors_way.opened(stage.store) as connection:
            vendors_way.candidates(connection)

    def indexed(name: str) -> nullcontext[None]:
        with closing(sqlite3.connect(stage.store)) as connection:
            if name == "bare":
                connection.execute("DROP INDEX IF EXISTS idx_conversations_thread_id")
            else:
                connection.execute(
                    "CREATE INDEX IF NOT EXISTS idx_conversations_thread_id"
                    " ON conversations (thread_id)"
                )
        return nullcontext()

    def choice(_given: object) -> None:
        chosen()

    def plan(_given: object) -> None:
        services.plan_reclaim(ALIAS, now=NOW)

    ways = {"ours": choice, "vendor": vendor, "plan": plan, "bare": choice}
    seconds = medians(ways, indexed, stage.rounds)
    indexed("ours")
    newest = "reading the newest payload of each"
    yield Comparison(
        name="candidates for reclaim",
        ours=seconds["ours"],
        against=newest,
        against_value=seconds["vendor"],
        goal=Goal(at_most=0.1),
    )
    yield Comparison(
        name="whole plan of a reclaim, with sizes and stored times",
        ours=seconds["plan"],
        against=newest,
        against_value=seconds["vendor"],
    )
    yield Comparison(
        name="candidates without an index on conversations",
        ours=seconds["bare"],
        against="with one",
        against_value=seconds["ours"],
        goal=Goal(at_most=1.5),
    )


def selection(stage: Stage) -> Iterator[Comparison]:
    """Time what a prune chooses of long transcripts beside a scan of the turns' pages.

    What the turns tell of it by themselves, and the whole choice with all threads' own rows.
    """
    bounds = Bounds(older_than_days=DAYS)

    def scan(_given: object) -> None:
        _scan(stage.store, "SELECT COUNT(*) FROM sessions NOT INDEXED")

    def turns(_given: object) -> None:
        with opened(ALIAS) as file:
            table = ConversationsTable(file, file.tables(), names_empty=False)
            deque(table.names(NOW - timedelta(days=DAYS)), maxlen=0)

    def choice(_given: object) -> None:
        chosen(bounds)

    def cold(_name: str) -> nullcontext[None]:
        evicted(stage.store)
        return nullcontext()

    for words, prepared in (("warm", warm), ("cold", cold)):
        seconds = medians({"turns": turns, "choice": choice, "scan": scan}, prepared, stage.rounds)
        for way, name, goal in (
            ("turns", "which conversations a prune could choose", Goal(at_most=0.3)),
            ("choice", "which threads a prune chooses", None),
        ):
            yield Comparison(
                name=f"{name}, {DAYS} days, {words}",
                ours=seconds[way],
                against="COUNT(*) NOT INDEXED on sessions",
                against_value=seconds["scan"],
                goal=goal,
            )


def _scan(path: Path, sql: str = LEAF_SCAN) -> None:
    if SHELL:
        subprocess.run([SHELL, str(path), sql], check=True, stdout=subprocess.DEVNULL)
        return
    with closing(sqlite3.connect(path)) as connection:
        for statement in sql.split("; "):
            connection.execute(statement).fetchone()


def _touch(path: Path) -> None:
    """Add a checkpoint to one thread in a hundred, as their agents would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        threads = connection.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchall()
        (rows,) = connection.execute("SELECT MAX(rowid) FROM checkpoints").fetchone()
        connection.executemany(
            "INSERT INTO checkpoints VALUES (?, '', ?, NULL, 'json', zeroblob(20000), '{}')",
            (
                (thread_id, checkpoint_id_at(NOW, rows + number))
                for number, (thread_id,) in enumerate(threads[::100])
            ),
        )


def _pages(path: Path) -> dict[tuple[str, str], int]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            (name, kind): count
            for name, kind, count in connection.execute(
                "SELECT name, pagetype, COUNT(*) FROM dbstat GROUP BY 1, 2"
            )
        }


def _count(found: dict[tuple[str, str], int], names: list[str] | tuple[str, ...]) -> int:
    return sum(
        count for (name, kind), count in found.items() if name in names and kind != "overflow"
    )


def _page_size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])
