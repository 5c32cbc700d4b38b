"""A first look dates no thread too young, and what it leads to is what a look at every row does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history_retention.facts import FOREVER, NamedThread, Naming
from history_retention.policy import Bounds, Rules, choose, is_still
from history_retention.services import silent
from history_retention.stores import open_store
from history_retention.stores.base import Store
from history_retention.stores.instants import instant_of_id
from project.checkpoint_ids import checkpoint_id_at

from ..store_files import NOW, ConversationRow, write_store

AGES = st.integers(0, 60).map(lambda days: timedelta(days=days))
TIMED = AGES.map(lambda age: checkpoint_id_at(NOW - age, 7))
IDS = st.one_of(
    TIMED,
    TIMED,
    TIMED.map(str.upper),
    st.sampled_from(
        [
            "01jdv0000000000000000000zz",
            "ffffffff-ffff-4fff-8fff-ffffffffffff",
            "019f0000-0000-7000-8000-000000000000",
            "zzzzzzzz-zzzz-6zzz-zzzz-zzzzzzzzzzzz",
            "00000000-0000-6000-8000-000000000000",
            "",
        ]
    ),
    st.sampled_from([b"blob", 7]),
)
THREADS = st.lists(
    st.tuples(st.lists(IDS, max_size=4), st.lists(IDS, max_size=3), st.booleans()),
    min_size=1,
    max_size=6,
)
Rows = list[tuple[list[object], list[object], bool]]


def written(path: Path, threads: Rows) -> Path:
    """Write threads of these ids, checkpoints and writes; some are named."""
    names = [f"t{number}" for number, (_, _, is_named) in enumerate(threads) if is_named]
    write_store(path, [], [ConversationRow(thread_id=n, age=timedelta(days=50)) for n in names])
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, (checkpoints, writes, _) in enumerate(threads):
            connection.executemany(
                "INSERT OR IGNORE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id,"
                " checkpoint) VALUES (?, '', ?, '{}')",
                [(f"t{number}", each) for each in checkpoints],
            )
            connection.executemany(
                "INSERT OR IGNORE INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id,"
                " task_id, idx, channel) VALUES (?, '', ?, 'x', 0, 'c')",
                [(f"t{number}", each) for each in writes],
            )
    return path


def confirmed(store: Store, threads: list[NamedThread], cut: datetime) -> set[str]:
    """Return the threads that are old enough once every row of theirs was looked at."""
    return {
        each.stored.thread_id
        for each in store.weighed(threads)
        if each.last_activity is not None and each.last_activity <= cut
    }


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(threads=THREADS)
def test_the_same_threads_are_taken_as_by_a_look_at_every_row(
    tmp_path_factory: pytest.TempPathFactory, point_at: Callable[[Path], Path], threads: Rows
) -> None:
    point_at(written(tmp_path_factory.mktemp("store") / "store.db", threads))
    rules = Rules(
        now=NOW,
        grace=timedelta(days=1),
        naming=Naming.KNOWN,
        bounds=Bounds(older_than_days=30),
    )

    with open_store("history") as store:
        exact = list(store.indexed_threads(silent))
        glimpsed = list(store.indexed_threads(silent, FOREVER))
        by_rows, by_glimpse = choose(exact, rules), choose(glimpsed, rules)
        cut = NOW - rules.grace
        taken = confirmed(store, by_glimpse.reclaimable, cut)

    assert [each.stored.thread_id for each in glimpsed] == [each.stored.thread_id for each in exact]
    for seen, told in zip(glimpsed, exact, strict=True):
        assert seen.stored.checkpoint_count == told.stored.checkpoint_count
        assert seen.stored.write_count == told.stored.write_count
        if seen.stored.last_activity and told.stored.last_activity:
            assert seen.stored.last_activity <= told.stored.last_activity
        if seen.stored.last_activity is None:
            assert told.stored.last_activity is None
    assert taken == {
        each.stored.thread_id for each in exact
        if not each.conversations and is_still(each.last_activity, rules)
    }  # fmt: skip
    assert {each.stored.thread_id for each in by_rows.prunable} <= {
        each.stored.thread_id for each in by_glimpse.prunable
    }


def test_a_last_id_that_tells_no_time_is_looked_at_row_by_row(
    tmp_path: Path, point_at: Callable[[Path], Path]
) -> None:
    timed = checkpoint_id_at(NOW - timedelta(days=40), 7)
    rows: Rows = [([timed, "zzz"], [], False), ([timed], [], False)]
    point_at(written(tmp_path / "store.db", rows))

    with open_store("history") as store:
        odd, plain = store.indexed_threads(silent, FOREVER)

    assert (odd.stored.last_activity, odd.stored.fingerprint != b"") == (None, True)
    assert plain.stored.last_activity == instant_of_id(timed)
    assert plain.stored.fingerprint == b""
