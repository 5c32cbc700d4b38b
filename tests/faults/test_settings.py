"""Settings that are wrong, and settings that are right and unusual, with every command."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pytest_django import Settings

from ..commands import Ran, manage, run
from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows, rows_of, threads_in, write_store
from .children import command, hold, started
from .commands import EVERY_COMMAND, PRUNE, READOUT, RECLAIM, VACUUM, sweeps_in

THREADS = [
    ThreadRows(thread_id="named", size=9_000),
    ThreadRows(thread_id="unnamed", size=9_000),
    ThreadRows(thread_id="fresh", age=timedelta(hours=1)),
]
NAMES = [ConversationRow(thread_id="named"), ConversationRow(thread_id="fresh")]

IDLE_FOR_30_DAYS = ["history_prune", "--older-than=30", "--no-input"]

USER = {"MODEL": "auth.User", "THREAD_FIELD": "username"}
WRONG_POLICIES: list[object] = [
    None, {}, "x", [7], [{}], [{"STORE": "nowhere", "ALL": True}], [{"STORE": "history"}],
    [{"STORE": "history", "OLDER_THAN": 0}], [{"STORE": "history", "ALL": 1}],
]  # fmt: skip
WRONG: list[object] = [
    None, [], "history", 7,
    {"STORES": None}, {"STORES": ["history"]}, {"STORES": {}}, {"STORES": {7: {}}},
    {"STORES": {"": {}}}, {"STORES": {"history": None}}, {"STORES": {"history": "auto"}},
    {"STORES": {"nowhere": {}}}, {"STORES": {"history": {"NAME": "x"}}},
    *({"STORES": {"history": {"LAYOUT": layout}}} for layout in (
        None, 7, "", "nope", "os", "os.path", "os.getcwd", "no.such.module", "..", "a b.c",
        "\0.\0", "history_retention.stores.base.Store",
        "history_retention.stores.checkpoints.CheckpointStore",
        "history_retention.stores.langgraph_sqlite.LangGraphSQLiteStore",
    )),
    *({"STORES": {"history": {"LAYOUT": "langgraph_sqlite", "CONVERSATIONS": source}}}
      for source in (USER,)),
    *({"STORES": {"history": {"CONVERSATIONS": source}}} for source in (
        7, "auth.User", [7], {}, {"MODEL": None}, {"MODEL": "auth"}, {"MODEL": "nope.Nope"},
        {"MODEL": "auth.User", "THREAD": "x"}, USER,
    )),
    {"STORES": {"history": {}}, "GRACE": 24}, {"STORES": {"history": {}}, "GRACE": timedelta(0)},
    {"STORES": {"history": {}}, "GRACE": timedelta(-1)},
    {"STORES": {"history": {}}, "GRACE": timedelta.max},
    *({"STORES": {"history": {}}, "BOX_SECONDS": value} for value in (
        "1", None, -1, float("nan"), float("inf"), True)),
    {"STORES": {"history": {}}, "GAP_SECONDS": -0.1},
    *({"STORES": {"history": {}}, "SECURE_DELETE": value} for value in (
        True, None, "off", "FAST; DROP TABLE checkpoints", "Fast")),
    *({"STORES": {"history": {}}, "POLICIES": policies} for policies in WRONG_POLICIES),
    {"STORES": {"history": {}}, "VACUUM_IN_REQUEST_BYTES": -1},
    {"STORES": {"history": {}}, "STORE": "history"}, {"stores": {}}, {7: 8},
]  # fmt: skip


@EVERY_COMMAND
@pytest.mark.parametrize("value", WRONG, ids=[repr(value)[:70] for value in WRONG])
def test_a_wrong_setting_is_a_sentence_and_touches_nothing(
    frozen_clock: object,
    written_store: WriteStore,
    settings: Settings,
    value: object,
    words: list[str],
) -> None:
    path = written_store(THREADS, NAMES)
    before = path.read_bytes()
    settings.HISTORY_RETENTION = value

    ran = run(*words)

    assert (ran.status, ran.out) in {(1, ""), (2, "")}
    (sentence,) = ran.err.splitlines()
    assert sentence.endswith(".")
    assert path.read_bytes() == before


SOURCES: dict[str, Any] = {
    "no such model": {"MODEL": "nope.Nope"},
    "no such field": {"MODEL": "auth.User", "THREAD_FIELD": "nope"},
    "many to many": {"MODEL": "auth.User", "THREAD_FIELD": "groups"},
    "reverse": {"MODEL": "auth.User", "THREAD_FIELD": "logentry"},
    "through a relation": {"MODEL": "admin.LogEntry", "THREAD_FIELD": "user__username"},
    "no such activity": {**USER, "ACTIVITY_FIELD": "nope"},
    "no such label": {**USER, "LABEL_FIELD": "nope__nope"},
    "no such project": {**USER, "PROJECT_FIELD": "\0"},
}


@EVERY_COMMAND
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_model_that_is_not_as_it_is_said_to_be_is_a_sentence_and_touches_nothing(
    frozen_clock: object,
    written_store: WriteStore,
    retention: Callable[..., None],
    source: Any,
    words: list[str],
) -> None:
    path = written_store(THREADS, None, layout="langgraph_sqlite")
    before = path.read_bytes()
    retention(STORES={"history": {"CONVERSATIONS": source}})

    ran = run(*words)

    if words is not VACUUM or ran.status:
        assert (ran.status, ran.out) in {(1, ""), (2, "")}
        assert ran.err.strip().endswith(".")
        assert len(ran.err.splitlines()) == 1
    assert path.read_bytes() == before


@EVERY_COMMAND
def test_a_clock_without_zones_is_a_sentence_and_touches_nothing(
    frozen_clock: object, written_store: WriteStore, settings: Settings, words: list[str]
) -> None:
    path = written_store(THREADS, NAMES)
    before = path.read_bytes()
    settings.USE_TZ = False

    ran = run(*words)

    assert (ran.status, ran.out) == (1, "")
    assert ran.err.strip().endswith("so it needs USE_TZ = True.")
    assert path.read_bytes() == before


def configured(folder: Path, *lines: str) -> dict[str, str]:
    """Return the environment of the bundled project with these lines behind its settings."""
    text = "\n".join(["from project.settings import *", *lines])
    (folder / "configured.py").write_text(text)
    return {"DJANGO_SETTINGS_MODULE": "configured", "PYTHONPATH": str(folder)}


STATES = {"unnamed": "unresumable", "named": "resumable", "fresh": "resumable"}


def ran_well(*words: str, store: Path, ledger: Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a command as a program and return its document; there is nothing on stderr."""
    ran = manage(*words, "--format=json", store=store, ledger=ledger, env=env)
    assert (ran.status, ran.err) == (0, "")
    return ran.document


def states(readout: dict[str, Any]) -> dict[str, str]:
    """Return the state of every thread of a readout."""
    return {row["thread_id"]: row["state"] for row in readout["largest_threads"]}


@pytest.mark.parametrize(
    "lines",
    [
        ["TIME_ZONE = 'America/St_Johns'"],
        ["DEBUG = True"],
        ["for d in DATABASES.values(): d['ATOMIC_REQUESTS'] = True"],
        ["for d in DATABASES.values(): d['AUTOCOMMIT'] = False"],
        [
            "DATABASES['history']['CONN_MAX_AGE'] = None",
            "USE_I18N = True",
            "LANGUAGE_CODE = 'de'",
            "USE_THOUSAND_SEPARATOR = True",
        ],
        ["DATABASES['history']['TIME_ZONE'] = 'Asia/Tokyo'"],
        ["DATABASES['history']['OPTIONS'] = {'isolation_level': 'EXCLUSIVE'}"],
        ["DATABASES['history']['OPTIONS'] = {'transaction_mode': 'EXCLUSIVE'}"],
        ["DATABASES['history']['OPTIONS'] = {'init_command': 'PRAGMA cache_size=10;'}"],
        ["DATABASES['history']['OPTIONS'] = {'timeout': 0}"],
        ["DATABASES['history']['OPTIONS'] = {'cached_statements': 0, 'detect_types': 0}"],
    ],
    ids=lambda lines: lines[0],
)
def test_unusual_settings_change_nothing_about_what_goes(
    tmp_path: Path, ledger: Path, lines: list[str]
) -> None:
    store = write_store(tmp_path / "history.db", THREADS, NAMES, now=datetime.now(UTC))
    env = configured(tmp_path, *lines)

    readout = ran_well(*READOUT, store=store, ledger=ledger, env=env)
    pruned = ran_well(*IDLE_FOR_30_DAYS, store=store, ledger=ledger, env=env)

    assert states(readout) == STATES
    assert [row["thread_id"] for row in pruned["prunable"]] == ["named"]
    assert (pruned["removed"]["thread_count"], pruned["vacuum"]["ran"]) == (2, True)
    assert threads_in(store) == threads_in(store, "checkpoint_writes") == {"fresh"}


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
def test_a_store_in_the_default_database_is_read_swept_and_vacuumed_beside_the_ledger(
    tmp_path: Path, journal_mode: Literal["delete", "wal"]
) -> None:
    path = write_store(
        tmp_path / "both.db", THREADS, NAMES, now=datetime.now(UTC), journal_mode=journal_mode
    )
    env = configured(
        tmp_path,
        f"DATABASES = {{'default': {{**DATABASES['default'], 'NAME': {str(path)!r}}}}}",
        "HISTORY_RETENTION['STORES'] = {'default': {}}",
    )
    assert manage("migrate", "-v0", store=path, ledger=path, env=env).status == 0
    before = rows_of(path)

    readout, reclaimed, pruned, vacuumed = (
        ran_well(*words, store=path, ledger=path, env=env)
        for words in (READOUT, RECLAIM, [*PRUNE, "--no-vacuum"], VACUUM)
    )

    assert states(readout) == STATES
    assert (reclaimed["removed"]["thread_count"], pruned["removed"]["thread_count"]) == (1, 2)
    assert vacuumed["vacuum"]["ran"] is True

    after = rows_of(path)
    ours = {name for name in after if name.startswith("history_retention_")}
    for name in after.keys() - ours - {"checkpoints", "checkpoint_writes", "sqlite_sequence"}:
        assert after[name] == before[name]
    assert sweeps_in(path, "kind", "ending") == [
        ("reclaim", "done"), ("prune", "done"), ("vacuum", "done"),
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["no.such.engine", "django.db.backends.dummy", "os"])
@EVERY_COMMAND
def test_an_engine_that_is_none_is_a_sentence(
    tmp_path: Path, ledger: Path, engine: str, words: list[str]
) -> None:
    store = write_store(tmp_path / "history.db", THREADS, NAMES)
    before = store.read_bytes()

    with started(command, store, ledger, *words, engine=engine) as child:
        ran: Ran = child.heard()

    assert (ran.status, ran.out) == (1, "")
    assert ran.err
    assert store.read_bytes() == before


LEDGERS = ["absent", "folder", "not a database", "unmigrated", "half migrated", "no such folder"]


@pytest.mark.parametrize("kind", LEDGERS)
@EVERY_COMMAND
def test_a_ledger_that_cannot_be_used_is_a_sentence_and_costs_no_row(
    tmp_path: Path, ledger: Path, kind: str, words: list[str]
) -> None:
    store = write_store(tmp_path / "history.db", THREADS, NAMES, now=datetime.now(UTC))
    before = rows_of(store)
    path = tmp_path / "own.sqlite3"
    if kind == "folder":
        path.mkdir()
    elif kind == "not a database":
        path.write_text("not a database\n" * 100)
    elif kind == "unmigrated":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE other (id INTEGER)")
    elif kind == "half migrated":
        ledger.rename(path)
        with closing(sqlite3.connect(path)) as connection, connection:
            for table in ("sweep", "measurement"):
                connection.execute(f"ALTER TABLE history_retention_{table} RENAME TO {table}")
    elif kind == "no such folder":
        path = tmp_path / "absent" / "own.sqlite3"

    with started(command, store, path, *words) as child:
        ran: Ran = child.heard()

    assert ran.status == 1
    assert "The ledger in database 'default' cannot be used (" in ran.err.splitlines()[-1]
    assert ran.err.splitlines()[-1].endswith("run this again.")
    assert rows_of(store) == before


@EVERY_COMMAND
def test_a_ledger_that_stays_locked_is_a_sentence_and_costs_no_row(
    tmp_path: Path, ledger: Path, words: list[str]
) -> None:
    store = write_store(tmp_path / "history.db", THREADS, NAMES, now=datetime.now(UTC))
    before = rows_of(store)

    with started(hold, ledger, "BEGIN EXCLUSIVE") as holder:
        assert holder.heard() == "held"
        with started(command, store, ledger, *words, ledger_timeout=0.2) as child:
            ran: Ran = child.heard()

    assert ran.status == 1
    assert "The ledger in database 'default' cannot be used (database is locked)" in ran.err
    assert rows_of(store) == before


def test_under_debug_thousands_of_statements_are_not_kept_in_memory(
    tmp_path: Path, ledger: Path
) -> None:
    threads = [ThreadRows(thread_id=f"{number:0500}", size=300) for number in range(3_000)]
    store = write_store(tmp_path / "history.db", threads, [], now=datetime.now(UTC))
    words = [*PRUNE, "--format=json"]

    with started(
        command, store, ledger, *words, debug=True, reports_memory=True, GAP_SECONDS=0
    ) as child:
        ran, grown = child.heard(), child.heard()

    assert ran.document["removed"]["thread_count"] == 3_000
    assert grown < 40_000_000
