"""The list of threads: totals, columns, filters, search, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from history_retention import services
from history_retention.models import Sweep, Thread

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows
from .conftest import Keys, SignIn
from .pages import MEASURE, THREADS, listed, page_of, prune, text_of


def test_before_the_first_measuring_the_list_says_so_and_offers_to_measure(
    written_store: WriteStore, sign_in: SignIn
) -> None:
    written_store([ThreadRows(thread_id="one")])
    page = sign_in("view_thread", "measure_thread").get(THREADS)
    assert "Not measured yet, so there is nothing to list." in text_of(page)
    assert f'action="{MEASURE}?store=history"' in page.content.decode()


def test_without_its_permission_measuring_is_not_offered(measured: Path, sign_in: SignIn) -> None:
    page = sign_in("view_thread").get(THREADS)
    assert MEASURE not in page.content.decode()
    assert "Reclaim…" not in text_of(page)
    assert "Vacuum…" not in text_of(page)


def test_the_totals_are_those_of_the_vendors_own_algorithm(
    fixture_store: Callable[[str], Path],
    fixtures: Path,
    superuser: Client,
    frozen_clock: object,
) -> None:
    path = fixture_store("gaunt_sloth/history.db")
    stats = json.loads((fixtures / "gaunt_sloth/history.expected.json").read_text())["stats"]
    services.measure("history", now=NOW)
    (totals,) = superuser.get(THREADS).context["cl"].totals
    assert totals.measurement.file_bytes == path.stat().st_size
    assert totals.measurement.checkpoint_bytes == stats["checkpointBytes"]
    assert totals.measurement.thread_count == 16
    assert totals.measurement.unresumable_count == 7
    assert totals.measurement.reclaimable_count == 3


def test_the_totals_are_on_the_page_as_sizes(measured: Path, superuser: Client) -> None:
    text = text_of(superuser.get(THREADS))
    assert "Threads 6" in text
    assert "Unresumable 3" in text
    assert "Reclaimable now 2" in text
    assert "Measured 2026-11-30 12:00, 10 minutes ago." in text.replace("\xa0", " ")


def test_the_largest_thread_comes_first(measured: Path, superuser: Client) -> None:
    threads = listed(superuser.get(THREADS))
    sizes = [Thread.objects.get(thread_id=thread_id).byte_count for thread_id in threads]
    assert threads[0] == "large"
    assert sizes == sorted(sizes, reverse=True)


def test_each_thread_tells_its_share_of_the_store(
    written_store: WriteStore, superuser: Client
) -> None:
    written_store(
        [
            ThreadRows(thread_id="three", size=3_000, writes=0),
            ThreadRows(thread_id="one", size=1_000, writes=0),
        ]
    )
    services.measure("history", now=NOW)
    text = text_of(superuser.get(THREADS))
    assert "74.5 %" in text
    assert "25.5 %" in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?state=unresumable", {"lost-1", "lost-2"}),
        ("?state=grace", {"clearing"}),
        ("?state=nonsense", set()),
        ("?command=code", {"large"}),
        ("?project=/srv/shop", {"small"}),
        ("?project=", {"lost-1", "lost-2", "clearing"}),
        ("?idle=30", {"large", "small", "lost-1", "lost-2"}),
        ("?idle=90", set()),
        ("?idle=thirty", {"large", "small", "recent", "lost-1", "lost-2", "clearing"}),
        ("?store=history&state=resumable", {"large", "small", "recent"}),
        ("?store=elsewhere", set()),
        ("?q=lost", {"lost-1", "lost-2"}),
        ("?q=LOST-1&state=resumable", set()),
    ],
)
def test_filters_and_search_list_exactly(
    measured: Path, superuser: Client, query: str, expected: set[str]
) -> None:
    assert set(listed(superuser.get(THREADS + query))) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("12", {"twelve", "several"}),
        ("2", {"several"}),
        ("1", {"several"}),
        ("112", {"several"}),
        ("chat-a", {"text"}),
        ("chat", set()),
        ('"chat-a"', {"text"}),
        ("%", set()),
    ],
)
def test_a_conversation_is_found_by_its_whole_id(
    db: None, superuser: Client, asked: str, expected: set[str]
) -> None:
    for thread_id, conversation_ids in {
        "twelve": [12],
        "several": [1, 12, 112, 2],
        "text": ["chat-a"],
        "none": [],
    }.items():
        _add_thread(thread_id, conversation_ids=conversation_ids)
    assert set(listed(superuser.get(THREADS, {"q": asked}))) == expected


def test_an_unknown_activity_is_never_idle(db: None, superuser: Client) -> None:
    _add_thread("undated", last_activity=None)
    _add_thread("old", last_activity=NOW - timedelta(days=800))
    assert listed(superuser.get(THREADS + "?idle=365")) == ["old"]


def test_every_store_has_totals_and_the_filtered_one_alone(
    measured: Path, second_store: Path, superuser: Client
) -> None:
    services.measure("other", now=NOW)
    everything = superuser.get(THREADS)
    filtered = superuser.get(THREADS + "?store=other")
    assert [each.store for each in everything.context["cl"].totals] == ["history", "other"]
    assert [each.store for each in filtered.context["cl"].totals] == ["other"]
    assert listed(filtered) == ["small"]
    assert "store" in everything.context["cl"].list_display


def test_the_page_says_when_a_sweep_came_after_the_measurement(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    before = text_of(superuser.get(THREADS))
    prune(superuser, keys("small"))
    after = text_of(superuser.get(THREADS))
    assert "measure again" not in before
    assert "measure again" in after
    assert Sweep.objects.count() == 1


def test_without_a_store_the_page_says_what_to_add(
    superuser: Client, retention: Callable[..., None]
) -> None:
    retention(STORES={})
    assert "add the alias of its database to STORES" in text_of(superuser.get(THREADS))


def test_the_list_takes_the_permission_to_view(measured: Path, sign_in: SignIn) -> None:
    assert sign_in("prune_thread", "reclaim_thread").get(THREADS).status_code == 403


def test_a_threads_page_shows_all_of_it_and_changes_nothing(
    measured: Path, sign_in: SignIn, keys: Keys
) -> None:
    client = sign_in("view_thread")
    (key,) = keys("large")
    text = text_of(client.get(page_of(key)))
    thread = Thread.objects.get(pk=key)
    assert "Thread: large" in text
    assert f"({thread.byte_count:,} bytes)" in text
    assert client.post(page_of(key), {"project": "mine"}).status_code == 403


def test_commands_and_projects_are_offered_by_their_bytes_when_measured_without_summing_them_up(
    written_store: WriteStore, superuser: Client
) -> None:
    written_store(
        [ThreadRows(thread_id=f"t{number:02}", size=1_000 + number) for number in range(25)]
        + [ThreadRows(thread_id="huge", size=90_000)],
        [
            ConversationRow(thread_id=f"t{number:02}", command="ask", project=f"/srv/{number:02}")
            for number in range(25)
        ]
        + [ConversationRow(thread_id="huge", command="code", project="/srv/00")],
    )
    services.measure("history", now=NOW)
    with CaptureQueriesContext(connection) as queries:
        page = superuser.get(THREADS)
    *_, commands, projects = page.context["cl"].filter_specs

    assert [value for value, _ in commands.lookup_choices] == ["code", "ask"]
    assert [value for value, _ in projects.lookup_choices] == [
        "/srv/00",
        *(f"/srv/{number:02}" for number in range(24, 5, -1)),
    ]
    assert not [each for each in queries.captured_queries if "SUM(" in each["sql"]]


@pytest.mark.parametrize("query", ["", "?all=", "?q=thread", "?state=resumable&idle=7"])
def test_the_list_takes_as_many_queries_for_300_threads_as_for_10(
    written_store: WriteStore, superuser: Client, query: str
) -> None:
    counts = []
    for number in (10, 300):
        Thread.objects.all().delete()
        Thread.objects.bulk_create(
            _thread(f"thread-{index}", conversation_ids=[index], project=f"/srv/{index % 7}")
            for index in range(number)
        )
        with CaptureQueriesContext(connection) as queries:
            assert superuser.get(THREADS + query).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


def _add_thread(thread_id: str, **values: object) -> None:
    _thread(thread_id, **values).save(force_insert=True)


def _thread(thread_id: str, **values: object) -> Thread:
    return Thread(
        **{
            "digest": Thread.digest_of("history", thread_id),
            "store": "history",
            "thread_id": thread_id,
            "byte_count": 1_000,
            "checkpoint_count": 1,
            "write_count": 1,
            "turn_count": 0,
            "last_activity": NOW,
            "state": "resumable",
            **values,
        }
    )
