from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from history_retention import services
from history_retention.facts import Conversation, KeepReason, Naming, SkipReason, State
from history_retention.models import Measurement, Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger, silent
from history_retention.stores import open_store
from history_retention.stores.spelling import named_by, spelled_in_columns

from ..conftest import WriteStore
from ..store_files import (
    NOW,
    ConversationRow,
    Layout,
    ThreadRows,
    add_conversations,
    rows_of,
    threads_in,
    write_store,
)
from .tracing import statements

DAY = timedelta(days=1)
A_UUID = "8958c795-04a3-4ee6-844e-1a70d848efbe"
BOTH: tuple[Layout, ...] = ("gaunt_sloth", "langgraph_sqlite")


def run(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def conversations(thread_id: str = "a") -> tuple[Conversation, ...]:
    with open_store("history") as store:
        found = {t.stored.thread_id: t.conversations for t in store.indexed_threads(silent)}
    return found[thread_id]


def naming() -> tuple[Naming, tuple[str, ...]]:
    with open_store("history") as store:
        return store.naming, store.notes


def states() -> dict[str, str]:
    services.measure("history", now=NOW)
    return dict(Thread.objects.values_list("thread_id", "state"))


def test_a_conversations_activity_is_its_newest_turn(written_store: WriteStore) -> None:
    turns = [5 * DAY, 2 * DAY, 9 * DAY]
    written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", turns=turns)])

    assert conversations() == (
        Conversation(
            conversation_id=1,
            last_activity=NOW - 2 * DAY,
            turn_count=3,
            command="chat",
            project="/srv/app",
        ),
    )


def test_a_conversation_without_a_turn_was_active_when_it_started(
    written_store: WriteStore,
) -> None:
    written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", age=7 * DAY)])

    (found,) = conversations()

    assert (found.last_activity, found.turn_count) == (NOW - 7 * DAY, 0)


def test_turns_are_counted_across_the_chunks_they_are_read_in(written_store: WriteStore) -> None:
    turns = [timedelta(minutes=minute) for minute in range(1, 6_001)]
    written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")],
        [
            ConversationRow(thread_id="a", turns=turns),
            ConversationRow(thread_id="b", turns=[DAY]),
        ],
    )

    assert [(c.turn_count, c.last_activity) for c in conversations("a") + conversations("b")] == [
        (6_000, NOW - timedelta(minutes=1)),
        (1, NOW - DAY),
    ]


def test_conversations_of_one_thread_come_in_the_order_of_their_ids(
    written_store: WriteStore,
) -> None:
    rows = [ConversationRow(thread_id="a", command=command) for command in ("chat", "code", "ask")]
    written_store([ThreadRows(thread_id="a")], rows)

    found = conversations()

    assert [(c.conversation_id, c.command) for c in found] == [(1, "chat"), (2, "code"), (3, "ask")]


def test_many_conversations_name_their_threads_whatever_their_order(
    written_store: WriteStore,
) -> None:
    names = [f"t{number * 7919 % 6_000:05}" for number in range(6_000)]
    written_store(
        [ThreadRows(thread_id=name, writes=0) for name in names[::3]],
        [ConversationRow(thread_id=name) for name in names if not name.endswith("7")],
    )

    with open_store("history") as store:
        found = {t.stored.thread_id: t.conversations for t in store.indexed_threads(silent)}

    expected = {name: name[-1] != "7" for name in names[::3]}
    assert {name: len(rows) == 1 for name, rows in found.items()} == expected
    assert sum(expected.values()) == 1_800


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("2026-10-01T00:00:00Z", datetime(2026, 10, 1, tzinfo=UTC)),
        ("2026-10-01T14:00:00+14:00", datetime(2026, 10, 1, tzinfo=UTC)),
        ("2026-09-30T13:00:00-11:00", datetime(2026, 10, 1, tzinfo=UTC)),
        ("2026-10-01 00:00:00", datetime(2026, 10, 1, tzinfo=UTC)),
        ("yesterday", None),
        ("", None),
        ("1759276800", None),
    ],
)
def test_a_start_and_a_turn_are_instants_or_unknown(
    written_store: WriteStore, stamp: str, expected: datetime | None
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="b")],
        [ConversationRow(thread_id="a"), ConversationRow(thread_id="b", turns=[DAY])],
    )
    run(
        path,
        f"UPDATE conversations SET started_ts = '{stamp}' WHERE id = 1",
        f"UPDATE sessions SET ts = '{stamp}'",
    )

    assert [c.last_activity for c in conversations("a") + conversations("b")] == [expected] * 2


def test_a_turn_of_unknown_time_keeps_its_thread_whatever_the_others_tell(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", turns=[50 * DAY, 60 * DAY])]
    )
    run(path, "UPDATE sessions SET ts = 'soon' WHERE id = 1")

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert plan.prunable == ()
    assert [(k.thread_id, k.reason) for k in plan.kept] == [("a", KeepReason.UNKNOWN_AGE)]


@pytest.mark.parametrize("turn", [timedelta(days=30), timedelta(days=30, milliseconds=1)])
def test_turns_are_compared_as_instants_and_not_as_text(
    written_store: WriteStore, turn: timedelta
) -> None:
    path = written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", turns=[DAY])])
    elsewhere = (NOW - turn).astimezone(UTC) - timedelta(hours=11)
    stamp = elsewhere.isoformat().replace("+00:00", "-11:00")
    run(path, f"UPDATE sessions SET ts = '{stamp}'")

    plan = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert len(plan.prunable) == (turn > timedelta(days=30))


@pytest.mark.parametrize("layout", BOTH)
def test_null_names_no_thread(written_store: WriteStore, layout: Layout) -> None:
    written_store(
        [ThreadRows(thread_id="None"), ThreadRows(thread_id="")],
        [ConversationRow(thread_id=None)],
        layout=layout,
    )

    assert states() == {"None": State.UNRESUMABLE, "": State.UNRESUMABLE}


@pytest.mark.parametrize(
    ("layout", "state"),
    [("gaunt_sloth", State.UNRESUMABLE), ("langgraph_sqlite", State.RESUMABLE)],
)
def test_an_empty_name_names_the_empty_thread_where_that_is_legal(
    written_store: WriteStore, layout: Layout, state: State
) -> None:
    path = written_store([ThreadRows(thread_id="")], [ConversationRow(thread_id="")], layout=layout)

    assert states() == {"": state}
    services.execute(services.plan_reclaim("history", now=NOW), trigger=Trigger.CODE)
    assert threads_in(path) == ({""} if state is State.RESUMABLE else set())


def test_names_are_told_apart_by_case_and_space(written_store: WriteStore) -> None:
    written_store(
        [ThreadRows(thread_id=name) for name in ("a", "A", " a", "a ", "ä", "%")],
        [ConversationRow(thread_id="a"), ConversationRow(thread_id="_")],
    )

    named = {thread_id for thread_id, state in states().items() if state == State.RESUMABLE}

    assert named == {"a"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("TEXT", uuid.UUID(A_UUID).hex),
        ("TEXT", uuid.UUID(A_UUID).hex.upper()),
        ("char(32)", uuid.UUID(A_UUID).hex),
        ("BLOB", uuid.UUID(A_UUID).bytes),
        ("BLOB", A_UUID.encode()),
        ("", A_UUID),
    ],
)
@pytest.mark.parametrize("layout", BOTH)
def test_a_uuid_names_its_thread_however_the_column_spells_it(
    point_at: Callable[[Path], Path], tmp_path: Path, layout: Layout, column: str, value: object
) -> None:
    path = write_store(tmp_path / "store.db", [ThreadRows(thread_id=A_UUID)], None, layout=layout)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"CREATE TABLE conversations (id INTEGER PRIMARY KEY, thread_id {column},"
            " started_ts TEXT)"
        )
        connection.execute(
            "INSERT INTO conversations VALUES (7, ?, '2026-10-01T00:00:00Z')", [value]
        )
    point_at(path)

    reclaimed = services.plan_reclaim("history", now=NOW)
    pruned = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert reclaimed.threads == ()
    assert [t.conversation_ids for t in pruned.prunable] == [(7,)]


def test_a_thread_named_in_another_spelling_is_found_again_when_its_turn_comes(
    written_store: WriteStore,
) -> None:
    names = {thread_id: uuid.UUID(thread_id) for thread_id in (str(uuid.uuid4()) for _ in "abc")}
    path = written_store([ThreadRows(thread_id=name) for name in names])
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in (a_uuid.hex for a_uuid in names.values()):
            connection.execute(
                "INSERT INTO conversations (started_ts, thread_id) VALUES ('2026-10-01T00:00Z', ?)",
                [value],
            )

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert (outcome.removed.thread_count, outcome.skipped) == (3, ())


def test_an_unnamed_thread_that_gains_a_name_in_another_spelling_is_left(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id=A_UUID), ThreadRows(thread_id="b")])
    plan = services.plan_reclaim("history", now=NOW)
    add_conversations(path, [ConversationRow(thread_id=uuid.UUID(A_UUID).hex)])

    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [(s.thread_id, s.reason) for s in outcome.skipped] == [(A_UUID, SkipReason.NAMED)]
    assert threads_in(path) == {A_UUID}


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("a", ["a"]),
        (42, ["42"]),
        (A_UUID, [A_UUID]),
        (A_UUID.upper(), [A_UUID.upper()]),
        (uuid.UUID(A_UUID), [A_UUID, uuid.UUID(A_UUID).hex]),
        (uuid.UUID(A_UUID).hex, [uuid.UUID(A_UUID).hex, A_UUID]),
        (b"\xff", ["\udcff"]),
    ],
)
def test_what_a_value_names(value: object, threads: list[str]) -> None:
    assert named_by(value) == threads


def test_every_spelling_that_names_a_thread_is_asked_for() -> None:
    texts, blobs = spelled_in_columns([A_UUID, "b"])

    assert all(A_UUID in named_by(value) for value in (*texts[:2], *blobs[:2]))
    assert (texts[2:], blobs[2:]) == (["b"], [b"b"])


def test_an_integer_column_names_threads_of_digits(
    point_at: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write_store(
        tmp_path / "store.db",
        [ThreadRows(thread_id="42"), ThreadRows(thread_id="042")],
        None,
        layout="langgraph_sqlite",
    )
    run(
        path,
        "CREATE TABLE conversations (id INTEGER PRIMARY KEY, thread_id INTEGER, started_ts TEXT)",
        "INSERT INTO conversations VALUES (1, 42, '2026-10-01T00:00:00Z')",
    )
    point_at(path)

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert [t.thread_id for t in plan.prunable] == ["42"]
    assert [t.thread_id for t in plan.reclaimable] == ["042"]
    assert (outcome.removed.thread_count, outcome.skipped) == (2, ())


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("TEXT", "c-1", "c-1"),
        ("BLOB", b"\x00\xff", "00ff"),
        ("TEXT", None, "None"),
    ],
)
def test_a_conversations_id_of_any_kind_can_be_printed_and_kept(
    point_at: Callable[[Path], Path], tmp_path: Path, kind: str, value: object, told: str
) -> None:
    path = write_store(
        tmp_path / "store.db", [ThreadRows(thread_id="a")], None, layout="langgraph_sqlite"
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            f"CREATE TABLE conversations (id {kind} PRIMARY KEY, thread_id TEXT, started_ts TEXT)"
        )
        connection.execute(
            "INSERT INTO conversations VALUES (?, 'a', '2026-10-01T00:00:00Z')", [value]
        )
    point_at(path)

    services.measure("history", now=NOW)
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    outcome = services.execute(plan, trigger=Trigger.CODE)

    assert plan.prunable[0].conversation_ids == (told,)
    assert (outcome.removed.thread_count, outcome.skipped) == (1, ())


def test_turns_of_a_file_whose_sessions_have_no_conversation_are_not_guessed(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a")], [ConversationRow(thread_id="a", age=50 * DAY, turns=[DAY])]
    )
    run(path, "ALTER TABLE sessions DROP COLUMN conversation_id")

    (found,) = conversations()
    readout = services.measure("history", now=NOW)

    assert (found.last_activity, found.turn_count) == (NOW - 50 * DAY, 0)
    assert (readout.conversation_count, readout.turn_count) == (1, 1)
    assert readout.transcript_bytes == len("a questionan answer")


@pytest.mark.parametrize("layout", BOTH)
def test_a_file_without_sessions_goes_by_the_start_of_its_conversations(
    written_store: WriteStore, layout: Layout
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a")],
        [ConversationRow(thread_id="a", age=50 * DAY, turns=[DAY])],
        layout=layout,
    )
    run(path, "DROP TABLE sessions")

    (found,) = conversations()
    readout = services.measure("history", now=NOW)

    assert (found.last_activity, found.turn_count) == (NOW - 50 * DAY, 0)
    assert (readout.turn_count, readout.transcript_bytes) == (0, 0)


def test_conversations_that_tell_no_start_keep_their_threads(written_store: WriteStore) -> None:
    path = written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a")])
    run(
        path, *(f"ALTER TABLE conversations DROP COLUMN {name}" for name in ("started_ts", "model"))
    )

    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)

    assert [(k.thread_id, k.reason) for k in plan.kept] == [("a", KeepReason.UNKNOWN_AGE)]
    assert plan.threads == ()


def test_conversations_without_command_and_project_have_empty_ones(
    written_store: WriteStore,
) -> None:
    path = written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a")])
    run(path, *(f"ALTER TABLE conversations DROP COLUMN {name}" for name in ("command", "project")))

    (found,) = conversations()

    assert (found.command, found.project) == ("", "")


@pytest.mark.parametrize("statement", ["DROP TABLE conversations", "ALTER TABLE {} DROP COLUMN {}"])
def test_a_gaunt_sloth_file_that_names_nothing_is_read_and_never_pruned(
    written_store: WriteStore, statement: str
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a", age=400 * DAY)], [ConversationRow(thread_id="a")]
    )
    run(
        path,
        "DROP INDEX idx_conversations_thread_id",
        statement.format("conversations", "thread_id"),
    )
    before = rows_of(path)

    told, notes = naming()
    readout = services.measure("history", now=NOW)
    plan = services.plan_prune("history", Bounds(everything=True), now=NOW)
    chosen = services.plan_prune(
        "history", Bounds(thread_ids=frozenset("a")), now=NOW, reclaim=False
    )

    assert told is Naming.BROKEN
    assert "so nobody can tell which threads can be resumed" in notes[0]
    assert readout.notes == plan.notes == notes
    assert (readout.thread_count, readout.unresumable.thread_count) == (1, 0)
    assert Thread.objects.get().state == State.UNTOLD
    assert (plan.threads, chosen.threads) == ((), ())
    assert rows_of(path) == before


def test_orphan_writes_of_a_gaunt_sloth_file_that_names_nothing_can_go(
    written_store: WriteStore,
) -> None:
    path = written_store(
        [ThreadRows(thread_id="a"), ThreadRows(thread_id="w", checkpoints=0, writes=2)], None
    )

    plan = services.plan_reclaim("history", now=NOW, orphan_writes=True)
    services.execute(plan, trigger=Trigger.CODE)

    assert [t.thread_id for t in plan.reclaimable] == ["w"]
    assert threads_in(path, "checkpoint_writes") == {"a"}


@pytest.mark.parametrize("table", [None, "CREATE TABLE conversations (id INTEGER, title TEXT)"])
def test_a_langgraph_file_that_names_nothing_addresses_threads_by_their_ids(
    written_store: WriteStore, table: str | None
) -> None:
    path = written_store([ThreadRows(thread_id="a")], None, layout="langgraph_sqlite")
    if table:
        run(path, table)

    told, notes = naming()

    assert told is Naming.ABSENT
    assert "set CONVERSATIONS of 'history'" in notes[0]
    assert states() == {"a": State.RESUMABLE}
    assert Measurement.objects.get().unresumable_count == 0


def test_an_empty_conversations_table_names_nothing(written_store: WriteStore) -> None:
    written_store([ThreadRows(thread_id="a"), ThreadRows(thread_id="b", age=timedelta(hours=1))])

    assert states() == {"a": State.UNRESUMABLE, "b": State.GRACE}


def test_no_index_on_the_naming_column_costs_no_statement_more(written_store: WriteStore) -> None:
    path = written_store(
        [ThreadRows(thread_id=f"t{n}", age=40 * DAY) for n in range(300)],
        [ConversationRow(thread_id=f"t{n}") for n in range(0, 300, 2)],
    )
    with statements() as indexed:
        before = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)
    run(path, "DROP INDEX idx_conversations_thread_id")

    with statements() as bare:
        after = services.plan_prune("history", Bounds(older_than_days=30), now=NOW)

    assert len(before.threads) == 300
    assert before == after
    assert bare == indexed


def test_the_number_of_statements_of_a_choice_does_not_grow_with_threads(
    written_store: WriteStore,
) -> None:
    def plan() -> int:
        with statements() as seen:
            services.plan_prune("history", Bounds(older_than_days=365), now=NOW)
        return len(seen)

    path = written_store([ThreadRows(thread_id="a")], [ConversationRow(thread_id="a")])
    few = plan()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)"
            " INSERT INTO checkpoints SELECT 'b' || i, '', checkpoint_id, NULL, type, checkpoint,"
            " metadata FROM checkpoints, n;"
            " INSERT INTO conversations (started_ts, thread_id)"
            " SELECT '2026-10-01T00:00:00Z', thread_id FROM checkpoints;"
        )

    assert plan() == few


@pytest.mark.parametrize("text", [None, "", "größe ☃", "x" * 20_000])
def test_transcripts_are_measured_in_bytes_and_read_few_at_a_time(
    written_store: WriteStore, text: str | None
) -> None:
    path = written_store([], [ConversationRow(thread_id="a")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO sessions (ts, command, prompt, response, conversation_id)"
            " VALUES ('2026-10-01T00:00:00Z', 'chat', 'ä', ?, 1)",
            [(text,)] * 1_100,
        )

    with statements() as seen, open_store("history") as store:
        totals = store.conversation_totals()

    read = [statement for statement in seen if "FROM sessions" in statement]
    needs_whole_texts = sqlite3.sqlite_version_info < (3, 43)
    assert totals == (1, 1_100, 1_100 * (2 + len((text or "").encode())))
    assert len(read) == (4 if needs_whole_texts else 2)
