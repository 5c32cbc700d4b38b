#!/usr/bin/env python
"""Take the pictures of the README: the demo store in the admin, in a Chromium that is installed.

Run from the project's folder as ``python docs/images/take.py``. Store and ledger are written to
a temporary folder; the demo's own stay as they are.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import django
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent
ROOT = IMAGES.parents[1]
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
WITHOUT_SIDEBAR = "localStorage.setItem('django.admin.navSidebarIsOpen', 'false')"


def main() -> None:
    """Write the store, serve the admin, and photograph three of its pages."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DATABASE_URL": f"sqlite:///{folder}/ledger.sqlite3",
            "HISTORY_DATABASE_URL": f"sqlite:///{folder}/history.db",
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DJANGO_SECRET_KEY": "for these pictures alone",
            "DJANGO_DEBUG": "1",
        }
        session = prepare(Path(folder))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as server:  # noqa: S603
            try:
                wait_for(port)
                photograph(f"http://127.0.0.1:{port}/admin/history_retention/thread/", session)
            finally:
                server.terminate()


def prepare(folder: Path) -> str:
    """Write the store, measure it with one thread held, and return a superuser's session."""
    sys.path.insert(0, str(ROOT))
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.utils import timezone

    from history_retention import services
    from history_retention.models import Hold, Thread
    from project.demo_store import write_demo_store

    write_demo_store(folder / "history.db", now=timezone.now())
    call_command("migrate", verbosity=0)
    user = User.objects.create_superuser("staff")
    services.measure("history", now=timezone.now())
    held = Thread.objects.filter(state="resumable")[2]
    Hold.objects.create(
        store="history", thread_id=held.thread_id, by=user, reason="evidence for the audit"
    )
    services.measure("history", now=timezone.now())
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


def wait_for(port: int) -> None:
    """Return once the server listens."""
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("The server did not start.")


def photograph(threads: str, session: str) -> None:
    """Save the readout, the confirmation of a prune, and the readout on a phone in the dark."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )

        def opened(width: int, height: int, scheme: str) -> Page:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            context.add_cookies([{"name": "sessionid", "value": session, "url": threads}])
            context.add_init_script(WITHOUT_SIDEBAR)
            page = context.new_page()
            page.goto(threads)
            return page

        page = opened(1360, 860, "light")
        page.screenshot(path=IMAGES / "readout.png")
        for row in page.locator("#result_list tbody tr").all()[:5]:
            row.locator("input").check()
        page.select_option("select[name=action]", "prune_selected")
        page.click("button[name=index]")
        page.wait_for_selector("#id_consent")
        page.screenshot(path=IMAGES / "confirmation.png")
        opened(390, 844, "dark").screenshot(path=IMAGES / "phone-dark.png")
        browser.close()


if __name__ == "__main__":
    main()
