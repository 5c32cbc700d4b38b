"""OpenClaw's entries in the admin: sizes, families, protection, archives, and the way to prune."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from history_retention import services
from history_retention.models import Thread
from history_retention.policy import Bounds
from history_retention.services import Trigger

from ..admin.pages import THREADS, ask_to_prune, consent_form, text_of, ticked
from ..store_files import NOW
from .agents import archived, transcripts

pytestmark = pytest.mark.django_db(databases=["default", "history"])

ALPHA = "agent:main:dashboard:alpha"
BETA = "agent:main:dashboard:beta"
SHARED = "22222222-2222-4222-8222-00000000bbbb"
GONE = "33333333-3333-4333-8333-333333333333"
MODELS = {"v8": ("sessionentry", "storedsession"), "v23": ("sessionnode", "sessionwindow")}


@pytest.fixture
def superuser(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def page_of(age: str, key: str = "", model: int = 0) -> str:
    name = f"admin:openclaw_{MODELS[age][model]}"
    return reverse(f"{name}_change", args=[key]) if key else reverse(f"{name}_changelist")


def test_the_list_links_each_key_to_its_thread_and_says_what_protects_it(
    agent: Path, age: str, superuser: Client
) -> None:
    services.measure("history", now=NOW)

    with CaptureQueriesContext(connections["default"]) as queries:
        page = superuser.get(page_of(age))
    text = text_of(page)

    assert len([each for each in queries if "retention_thread" in each["sql"]]) == 1
    assert len(page.context["cl"].result_list) == 7
    assert Thread.digest_of("history", ALPHA) in page.content.decode()
    for words in ("main session", "direct conversation", "group, channel or thread"):
        assert words in text
    thread = Thread.objects.get(store="history", thread_id=ALPHA)
    assert thread.byte_count > 3_000
    assert f"{thread.byte_count / 1024:.1f}" in text.replace("\xa0", " ")


def test_an_entrys_page_lists_its_family_who_else_needs_it_and_its_archives(
    agent: Path, age: str, superuser: Client
) -> None:
    plan = services.plan_prune("history", Bounds(thread_ids=frozenset({ALPHA})), now=NOW)
    services.execute(plan, trigger=Trigger.CODE, clock=lambda: NOW)
    (name,) = {stem for stem, _ in archived(agent)}

    text = text_of(superuser.get(page_of(age, BETA)))

    assert SHARED in text
    assert "2 sessions" in text
    assert "none" in text
    assert name not in text


def test_a_shared_session_names_the_other_key_that_needs_it(
    agent: Path, age: str, superuser: Client
) -> None:
    text = text_of(superuser.get(page_of(age, ALPHA)))

    assert BETA in text
    assert "this entry alone" in text


def test_the_text_of_an_entry_needs_its_own_permission(
    agent: Path, age: str, superuser: Client
) -> None:
    looker = Client()
    user = User.objects.create_user("looker", is_staff=True)
    model = MODELS[age][0]
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="openclaw", codename=f"view_{model}")
    )
    looker.force_login(user)

    assert "compactionCheckpoints" in text_of(superuser.get(page_of(age, ALPHA)))
    assert "compactionCheckpoints" not in text_of(looker.get(page_of(age, ALPHA)))


def test_sessions_are_listed(agent: Path, age: str, superuser: Client) -> None:
    page = superuser.get(page_of(age, model=1))

    assert len(page.context["cl"].result_list) == 11


def test_the_other_ages_pages_say_that_there_is_no_such_table(
    agent: Path, age: str, superuser: Client
) -> None:
    other = "v23" if age == "v8" else "v8"

    page = superuser.get(page_of(other))

    assert page.status_code == 200
    assert "has no table" in text_of(page)


def test_the_prune_action_asks_and_then_archives_and_removes(
    agent: Path, superuser: Client
) -> None:
    services.measure("history", now=NOW)
    before = transcripts(agent)
    digest = Thread.digest_of("history", ALPHA)

    asked = ask_to_prune(superuser, [digest])
    untouched = transcripts(agent)
    superuser.post(THREADS, ticked(consent_form(asked)))

    assert ALPHA in text_of(asked)
    assert "Transcripts are archived first" in text_of(asked)
    assert untouched == before
    assert archived(agent) == {(GONE, "deleted"): before[GONE]}
    assert GONE not in transcripts(agent)
