"""Only orphans are left: is the host's table right, or is it the wrong one?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from history_retention import services, witnesses
from history_retention.exceptions import NoNamingTable
from history_retention.models import Sweep
from history_retention.policy import MOST_WITNESSES, Bounds
from history_retention.services import Trigger

from .conftest import WriteStore
from .hostapp.models import Note, Ticket
from .store_files import NOW, ConversationRow, ThreadRows, add_threads, threads_in, write_store

NOTES = {"MODEL": "hostapp.Note", "THREAD_FIELD": "thread", "ACTIVITY_FIELD": "day"}
REFUSAL = r"not one of the \d threads here is named by .*, nor is one that an earlier sweep saw"


@pytest.fixture
def named_by(retention: Callable[..., None]) -> Callable[..., None]:
    """Let a model name the threads of store "history"."""
    return lambda source: retention(STORES={"history": {"CONVERSATIONS": source}})


@pytest.fixture
def store(written_store: WriteStore, named_by: Callable[..., None]) -> Path:
    """Threads a and b, named by notes, and two that nothing names."""
    named_by(NOTES)
    for name in ("a", "b"):
        Note.objects.create(slug=f"n-{name}", thread=name, day=(NOW - timedelta(days=40)).date())
    return written_store(_threads("a", "b", "x", "y"), None, layout="langgraph_sqlite")


def _threads(*names: str) -> Iterable[ThreadRows]:
    return [ThreadRows(thread_id=name) for name in names]


def sweep(**bounds: Any) -> list[str]:
    """Remove, unresumable threads included, and return what went."""
    planned = (
        services.plan_prune("history", Bounds(**bounds), now=NOW)
        if bounds
        else services.plan_reclaim("history", now=NOW)
    )
    return sorted(services.execute(planned, trigger=Trigger.SCHEDULE).removed_ids)


def leave_an_orphan(store: Path) -> None:
    add_threads(store, [ThreadRows(thread_id="orphan")], layout="langgraph_sqlite")


def test_orphans_go_once_all_named_threads_were_pruned_and_a_conversation_is_still_listed(
    store: Path,
) -> None:
    pruned = sweep(older_than_days=30)
    Note.objects.get(thread="a").delete()
    leave_an_orphan(store)

    reclaimed = sweep()

    assert (pruned, reclaimed) == (["a", "b", "x", "y"], ["orphan"])
    assert threads_in(store) == set()


def test_orphans_go_night_after_night_when_nothing_is_named_any_more(store: Path) -> None:
    sweep(older_than_days=30)

    for night in range(3):
        leave_an_orphan(store)
        assert sweep() == ["orphan"], night


def test_a_thread_that_lost_its_conversation_goes_while_another_conversation_is_a_witness(
    store: Path,
) -> None:
    assert sweep() == ["x", "y"]
    Note.objects.filter(thread="a").delete()
    with closing(connect(store)) as connection, connection:
        connection.execute("DELETE FROM checkpoints WHERE thread_id = 'b'")
        connection.execute("DELETE FROM writes WHERE thread_id = 'b'")

    assert sweep() == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        lambda _named_by: Note.objects.all().delete(),
        lambda _named_by: Note.objects.update(thread="elsewhere"),
        lambda named_by: named_by(NOTES | {"THREAD_FIELD": "slug"}),
        lambda named_by: named_by({"MODEL": "hostapp.Ticket", "THREAD_FIELD": "subject"}),
        lambda _named_by: Sweep.objects.all().delete(),
    ],
    ids=["empty copy", "another copy", "wrong field", "wrong model", "new ledger"],
)
def test_nothing_goes_when_what_names_threads_is_not_what_named_them_before(
    store: Path, named_by: Callable[..., None], change: Callable[[Any], Any]
) -> None:
    sweep(older_than_days=30)
    leave_an_orphan(store)
    Ticket.objects.create(subject="elsewhere")
    change(named_by)

    with pytest.raises(NoNamingTable, match=REFUSAL):
        sweep()
    with pytest.raises(NoNamingTable, match="--force"):
        sweep(everything=True)

    assert threads_in(store) == {"orphan"}


def test_nothing_goes_from_another_file_under_the_same_alias(
    store: Path, point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    sweep(older_than_days=30)
    other = point_at(
        write_store(tmp_path / "other.db", _threads("x"), None, layout="langgraph_sqlite")
    )

    with pytest.raises(NoNamingTable, match=REFUSAL):
        sweep()

    assert threads_in(other) == {"x"}


def test_witnesses_are_those_of_one_schema_under_an_alias(
    store: Path, retention: Callable[..., None]
) -> None:
    sweep(older_than_days=30)
    named_by = Sweep.objects.get().witnesses["named_by"]
    assert len(witnesses.on_record("history", named_by)) > 0

    retention(STORES={"history": {"CONVERSATIONS": NOTES, "SCHEMA": "another"}})

    assert witnesses.on_record("history", named_by) == []


def test_a_dry_run_leaves_no_witness(store: Path) -> None:
    services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert not Sweep.objects.exists()


def test_a_sweep_keeps_a_few_witnesses_that_any_ledger_can_hold(
    written_store: WriteStore, named_by: Callable[..., None]
) -> None:
    named_by(NOTES)
    names = [f"t{number:02}" for number in range(MOST_WITNESSES + 5)]
    path = written_store(_threads("\0", *names, "orphan"), None, layout="langgraph_sqlite")
    for name in ("\0", *names):
        Note.objects.create(slug=f"n-{len(name)}-{name[1:]}", thread=name, day=NOW.date())

    assert sweep() == ["orphan"]

    kept = Sweep.objects.get().witnesses
    assert kept["thread_ids"] == names[: MOST_WITNESSES - 1]
    assert kept["named_by"] == "hostapp.Note.thread"
    assert str(path) in kept["place"]


@pytest.mark.parametrize("layout", ["langgraph_sqlite", "gaunt_sloth"])
def test_an_empty_conversations_table_is_doubted_beside_langgraph_where_it_is_the_hosts(
    written_store: WriteStore, layout: str
) -> None:
    path = written_store(_threads("a", "b"), [ConversationRow(thread_id="z")], layout=layout)

    if layout == "gaunt_sloth":
        assert sweep() == ["a", "b"]
        return
    with pytest.raises(NoNamingTable, match="named by its table conversations, nor"):
        sweep()
    assert threads_in(path) == {"a", "b"}
    assert len(services.plan_reclaim("history", now=NOW, force=True).reclaimable) == 2


def test_a_table_of_the_file_is_known_again_by_the_conversations_it_still_lists(
    written_store: WriteStore,
) -> None:
    path = written_store(_threads("a"), [ConversationRow(thread_id="a")], layout="langgraph_sqlite")
    assert sweep(older_than_days=30) == ["a"]
    leave_an_orphan(path)

    assert sweep() == ["orphan"]
