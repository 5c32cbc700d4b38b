import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from langgraph.checkpoint.sqlite import SqliteSaver
from pytest_django import Settings

from history_retention import services
from history_retention.facts import KeepReason, State
from history_retention.policy import Bounds
from project.demo_store import write_demo_store

from ..store_files import NOW, rows_of


@pytest.fixture
def demo(settings: Settings, tmp_path: Path) -> Path:
    """The path of the demo's store, in a folder that is not there yet."""
    settings.DEMO_DIR = tmp_path / "demo"
    return tmp_path / "demo" / "history.db"


def test_the_same_instant_gives_the_same_rows(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        write_demo_store(tmp_path / name, now=NOW)

    assert rows_of(tmp_path / "one.db") == rows_of(tmp_path / "two.db")


def test_every_thread_is_read_back_by_langgraphs_own_saver(tmp_path: Path) -> None:
    written = write_demo_store(tmp_path / "demo.db", now=NOW)

    with SqliteSaver.from_conn_string(str(tmp_path / "demo.db")) as saver:
        read = list(saver.list(None))

    assert written.own_saver
    assert len(read) == written.checkpoints == 555
    assert all(entry.checkpoint["channel_values"]["messages"] for entry in read)


def test_without_langgraph_the_same_threads_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_demo_store(tmp_path / "own.db", now=NOW)
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)

    written = write_demo_store(tmp_path / "plain.db", now=NOW)

    own, plain = rows_of(tmp_path / "own.db"), rows_of(tmp_path / "plain.db")
    assert not written.own_saver
    assert plain["conversations"] == own["conversations"]
    for table, key in (("checkpoints", 4), ("writes", 4)):
        assert [row[:key] for row in plain[table]] == [row[:key] for row in own[table]]


def test_the_demo_has_a_thread_of_every_kind(
    tmp_path: Path, point_at: Callable[[Path], Path]
) -> None:
    path = tmp_path / "demo.db"
    write_demo_store(path, now=NOW)
    point_at(path)

    readout = services.measure("history", now=NOW, top=100, save=False)
    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    states = [thread.state for thread in readout.largest_threads]
    assert (readout.layout, readout.thread_count) == ("langgraph_sqlite", 43)
    assert {state: states.count(state) for state in set(states)} == {
        State.RESUMABLE: 35,
        State.UNRESUMABLE: 7,
        State.GRACE: 1,
    }
    assert sum(thread.checkpoint_count == 0 for thread in readout.largest_threads) == 2
    assert len(plan.prunable) == 18
    assert [kept.reason for kept in plan.kept] == [KeepReason.NAMED_BY_KEPT_CONVERSATION]


def test_ages_reach_from_minutes_to_more_than_a_year(
    tmp_path: Path, point_at: Callable[[Path], Path]
) -> None:
    path = tmp_path / "demo.db"
    write_demo_store(path, now=NOW)
    point_at(path)

    readout = services.measure("history", now=NOW, top=100, save=False)

    ages = [
        NOW - thread.last_activity for thread in readout.largest_threads if thread.last_activity
    ]
    assert (min(ages), max(ages)) == (timedelta(minutes=7), timedelta(days=400))


def test_the_command_makes_the_folder_and_says_what_it_wrote(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("history_seed_demo")

    assert [path.name for path in demo.parent.iterdir()] == ["history.db"]
    assert "wrote 43 threads (555 checkpoints, 558 writes) and 38 conversations" in (
        capsys.readouterr().out
    )


def test_a_store_that_is_there_is_left_as_it_is(demo: Path) -> None:
    demo.parent.mkdir()
    demo.write_bytes(b"someone's own")

    with pytest.raises(CommandError, match="left as it is; to write it anew pass --force"):
        call_command("history_seed_demo")

    assert demo.read_bytes() == b"someone's own"


def test_forced_it_replaces_the_store_and_the_logs_beside_it(demo: Path) -> None:
    demo.parent.mkdir()
    for name in ("history.db", "history.db-wal", "history.db-shm"):
        (demo.parent / name).write_bytes(b"old")

    call_command("history_seed_demo", "--force")

    assert [path.name for path in demo.parent.iterdir()] == ["history.db"]
    assert len(rows_of(demo)["checkpoints"]) == 555


def test_a_folder_that_cannot_be_made_is_one_sentence(demo: Path) -> None:
    demo.parent.write_text("a file where the folder should be")

    with pytest.raises(CommandError, match=r"history\.db could not be written: .*File exists"):
        call_command("history_seed_demo")
