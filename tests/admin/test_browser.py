"""The journey from the readout to a pruned store, in a real browser, under the project's CSP.

Needs the ``playwright`` package and a Chromium that is installed: ``chromium`` on PATH, or its
path in ``HISTORY_TEST_BROWSER``. Nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from history_retention import services
from history_retention.models import Sweep, Thread

from ..conftest import WriteStore
from ..store_files import ConversationRow, ThreadRows, threads_in
from .pages import ADD_HOLD, RECLAIM, THREADS, VACUUM, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The server must start after the test database is there, to share its connection.
pytestmark = pytest.mark.usefixtures("django_db_setup")

VARIABLE = "HISTORY_TEST_BROWSER"
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONG_ID = "https://example.org/" + "x" * 280
PATIENCE_MS = 90_000
"""How long a page may take on a machine with much else to do; a passing test never waits."""
VIOLATIONS = """
    document.addEventListener("securitypolicyviolation",
        (event) => console.error("Content Security Policy", event.violatedDirective));
"""
LIGHTNESS = """([selector, name]) => {
    const shade = getComputedStyle(document.querySelector(selector))[name].match(/[0-9.]+/g);
    return (Number(shade[0]) + Number(shade[1]) + Number(shade[2])) / 3;
}"""

Scheme = Literal["light", "dark"]


def _browser() -> str:
    """Return the path of a Chromium, or skip saying what to install."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        assert Path(named).exists(), f"{VARIABLE} names {named}, which is not there"
        return named
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip(f"no Chromium on PATH: install chromium, or set {VARIABLE} to its path")


@dataclass(frozen=True, slots=True)
class Visit:
    """An open page and what the browser complained about."""

    page: Page
    host: str
    complaints: list[str] = field(default_factory=list)

    def go(self, address: str) -> None:
        """Open one of the site's pages; it must carry the strict policy."""
        response = self.page.goto(self.host + address)
        assert response is not None
        assert response.status == 200
        assert "default-src 'self'" in response.headers["content-security-policy"]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def lightness(self, selector: str, name: str = "backgroundColor") -> float:
        """Return how light a colour of an element is, from 0 to 255."""
        shade: float = self.page.evaluate(LIGHTNESS, [selector, name])
        return shade


@contextmanager
def _visit(live_server: LiveServer, scheme: Scheme, width: int) -> Iterator[Visit]:
    """Open a window with a superuser signed in; nothing here may use the ORM inside."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the playwright package is not installed"
    )
    executable = _browser()
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 844}, locale="en-US"
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(VIOLATIONS)
        context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}]
        )
        visit = Visit(page=context.new_page(), host=live_server.url)
        visit.page.on(
            "console",
            lambda message: (
                visit.complaints.append(message.text)
                if message.type == "error" and "favicon" not in message.location["url"]
                else None
            ),
        )
        visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        try:
            yield visit
        finally:
            browser.close()


@pytest.fixture
def store(transactional_db: None, written_store: WriteStore) -> Path:
    """A measured store of named threads, one with a long id, and an unresumable one."""
    now = datetime.now(UTC)
    named = ["large", "small", "third", LONG_ID, "<script>document.title = 'pwned'</script>"]
    path = written_store(
        [
            ThreadRows(thread_id="large", size=50_000),
            *(ThreadRows(thread_id=thread_id) for thread_id in named[1:]),
            ThreadRows(thread_id="lost"),
        ],
        [ConversationRow(thread_id=thread_id) for thread_id in named],
        now=now,
    )
    services.measure("history", now=now)
    return path


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_person_reads_selects_agrees_and_the_threads_are_gone(
    live_server: LiveServer, store: Path, scheme: Scheme, width: int
) -> None:
    kept = threads_in(store) - {"large", "small"}
    with _visit(live_server, scheme, width) as visit:
        page = visit.page
        visit.go(THREADS)
        for thread_id in ("large", "small"):
            row = page.locator("#result_list tbody tr", has_text=thread_id)
            row.locator("input.action-select").check()
        page.select_option("select[name=action]", "prune_selected")
        page.click("button[name=index]")
        page.wait_for_selector("#id_consent")
        page.click(".history-act")
        asked_for_consent = page.evaluate("document.querySelector('#id_consent:invalid') !== null")
        page.focus("#id_consent")
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(".messagelist .success")
        said = page.inner_text(".messagelist")
        rows = page.locator("#result_list tbody tr").count()
    assert asked_for_consent
    assert "removed the stored state of 2 threads" in said
    assert rows == len(kept)
    assert threads_in(store) == kept
    assert Thread.objects.count() == len(kept)
    assert Sweep.objects.get().removed_threads == 2
    assert LogEntry.objects.count() == 2
    assert visit.complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_no_page_is_wider_than_its_window_or_breaks_the_policy(
    live_server: LiveServer, store: Path, scheme: Scheme, width: int
) -> None:
    key = Thread.digest_of("history", LONG_ID)
    addresses = [THREADS, page_of(key), RECLAIM, VACUUM, f"{ADD_HOLD}?thread={key}"]
    with _visit(live_server, scheme, width) as visit:
        overflow = {}
        for address in addresses:
            visit.go(address)
            overflow[address] = visit.overflow()
        visit.go(THREADS)
        visit.page.check("#action-toggle")
        visit.page.select_option("select[name=action]", "prune_selected")
        visit.page.click("button[name=index]")
        visit.page.wait_for_selector("#id_consent")
        overflow["confirmation"] = visit.overflow()
        title = visit.page.title()
    assert {address: pixels for address, pixels in overflow.items() if pixels > 0} == {}
    assert "pwned" not in title
    assert visit.complaints == []


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_pages_follow_the_colour_scheme(
    live_server: LiveServer, store: Path, scheme: Scheme, is_dark: bool
) -> None:
    with _visit(live_server, scheme, 1280) as visit:
        visit.go(THREADS)
        shades = [
            (visit.lightness(".history-totals"), visit.lightness(".history-totals dd", "color"))
        ]
        visit.go(RECLAIM)
        shades.append(
            (visit.lightness(".history-warning"), visit.lightness(".history-warning", "color"))
        )
    for background, text in shades:
        assert (background < text) == is_dark
        assert abs(background - text) > 100


def test_a_store_is_measured_with_the_button_alone(
    live_server: LiveServer, transactional_db: None, written_store: WriteStore
) -> None:
    written_store([ThreadRows(thread_id="one")], now=datetime.now(UTC))
    with _visit(live_server, "light", 1280) as visit:
        visit.go(THREADS)
        before = visit.page.inner_text(".history-totals")
        visit.page.focus("text=Measure now")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_selector(".messagelist .success")
        rows = visit.page.locator("#result_list tbody tr").count()
    assert "Not measured yet" in before
    assert rows == 1
    assert visit.complaints == []
