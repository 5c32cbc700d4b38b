"""Thread ids are a vendor's: whatever they hold, pages show them as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.utils.html import escape

from history_retention import services
from history_retention.admin.words import readable
from history_retention.models import Thread

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, threads_in
from .conftest import Keys
from .pages import RECLAIM, THREADS, ask_to_prune, page_of, prune

IDS = [
    "",
    " ",
    " leading and trailing ",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' OR 1=1 --",
    "{{ settings.SECRET_KEY }}{% debug %}",
    "two\nlines\r\tand a tab",
    "right\u202eleft",
    "emoji \U0001f469\u200d\U0001f4bb \U0001f40c",
    "x" * 300,
    "\u0645\u0631\u062d\u0628\u0627",
    "100%_\\",
    "-1",
    "null",
    "../../etc/passwd",
]


@pytest.fixture
def hostile(written_store: WriteStore, frozen_clock: object) -> Path:
    """A measured store of named threads with those ids."""
    path = written_store(
        [ThreadRows(thread_id=thread_id) for thread_id in IDS],
        [
            ConversationRow(thread_id=thread_id, command="<b>chat</b>", project="<i>/srv</i>")
            for thread_id in IDS
        ],
    )
    services.measure("history", now=NOW)
    return path


def _assert_is_text(page: str) -> None:
    for markup in ("<script>alert", "<img src=x", "<b>chat", "<i>/srv"):
        assert markup not in page


def test_the_list_shows_every_id_as_text(hostile: Path, superuser: Client) -> None:
    page = superuser.get(THREADS).content.decode()
    _assert_is_text(page)
    assert page.count('class="history-id"') == len(IDS)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "(empty)" in page
    assert ">two\\nlines\\r\\tand a tab<" in page
    assert ">right\\u202eleft<" in page
    assert f'title="{"x" * 300}"' in page
    assert f">{'x' * 300}<" not in page


@pytest.mark.parametrize("thread_id", IDS)
def test_a_threads_page_shows_its_whole_id_as_text(
    hostile: Path, superuser: Client, keys: Keys, thread_id: str
) -> None:
    response = superuser.get(page_of(*keys(thread_id)))
    assert response.status_code == 200
    _assert_is_text(response.content.decode())
    assert f'<code class="history-id history-whole">{escape(readable(thread_id))}</code>' in (
        response.content.decode()
    )


def test_the_confirmation_shows_every_id_as_text_and_prunes_each(
    hostile: Path, superuser: Client, keys: Keys
) -> None:
    page = ask_to_prune(superuser, keys(*IDS))
    _assert_is_text(page.content.decode())
    assert page.context["thread_count"] == len(IDS)
    prune(superuser, keys(*IDS))
    assert threads_in(hostile) == set()


def test_what_stays_is_shown_as_text(hostile: Path, superuser: Client, keys: Keys) -> None:
    hostile.write_bytes(b"")
    _assert_is_text(ask_to_prune(superuser, keys(*IDS)).content.decode())


def test_a_reclaim_shows_every_id_as_text(
    written_store: WriteStore, superuser: Client, frozen_clock: object
) -> None:
    written_store([ThreadRows(thread_id=thread_id) for thread_id in IDS])
    page = superuser.get(RECLAIM)
    _assert_is_text(page.content.decode())
    assert page.context["thread_count"] == len(IDS)


@pytest.mark.parametrize("thread_id", [each for each in IDS if each.strip()])
def test_an_id_is_found_by_itself(hostile: Path, superuser: Client, thread_id: str) -> None:
    found = superuser.get(THREADS, {"q": thread_id}).context["cl"].result_list
    assert thread_id in {thread.thread_id for thread in found}
    assert Thread.objects.count() == len(IDS)
