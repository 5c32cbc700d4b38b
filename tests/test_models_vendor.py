"""The agents' own tables as models: read on demand, written never."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core import serializers
from django.db import connections, models
from django.db.models.signals import pre_delete, pre_save
from django.template import Context, Template
from django.test.utils import CaptureQueriesContext

from history_retention.exceptions import StoreMissing, StoreReadOnly, StoreUnreadable, UsageError
from history_retention.models import (
    Checkpoint,
    CheckpointWrite,
    Conversation,
    LangGraphWrite,
    Session,
)
from history_retention.models.readonly import StoredRows, VendorModel

from .conftest import WriteStore
from .store_files import ConversationRow, ThreadRows

pytestmark = pytest.mark.django_db(databases=["default", "history"])

FixtureStore = Callable[[str], Path]

MODELS: list[type[VendorModel]] = [
    Checkpoint,
    CheckpointWrite,
    LangGraphWrite,
    Conversation,
    Session,
]
SENTENCE = r"is its agent's own and only read here.*services\.plan_prune.*services\.execute"


def statements(read: Callable[[], object]) -> list[str]:
    """Return what was asked of the store while ``read`` ran."""
    with CaptureQueriesContext(connections["history"]) as captured:
        read()
    return [query["sql"] for query in captured.captured_queries]


def counts(path: Path) -> dict[str, int]:
    """Count the rows of every table of a file that is one of ours."""
    tables = [model._meta.db_table for model in MODELS]
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if table in tables
        }


@pytest.fixture
def store(written_store: WriteStore) -> Path:
    """A store with two threads and a conversation of two turns."""
    return written_store(
        [ThreadRows(thread_id="a", checkpoints=2, writes=3), ThreadRows(thread_id="b")],
        [ConversationRow(thread_id="a", turns=[timedelta(days=40), timedelta(days=41)])],
    )


def test_the_rows_of_a_gaunt_sloth_file_are_all_there(fixture_store: FixtureStore) -> None:
    path = fixture_store("gaunt_sloth/history.db")

    found = {
        model._meta.db_table: len(model.objects.for_store("history"))
        for model in (Checkpoint, CheckpointWrite, Conversation, Session)
    }

    assert found == counts(path)
    assert found["conversations"] == 14


def test_the_rows_of_a_langgraph_file_are_all_there(fixture_store: FixtureStore) -> None:
    path = fixture_store("langgraph/lg-sqlite-with-conversations.db")

    found = {
        model._meta.db_table: len(model.objects.for_store("history"))
        for model in (Checkpoint, LangGraphWrite, Conversation, Session)
    }

    assert found == counts(path)
    assert (found["checkpoints"], found["writes"]) == (208, 380)


def test_a_row_is_found_by_its_composite_key(store: Path) -> None:
    newest = Checkpoint.objects.filter(thread_id="a").latest("checkpoint_id")

    assert newest.pk == ("a", "", newest.checkpoint_id)
    assert Checkpoint.objects.get(pk=newest.pk) == newest


@pytest.mark.parametrize(
    ("model", "payload"),
    [
        (Checkpoint, {"checkpoint", "metadata"}),
        (CheckpointWrite, {"value", "blob", "task_path"}),
        (Session, {"prompt", "response"}),
    ],
)
def test_payloads_stay_in_the_database_until_asked_for(
    store: Path, model: type[VendorModel], payload: set[str]
) -> None:
    rows: list[Any] = []

    asked = statements(lambda: rows.extend(model.objects.all()))

    assert rows[0].get_deferred_fields() == payload
    assert len(asked) == 1
    assert not any(f'."{name}"' in asked[0].partition(" FROM ")[0] for name in payload)


def test_a_payload_that_is_asked_for_is_read_alone(store: Path) -> None:
    row = Checkpoint.objects.filter(thread_id="b").get()
    read: list[Any] = []

    asked = statements(lambda: read.append(row.checkpoint))

    assert len(read[0]) == 1_000
    assert len(asked) == 1
    assert '"metadata"' not in asked[0]


def test_payloads_named_in_only_are_read_with_the_row(store: Path) -> None:
    (row,) = Checkpoint.objects.filter(thread_id="b").only("checkpoint")

    assert statements(lambda: len(row.checkpoint or b"")) == []
    assert row.get_deferred_fields() == {"parent_checkpoint_id", "type", "metadata"}


def test_deferring_nothing_reads_the_whole_row(store: Path) -> None:
    (row,) = Checkpoint.objects.filter(thread_id="b").defer(None)

    assert row.get_deferred_fields() == set()


def test_refreshing_a_row_does_not_read_its_payloads(store: Path) -> None:
    row = Checkpoint.objects.filter(thread_id="b").get()

    asked = statements(row.refresh_from_db)

    assert len(asked) == 1
    assert '."checkpoint"' not in asked[0]


def test_the_turns_of_a_conversation_are_read_from_its_store(store: Path) -> None:
    conversation = Conversation.objects.get()

    turns = list(conversation.turns.all())

    assert len(turns) == 2
    assert turns[0].get_deferred_fields() == {"prompt", "response"}
    assert turns[0].conversation == conversation


def waited(call: Callable[[], Coroutine[Any, Any, Any]]) -> object:
    """Run an asynchronous call to its end."""

    async def wait() -> object:
        return await call()

    return async_to_sync(wait)()


def saved_as_fixture(row: VendorModel) -> None:
    """Save a row the way ``loaddata`` does."""
    for loaded in serializers.deserialize("json", serializers.serialize("json", [row])):
        loaded.save(using="history")


ROW_WRITES: dict[str, Callable[[Any], object]] = {
    "save": lambda row: row.save(),
    "save on an alias": lambda row: row.save(using="history"),
    "asave": lambda row: waited(row.asave),
    "delete": lambda row: row.delete(),
    "adelete": lambda row: waited(row.adelete),
    "fixture": saved_as_fixture,
}

TABLE_WRITES: dict[str, Callable[[Any], object]] = {
    "create": lambda rows: rows.create(pk=1),
    "bulk_create": lambda rows: rows.bulk_create([rows.model()]),
    "bulk_create of nothing": lambda rows: rows.bulk_create([]),
    "bulk_update": lambda rows: rows.bulk_update([rows.model()], ["model"]),
    "get_or_create": lambda rows: rows.get_or_create(pk=1),
    "update_or_create": lambda rows: rows.update_or_create(pk=1),
    "update": lambda rows: rows.update(model="x"),
    "acreate": lambda rows: waited(lambda: rows.acreate(pk=1)),
    "abulk_create": lambda rows: waited(lambda: rows.abulk_create([])),
    "abulk_update": lambda rows: waited(lambda: rows.abulk_update([], ["model"])),
    "aget_or_create": lambda rows: waited(lambda: rows.aget_or_create(pk=1)),
    "aupdate_or_create": lambda rows: waited(lambda: rows.aupdate_or_create(pk=1)),
    "aupdate": lambda rows: waited(lambda: rows.aupdate(model="x")),
    "delete": lambda rows: rows.all().delete(),
    "delete of none": lambda rows: rows.none().delete(),
    "delete on an alias": lambda rows: rows.using("history").delete(),
    "adelete": lambda rows: waited(lambda: rows.all().adelete()),
    "_raw_delete": lambda rows: rows.all()._raw_delete("history"),
}

RELATED_WRITES: dict[str, Callable[[Conversation, Session], object]] = {
    "create": lambda named, _: named.turns.create(ts="x"),
    "get_or_create": lambda named, _: named.turns.get_or_create(pk=1),
    "update_or_create": lambda named, _: named.turns.update_or_create(pk=1),
    "update": lambda named, _: named.turns.update(ts="x"),
    "delete": lambda named, _: named.turns.all().delete(),
    "add": lambda named, turn: named.turns.add(turn),
    "add one by one": lambda named, turn: named.turns.add(turn, bulk=False),
    "remove": lambda named, turn: named.turns.remove(turn),
    "clear": lambda named, _: named.turns.clear(),
    "set": lambda named, _: named.turns.set([]),
    "set anew": lambda named, turn: named.turns.set([turn], clear=True),
    "acreate": lambda named, _: waited(lambda: named.turns.acreate(ts="x")),
    "aclear": lambda named, _: waited(named.turns.aclear),
}


def refused(write: Callable[[], object]) -> list[str]:
    """Return what was asked of any database before the write was refused."""
    with (
        CaptureQueriesContext(connections["history"]) as store,
        CaptureQueriesContext(connections["default"]) as ledger,
        pytest.raises(StoreReadOnly, match=SENTENCE),
    ):
        write()
    return [query["sql"] for query in (*store.captured_queries, *ledger.captured_queries)]


@pytest.mark.parametrize("write", ROW_WRITES.values(), ids=ROW_WRITES)
@pytest.mark.parametrize("model", MODELS)
def test_a_row_refuses_to_be_written_and_names_the_service(
    model: type[VendorModel], write: Callable[[Any], object]
) -> None:
    row = model(**{field.name: 1 for field in model._meta.pk_fields})
    row._state.db = "history"

    assert [asked for asked in refused(lambda: write(row)) if "SAVEPOINT" not in asked] == []


def test_a_new_row_of_a_fixture_is_refused() -> None:
    assert [
        asked
        for asked in refused(lambda: saved_as_fixture(Session(ts="x")))
        if "SAVEPOINT" not in asked
    ] == []


@pytest.mark.parametrize("name", ["save", "delete"])
def test_a_refused_write_tells_no_one_that_it_is_about_to_happen(name: str) -> None:
    told: list[object] = []

    def listen(sender: object, **kwargs: object) -> None:
        told.append(sender)

    pre_save.connect(listen, sender=Conversation)
    pre_delete.connect(listen, sender=Conversation)
    try:
        refused(getattr(Conversation(id=1), name))
    finally:
        pre_save.disconnect(listen, sender=Conversation)
        pre_delete.disconnect(listen, sender=Conversation)

    assert told == []


@pytest.mark.parametrize("write", TABLE_WRITES.values(), ids=TABLE_WRITES)
@pytest.mark.parametrize("model", MODELS)
def test_a_table_refuses_to_be_written_and_names_the_service(
    model: type[VendorModel], write: Callable[[Any], object]
) -> None:
    assert refused(lambda: write(model.objects)) == []


@pytest.mark.parametrize("write", RELATED_WRITES.values(), ids=RELATED_WRITES)
def test_the_turns_of_a_conversation_refuse_to_be_written(
    store: Path, write: Callable[[Conversation, Session], object]
) -> None:
    conversation = Conversation.objects.get()
    turn = conversation.turns.all()[0]
    before = store.read_bytes()

    with pytest.raises(StoreReadOnly, match=SENTENCE):
        write(conversation, turn)

    assert store.read_bytes() == before


@pytest.mark.parametrize("model", MODELS)
def test_django_itself_has_no_other_way_to_the_rows(model: type[VendorModel]) -> None:
    assert type(model._base_manager) is type(model._default_manager) is StoredRows


def test_a_template_cannot_even_try_to_write(store: Path) -> None:
    template = Template("{{ rows.delete }}{{ row.delete }}{{ row.save }}{{ rows.update }}")
    rows = Checkpoint.objects.all()

    assert template.render(Context({"rows": rows, "row": rows[0]})) == ""


def altered(path: Path, *sql: str) -> None:
    """Change the tables of a file to what another version of its agent had created."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in sql:
            connection.execute(statement)
        connection.commit()


def test_a_table_without_its_later_columns_is_read_without_them(store: Path) -> None:
    altered(
        store,
        "DROP INDEX IF EXISTS idx_conversations_thread_id",
        "ALTER TABLE conversations DROP COLUMN thread_id",
        "ALTER TABLE sessions DROP COLUMN conversation_id",
    )

    (conversation,) = Conversation.objects.for_store("history")
    turns = list(Session.objects.for_store("history"))

    assert conversation.get_deferred_fields() == {"thread_id", "grants"}
    assert (conversation.command, len(turns)) == ("chat", 2)
    assert turns[0].get_deferred_fields() == {"conversation_id", "prompt", "response"}


def test_the_columns_that_older_files_lack_are_never_asked_for_unasked(store: Path) -> None:
    conversation = Conversation.objects.get()

    assert Session.objects.all()[0].conversation == conversation
    assert conversation.get_deferred_fields() == {"grants"}


def test_the_short_tables_beside_a_langgraph_saver_are_read(fixture_store: FixtureStore) -> None:
    fixture_store("langgraph/lg-sqlite-with-conversations.db")

    conversation = Conversation.objects.for_store("history")[0]
    turn = Session.objects.for_store("history")[0]

    assert conversation.get_deferred_fields() == {"project", "model", "grants"}
    assert conversation.thread_id
    assert turn.get_deferred_fields() >= {"prompt", "response", "project", "cost_usd"}
    assert turn.conversation_id


def test_writes_of_an_older_saver_are_read_without_their_task_path(
    fixture_store: FixtureStore,
) -> None:
    path = fixture_store("langgraph/lg-sqlite-v1.0.4.db")

    rows = list(LangGraphWrite.objects.for_store("history"))

    assert len(rows) == counts(path)["writes"] > 0
    assert rows[0].get_deferred_fields() == {"task_path", "value"}


@pytest.mark.parametrize("model", MODELS)
def test_a_store_that_is_not_there_has_no_rows_and_is_not_created(
    point_at: Callable[[Path], Path], tmp_path: Path, model: type[VendorModel]
) -> None:
    path = point_at(tmp_path / "none.db")

    assert list(model.objects.for_store("history")) == []
    assert not path.exists()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("alias", [None, "history"])
def test_asking_a_store_that_is_not_there_creates_no_file(
    point_at: Callable[[Path], Path], tmp_path: Path, model: type[VendorModel], alias: str | None
) -> None:
    path = point_at(tmp_path / "none.db")

    with pytest.raises(StoreMissing, match="none was created"):
        model.objects.using(alias).count()

    assert not path.exists()


def test_a_store_on_another_kind_of_database_has_no_rows_yet(
    point_at: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.databases["history"], "ENGINE", "django.db.backends.dummy")
    point_at(tmp_path / "none.db")

    assert Conversation.objects.for_store("history").query.is_empty()


def test_a_store_without_the_table_has_no_rows(fixture_store: FixtureStore) -> None:
    fixture_store("langgraph/lg-sqlite.db")

    assert list(Conversation.objects.for_store("history")) == []
    assert list(CheckpointWrite.objects.for_store("history")) == []


def test_a_table_without_its_key_has_no_rows(store: Path) -> None:
    altered(
        store,
        "ALTER TABLE checkpoints RENAME TO before",
        "CREATE TABLE checkpoints AS SELECT thread_id, checkpoint_ns, checkpoint FROM before",
    )

    assert list(Checkpoint.objects.for_store("history")) == []


def test_a_file_that_is_no_database_is_told_in_a_sentence(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database " * 100)
    point_at(path)

    with pytest.raises(StoreUnreadable, match="is not a SQLite database"):
        Checkpoint.objects.for_store("history")


def test_an_unknown_store_is_told_in_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"'elsewhere' is no store .*; configured: history\."):
        Checkpoint.objects.for_store("elsewhere")


@pytest.mark.parametrize("model", MODELS)
def test_an_agents_table_is_unmanaged_and_can_at_most_be_viewed(model: type[models.Model]) -> None:
    assert model._meta.managed is False
    assert model._meta.default_permissions == ("view",)
    assert [field.name for field in model._meta.fields if field.has_db_default()] == []
