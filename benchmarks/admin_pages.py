"""The admin's list of threads, beside the plainest list that Django makes of the same table."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import override_settings
from django.urls import path

from history_retention import services
from history_retention.admin.base import TypedAdmin
from history_retention.models import Thread

from .comparisons import Comparison, Goal
from .contests import medians, warm
from .stage import ALIAS, Stage
from .stores import NOW

PAGES_A_ROUND = 5
ROWS_A_PAGE = 25


class PlainThreads(TypedAdmin[Thread]):
    """As many columns as ours has, each a plain field, in the order of the model."""

    list_display = (
        *("thread_id", "conversation_ids", "command", "project"),
        *("checkpoint_count", "byte_count", "last_activity", "state"),
    )
    list_per_page = ROWS_A_PAGE
    show_full_result_count = False


plain = admin.AdminSite(name="plain")
plain.register(Thread, PlainThreads)
urlpatterns = [path("admin/", admin.site.urls), path("plain/", plain.urls)]


def pages(stage: Stage) -> Iterator[Comparison]:
    """Time a page of 25 threads, the largest first, of a ledger that knows the whole store."""
    services.measure(ALIAS, now=NOW)
    user = User.objects.create_superuser("benchmark")
    client = Client()

    def get(url: str) -> None:
        for _ in range(PAGES_A_ROUND):
            response = client.get(url)
            if response.status_code != 200:
                raise RuntimeError(f"{url} answered {response.status_code}")

    ours, theirs = (f"/{site}/history_retention/thread/" for site in ("admin", "plain"))
    with (
        override_settings(ROOT_URLCONF="benchmarks.admin_pages", ALLOWED_HOSTS=["*"]),
        patch.object(admin.site.get_model_admin(Thread), "list_per_page", ROWS_A_PAGE),
    ):
        client.force_login(user)
        for url in (ours, theirs):
            get(url)
        seconds = medians(
            {"ours": lambda _given: get(ours), "plain": lambda _given: get(theirs)},
            warm,
            stage.rounds,
        )
    user.delete()
    yield Comparison(
        name=f"admin page of {ROWS_A_PAGE} threads, largest first",
        ours=seconds["ours"] / PAGES_A_ROUND,
        against="a plain ModelAdmin over the same table",
        against_value=seconds["plain"] / PAGES_A_ROUND,
        goal=Goal(at_most=1.5),
    )
