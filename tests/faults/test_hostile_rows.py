"""Rows that no agent writes: read without a traceback, kept where in doubt, removed exactly."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from history_retention.models import Thread
from project.checkpoint_ids import checkpoint_id_at

from ..commands import run
from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, write_store
from .children import command, started
from .commands import READOUT

IDLE_FOR_30_DAYS = ["history_prune", "--older-than=30", "--no-input"]
PRUNE_JSON = [*IDLE_FOR_30_DAYS, "--format=json"]

FRESH = timedelta(hours=1)
BESIDE = ["Plain", "plain ", "pla", "plain%", "pl_in", "*"]
"""Ids that stay: beside any of the hostile ones, and alike to some."""

HOSTILE = {
    "statement": "'; DROP TABLE checkpoints; --",
    "quotes": "\"`'[]'\"`",
    "placeholders": "%s %(a)s ? :a $1 {0} {x!r}",
    "pattern": "%",
    "one character": "_",
    "glob": "[a-z]*?",
    "newlines": "one\r\ntwo\n\nthree",
    "escapes": "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "right to left": "\u202etxt.exe\u2066",
    "emoji": "\U0001f469\u200d\U0001f4bb",
    "highest": "\U0010ffff",
    "blank": " ",
    "number": "007",
    "json": '{"$gt": ""}',
    "path": "../../etc/passwd",
    "null": "NULL",
    "one million": "x" * 1_000_000,
}
KEPT = {
    "nul": b"a\0b",
    "no text": b"\xff\xfe",
    "half a pair": b"\xed\xa0\x80",
    "cut": b"abc\xe2\x82",
}


@pytest.fixture
def beside(frozen_clock: object, written_store: WriteStore) -> Path:
    """A store of fresh threads, each of them named, and one that is idle."""
    threads = [ThreadRows(thread_id=thread_id, age=FRESH) for thread_id in BESIDE]
    names = [ConversationRow(thread_id=thread_id, age=FRESH) for thread_id in BESIDE]
    return written_store(
        [*threads, ThreadRows(thread_id="plain")], [*names, ConversationRow(thread_id="plain")]
    )


def execute(path: Path, *statements: tuple[str, Any]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql, params in statements:
            connection.execute(sql, params)


def rename(path: Path, raw: bytes, old: str = "plain") -> None:
    """Give a thread any bytes as its id."""
    for table in ("checkpoints", "checkpoint_writes", "conversations"):
        change = f"UPDATE {table} SET thread_id = CAST(? AS TEXT) WHERE thread_id = ?"
        execute(path, (change, (raw, old)))


def ids_in(path: Path, table: str = "checkpoints") -> set[bytes]:
    """Return the thread ids of a table as bytes."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            row[0] for row in connection.execute(f"SELECT CAST(thread_id AS BLOB) FROM {table}")
        }


@pytest.mark.parametrize("thread_id", HOSTILE.values(), ids=HOSTILE)
def test_a_thread_of_any_id_is_shown_harmlessly_and_goes_alone(
    beside: Path, thread_id: str
) -> None:
    rename(beside, thread_id.encode())

    text, kept, dry = (
        run(*READOUT, "--top=20"),
        run(*READOUT, "--format=json", "--top=20"),
        run(*IDLE_FOR_30_DAYS, "--dry-run"),
    )
    ran = run(*PRUNE_JSON)

    assert (text.status, kept.status, dry.status, ran.status) == (0, 0, 0, 0)
    for line in text.out.split("\n") + dry.out.split("\n"):
        assert line.isprintable()
        assert len(line) < 250
    assert thread_id in {row["thread_id"] for row in kept.document["largest_threads"]}
    assert [row["thread_id"] for row in ran.document["prunable"]] == [thread_id]
    assert ran.document["removed"]["thread_count"] == 1
    assert ids_in(beside) == ids_in(beside, "checkpoint_writes") == {i.encode() for i in BESIDE}
    assert set(Thread.objects.values_list("thread_id", flat=True)) == set(BESIDE)


@pytest.mark.parametrize("raw", KEPT.values(), ids=KEPT)
def test_a_thread_whose_id_is_no_text_is_kept_and_said(beside: Path, raw: bytes) -> None:
    rename(beside, raw)

    readout, ran = run(*READOUT, "--top=20"), run(*PRUNE_JSON)

    assert (readout.status, ran.status) == (0, 0)
    assert all(line.isprintable() for line in readout.out.split("\n"))
    assert [row["reason"] for row in ran.document["kept"]] == ["unknown_age"]
    assert ids_in(beside) == {raw, *(thread_id.encode() for thread_id in BESIDE)}
    assert Thread.objects.count() == len(BESIDE) + 1


@pytest.mark.parametrize(
    ("change", "params"),
    [
        ("UPDATE conversations SET project = ?, command = ?", ("\x1b[2J\n" * 9_000, "a\0b" * 999)),
        ("UPDATE conversations SET project = CAST(? AS TEXT), command = ?", (b"\xff\xfe", b"\xff")),
        ("UPDATE conversations SET project = ?, command = ?", (1.5, 7)),
        ("UPDATE conversations SET model = zeroblob(10000000 + ? + ?)", (0, 0)),
    ],
    ids=["escapes", "no text", "numbers", "a blob"],
)
def test_what_a_conversation_says_of_itself_is_shown_harmlessly_and_decides_nothing(
    beside: Path, change: str, params: tuple[Any, ...]
) -> None:
    execute(beside, (change, params))

    readout, dry, ran = run(*READOUT), run(*IDLE_FOR_30_DAYS, "--dry-run"), run(*PRUNE_JSON)

    assert (readout.status, dry.status, ran.status) == (0, 0, 0)
    assert all(line.isprintable() for line in (readout.out + dry.out).split("\n"))
    assert ids_in(beside) == {thread_id.encode() for thread_id in BESIDE}


OTHER_IDS = {
    "text": "CAST(id AS TEXT)",
    "blob": "CAST(id AS BLOB)",
    "no text": "CAST(x'ff' || id AS TEXT)",
    "infinite": "id * 9e999",
    "half": "id + 0.5",
    "beyond any integer": "id * 1e300",
    "large": "id + 9223372036854775000",
}


@pytest.mark.parametrize("expression", OTHER_IDS.values(), ids=OTHER_IDS)
@pytest.mark.parametrize("has_new_turn", [False, True], ids=["idle", "with a new turn"])
def test_conversations_are_told_apart_by_ids_of_any_type(
    beside: Path, expression: str, has_new_turn: bool
) -> None:
    execute(
        beside,
        ("ALTER TABLE conversations RENAME TO before", ()),
        ("CREATE TABLE conversations (id, started_ts TEXT, project, command, thread_id TEXT)", ()),
        (f"INSERT INTO conversations SELECT {expression}, started_ts, project, command, thread_id"
         " FROM before", ()),
        ("ALTER TABLE sessions RENAME TO turns", ()),
        ("CREATE TABLE sessions (ts TEXT, conversation_id)", ()),
    )  # fmt: skip
    if has_new_turn:
        execute(
            beside,
            ("INSERT INTO sessions SELECT '2026-11-30T11:50:00Z', id FROM conversations"
             " WHERE thread_id = 'plain'", ()),
        )  # fmt: skip

    ran = run(*PRUNE_JSON)

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 0 if has_new_turn else 1)
    json.dumps(ran.document, allow_nan=False)


@pytest.mark.parametrize("kind", ["TEXT", "INTEGER", "REAL", "BLOB"])
def test_a_turn_belongs_to_its_conversation_whatever_type_its_column_has(
    beside: Path, kind: str
) -> None:
    execute(
        beside,
        ("ALTER TABLE sessions RENAME TO turns", ()),
        (f"CREATE TABLE sessions (ts TEXT, conversation_id {kind})", ()),
        ("INSERT INTO sessions SELECT '2026-11-30T11:50:00Z', id FROM conversations"
         " WHERE thread_id = 'plain'", ()),
    )  # fmt: skip

    ran = run(*PRUNE_JSON)

    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, 0)


@pytest.mark.parametrize(
    "ts",
    ["yesterday", "", None, 0, 1.5, b"2026", "2026-13-45T99:99:99Z", "9" * 100_000, "0001-01-01",
     "2026-10-21T12:00:00+99:99", "\uff12\uff10\uff12\uff16-10-21T12:00:00Z"],
    ids=lambda ts: repr(ts)[:30],
)  # fmt: skip
def test_turns_that_tell_no_time_keep_their_threads(beside: Path, ts: object) -> None:
    execute(
        beside,
        ("ALTER TABLE sessions RENAME TO turns", ()),
        ("CREATE TABLE sessions (ts, conversation_id INTEGER)", ()),
        ("INSERT INTO sessions SELECT ?, id FROM conversations", (ts,)),
    )

    readout, ran = run(*READOUT), run(*PRUNE_JSON)

    assert (readout.status, ran.status) == (0, 0)
    assert ran.document["removed"]["thread_count"] == 0
    assert {row["reason"] for row in ran.document["kept"]} == {"unknown_age"}


PAYLOADS = {
    "nothing": None,
    "empty": b"",
    "text": "é" * 500,
    "number": 3.5,
    "deep": b'{"a":' + b"[" * 190,
    "deeper": b'{"a":' * 40,
    "a huge number": b'{"v":' + b"9" * 190 + b"}",
    "endless text": b'{"' + b"x" * 300,
    "a pickle": b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.",
    "msgpack without end": b"\xdf\xff\xff\xff\xff" + b"\xff" * 200,
    "msgpack of nothing": b"\xde\xff\xff" * 60,
    "zeros": bytes(300),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("timed", [True, False], ids=["timed id", "odd id"])
def test_a_payload_of_anything_is_measured_and_never_taken_for_a_time(
    beside: Path, payload: Any, timed: bool
) -> None:
    execute(
        beside,
        ("UPDATE checkpoints SET checkpoint = ?, metadata = ? WHERE thread_id = 'plain'",
         (payload, payload)),
    )  # fmt: skip
    if not timed:
        execute(
            beside, ("UPDATE checkpoints SET checkpoint_id = 'x' WHERE thread_id = 'plain'", ())
        )

    readout, ran = run(*READOUT, "--format=json", "--top=20"), run(*PRUNE_JSON)

    (found,) = [r for r in readout.document["largest_threads"] if r["thread_id"] == "plain"]
    size = len(payload if isinstance(payload, bytes) else str(payload or "").encode())
    assert found["bytes"] == 2 * size + 100
    assert (ran.status, ran.document["removed"]["thread_count"]) == (0, int(timed))


IDS = {
    "empty": "",
    "undefined": "undefined",
    "version 7": "019c2f6e-0000-7000-8000-000000000000",
    "version 4": "0b0d8f3a-5e0c-4a3e-9f0e-0123456789ab",
    "a ULID": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "the end of time": "ffffffff-ffff-6fff-bfff-ffffffffffff",
    "the beginning": "00000000-0000-6000-8000-000000000000",
    "tomorrow": checkpoint_id_at(NOW + timedelta(days=1), 0),
    "a blob": b"1f1cd46a-97ad-6400-8000-000000000000",
    "a statement": "' OR 1=1 --",
    "with nul": "1f1cd46a-97ad-6400-8000-000000000000\0",
    "fullwidth": "1f1cd46a-97ad-6400-8000-00000000000\uff10",
    "with a newline": "1f1cd46a-97ad-6400-8000-000000000000\n",
}


@pytest.mark.parametrize("checkpoint_id", IDS.values(), ids=IDS)
def test_an_id_that_tells_no_past_keeps_its_thread_when_the_payload_tells_none(
    beside: Path, checkpoint_id: object
) -> None:
    change = "UPDATE {} SET checkpoint_id = ?{} WHERE thread_id = 'plain'"
    execute(
        beside,
        (change.format("checkpoints", ", checkpoint = x'00'"), (checkpoint_id,)),
        (change.format("checkpoint_writes", ""), (checkpoint_id,)),
    )

    readout, ran = run(*READOUT), run(*PRUNE_JSON)

    assert (readout.status, ran.status) == (0, 0)
    assert ran.document["removed"]["thread_count"] == 0
    assert b"plain" in ids_in(beside)


def test_a_thread_of_half_a_million_rows_and_one_of_a_hundred_megabytes_go_in_little_memory(
    tmp_path: Path, ledger: Path
) -> None:
    threads = [ThreadRows(thread_id="many"), ThreadRows(thread_id="large")]
    store = write_store(tmp_path / "history.db", threads, [], now=datetime.now(UTC))
    execute(
        store,
        ("UPDATE checkpoints SET checkpoint = zeroblob(100000000) WHERE thread_id = 'large'", ()),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500000)"
         " INSERT INTO checkpoint_writes SELECT thread_id, '', checkpoint_id, 'task', i + 1, '',"
         " '', x'00' FROM checkpoints, n WHERE thread_id = 'many'", ()),
    )  # fmt: skip

    with started(command, store, ledger, *PRUNE_JSON, reports_memory=True) as child:
        ran, peak_bytes = child.heard(), child.heard()

    assert ran.document["removed"]["thread_count"] == 2
    assert ran.document["removed"]["write_count"] == 500_002
    assert ids_in(store) == ids_in(store, "checkpoint_writes") == set()
    assert store.stat().st_size < 100_000
    assert peak_bytes < 60_000_000
