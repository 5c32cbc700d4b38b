"""What a server can do to a sweep, and what every refusal of it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psycopg
import pytest

from history_retention import services, workers
from history_retention.exceptions import LayoutUnknown, SweepRunning
from history_retention.facts import Ending, Plan, SkipReason
from history_retention.models import Sweep
from history_retention.outcomes import SkippedThread
from history_retention.policy import Bounds
from history_retention.services import Trigger
from history_retention.stores import open_store
from project.celery import app

from ..commands import PROJECT, Ran, environment, manage, run
from ..store_files import NOW, ThreadRows
from .server import in_database
from .stores import TABLES, add_threads, rows_of, threads_in
from .test_sweeping import run_sql

pytestmark = [pytest.mark.django_db(databases=["default", "history"]), pytest.mark.endurance]

MANY = 400
PRUNE = ("history_prune", "--all", "--no-input")


@pytest.fixture
def store(database: str) -> str:
    """Many threads idle for forty days."""
    add_threads(database, [ThreadRows(thread_id=f"t{number:03}") for number in range(MANY)])
    return database


def planned() -> Plan:
    return services.plan_prune("history", Bounds(older_than_days=30), now=NOW)


def manage_with(url: str, ledger: Path, *args: str, **options: object) -> Ran:
    """Run ``manage.py`` as a program over a database."""
    env = {"HISTORY_DATABASE_URL": url}
    return manage(*args, store=ledger.with_name("none.db"), ledger=ledger, env=env, **options)


def are_whole_or_gone(url: str, left: set[str]) -> bool:
    """Tell whether each of the threads has its rows in all three tables, and no other has any."""
    return all(threads_in(url, table) == left for table in TABLES)


def test_a_connection_that_the_server_kills_leaves_threads_whole_or_gone_and_a_true_report(
    store: str, retention: Callable[..., None]
) -> None:
    retention(BOX_SECONDS=0)
    plan = planned()
    asked = count()

    def stop() -> bool:
        """Is asked between batches; before the second, the server lets nobody on."""
        if next(asked) == 1:
            run_sql(
                store,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
        return False

    outcome = services.execute(plan, trigger=Trigger.CODE, stop=stop)

    left = threads_in(store)
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.PARTIAL, 200)
    assert "the database cannot be reached" in outcome.error
    assert outcome.error.count("\n") == 0
    assert set(outcome.removed_ids) == {thread.thread_id for thread in plan.threads} - left
    assert are_whole_or_gone(store, left)
    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.removed_threads) == ("partial", 200)
    assert services.execute(planned(), trigger=Trigger.CODE).removed.thread_count == MANY - 200


def test_a_lock_on_a_whole_table_is_waited_for_shortly_and_then_told(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.stores.langgraph_postgres.PATIENCE_SECONDS", 0)
    plan = planned()
    with psycopg.connect(store) as other:
        other.execute("LOCK TABLE checkpoint_writes IN SHARE ROW EXCLUSIVE MODE")
        outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.FAILED, 0)
    assert "another session holds a lock that is needed" in outcome.error
    assert "lock timeout" in outcome.error
    assert are_whole_or_gone(store, {thread.thread_id for thread in plan.threads})


@pytest.fixture
def slow(store: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the deletion of some threads take longer than a statement may, here 100 ms."""
    monkeypatch.setattr("history_retention.stores.postgres.STATEMENT_MILLISECONDS", 100)
    run_sql(
        store,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(5); RETURN OLD; END'",
    )

    def slowed(which: str) -> None:
        run_sql(
            store,
            "CREATE TRIGGER slow BEFORE DELETE ON checkpoints FOR EACH ROW"
            f" WHEN (OLD.thread_id {which}) EXECUTE FUNCTION slow()",
        )

    return slowed


def test_a_thread_that_takes_longer_than_a_statement_may_stays_and_all_others_go(
    store: str, slow: Callable[[str], None]
) -> None:
    slow("= 't123'")

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert outcome.skipped == (SkippedThread(thread_id="t123", reason=SkipReason.TIMED_OUT),)
    assert (outcome.ending, outcome.removed.thread_count) == (Ending.PARTIAL, MANY - 1)
    assert "the database ended a statement that took too long" in outcome.error
    assert "`python manage.py check --database history` names an index" in outcome.error
    assert outcome.error.endswith("Left whole for that: t123.")
    assert are_whole_or_gone(store, {"t123"})
    sweep = Sweep.objects.get()
    assert (sweep.ending, sweep.skipped_threads, sweep.error) == ("partial", 1, outcome.error)


def test_a_sweep_that_workers_share_says_at_its_end_which_thread_was_left_and_why(
    store: str, slow: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch outlasts the message in which that thread was met."""
    slow("= 't001'")
    monkeypatch.setattr(app, "send_task", lambda *_args, **_options: None)
    sweep = workers.hand_over(planned(), trigger=Trigger.CODE)

    monkeypatch.setattr(workers, "MESSAGE_SECONDS", 0)
    done = []
    while sweep.ending == "running":
        done.append(workers.work(sweep.pk))
        sweep.refresh_from_db()

    dealt_with = [worked.removed.thread_count + worked.skipped_threads for worked in done]
    assert len(done) > sweep.batch_count
    assert min(dealt_with) > 0
    assert done[-1].error == ""
    assert (sweep.ending, sweep.removed_threads, sweep.skipped_threads) == ("partial", MANY - 1, 1)
    assert sweep.error.endswith("Left whole for that: t001.")
    assert are_whole_or_gone(store, {"t001"})


def test_threads_that_take_too_long_together_go_a_few_at_a_time(
    store: str, slow: Callable[[str], None]
) -> None:
    """Of 200 threads at a time, each of which sleeps for 1 ms."""
    run_sql(
        store,
        "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(0.001); RETURN OLD; END'",
    )
    slow("<> ''")

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert (outcome.ending, outcome.removed.thread_count) == (Ending.DONE, MANY)
    assert (outcome.skipped, outcome.error) == ((), "")


def test_a_store_in_which_every_thread_takes_too_long_is_told_and_loses_nothing(
    store: str, slow: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history_retention.sweeping.MOST_TIMED_OUT", 3)
    slow("<> ''")
    before = rows_of(store)

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert (outcome.ending, len(outcome.skipped)) == (Ending.FAILED, 3)
    assert "ended a statement that took too long" in outcome.error
    assert rows_of(store) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _url: "postgresql://postgres@127.0.0.1:9/test", "port 9 failed"),
        (lambda url: in_database(url, "no_such_database"), '"no_such_database" does not exist'),
        (lambda url: url.replace("//postgres", "//nobody_here"), '"nobody_here"'),
    ],
    ids=["no server", "no database", "no user"],
)
def test_a_server_that_does_not_let_in_is_one_sentence(
    database: str,
    point_at: Callable[..., str],
    change: Callable[[str], str],
    told: str,
) -> None:
    point_at(change(database))

    for name in (("history_readout",), PRUNE, ("history_reclaim", "--no-input")):
        ran = run(*name)
        (sentence,) = ran.err.splitlines()
        assert (ran.status, ran.out) == (1, "")
        assert sentence.startswith("history: the database cannot be reached (")
        assert told in sentence
        assert sentence.endswith("then run this again.")


def test_a_user_who_may_only_read_is_told_and_loses_nothing(
    store: str, point_at: Callable[..., str]
) -> None:
    run_sql(
        store,
        "DO $$ BEGIN CREATE ROLE history_test_reader LOGIN; EXCEPTION WHEN duplicate_object"
        " THEN NULL; END $$",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO history_test_reader",
    )
    before = rows_of(store)
    point_at(store, "-c role=history_test_reader")

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert services.measure("history", now=NOW).thread_count == MANY
    assert outcome.ending is Ending.FAILED
    assert "does not let this user do that" in outcome.error
    assert rows_of(store) == before


def test_a_replica_is_told_and_nothing_is_lost(store: str, point_at: Callable[..., str]) -> None:
    point_at(store, "-c default_transaction_read_only=on")

    outcome = services.execute(planned(), trigger=Trigger.CODE)

    assert outcome.ending is Ending.FAILED
    assert "is read-only here" in outcome.error
    assert len(threads_in(store)) == MANY


def test_two_hosts_sweep_a_store_one_after_the_other(
    store: str, ledger: Path, tmp_path: Path
) -> None:
    """The second runs in a process whose folder for temporary files is another."""
    with open_store("history") as held, held.only_one("sweep"):
        ran = manage_with(store, ledger, *PRUNE)
    assert (ran.status, len(threads_in(store))) == (1, MANY)
    assert "another sweep of this store is running" in ran.err

    assert manage_with(store, ledger, *PRUNE).status == 0
    assert threads_in(store) == set()


def test_workers_share_a_store_and_keep_everyone_else_off_it(database: str) -> None:
    with (
        open_store("history") as one,
        open_store("history") as other,
        one.only_one("sweep", shared=True),
        other.only_one("sweep", shared=True),
        open_store("history") as third,
        pytest.raises(SweepRunning, match="another sweep of this store is running"),
        third.only_one("sweep"),
    ):
        pytest.fail("one sweeps alone beside two that share")


@pytest.mark.parametrize("moment", range(5))
def test_a_killed_prune_leaves_threads_whole_or_gone_and_the_next_one_finishes(
    store: str, ledger: Path, moment: int
) -> None:
    env = environment(ledger.with_name("none.db"), ledger) | {
        "HISTORY_DATABASE_URL": store,
        "HISTORY_TEST_KILL_AFTER": str(moment),
    }
    killed = subprocess.run(
        [sys.executable, "-m", "tests.postgres.killed", *PRUNE],
        cwd=PROJECT,
        env=env,
        capture_output=True,
        check=False,
        timeout=120,
    )
    left = threads_in(store)

    assert killed.returncode == -9
    assert 0 < len(left) <= MANY
    assert are_whole_or_gone(store, left)

    ran = manage_with(store, ledger, *PRUNE)

    assert (ran.status, threads_in(store)) == (0, set())
    with psycopg.connect(store) as connection:
        locks = connection.execute(
            "SELECT COUNT(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database"
            " WHERE l.locktype = 'advisory' AND d.datname = current_database()"
        )
        assert locks.fetchone() == (0,)


def test_a_store_whose_tables_are_gone_is_a_sentence(database: str) -> None:
    run_sql(database, "DROP TABLE checkpoint_blobs")

    ran = run("history_readout")

    assert ran.status == 1
    assert "holds no history that this package knows" in ran.err


def test_a_plan_whose_table_is_lost_meanwhile_is_a_sentence(store: str) -> None:
    plan = planned()
    run_sql(store, "DROP TABLE checkpoint_blobs")

    with pytest.raises(LayoutUnknown, match="holds no history that this package knows"):
        services.execute(plan, trigger=Trigger.CODE)


def test_a_hosts_project_without_a_driver_is_told_what_to_install(
    database: str, ledger: Path, tmp_path: Path
) -> None:
    """The bundled project says so itself; here the settings are a project's own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(psycopg=None, psycopg2=None)\n"
    )
    (tmp_path / "host_settings.py").write_text(
        "from project.settings import *\n"
        "DATABASES['history'] = {'ENGINE': 'django.db.backends.postgresql', 'NAME': 'x'}\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "host_settings"}

    ran = manage("history_readout", store=tmp_path / "none.db", ledger=ledger, env=env)

    (sentence,) = ran.err.splitlines()
    assert (ran.status, ran.out) == (1, "")
    assert "history: its database cannot be opened (Error loading psycopg2 or psycopg" in sentence
    assert sentence.endswith('with pip install "psycopg[binary]".')
