"""People with permissions, a measured store, a second store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from pytest_django import Settings

from history_retention import services
from history_retention.models import Thread

from ..conftest import WriteStore
from ..store_files import NOW, ConversationRow, ThreadRows, write_store

SignIn = Callable[..., Client]
Keys = Callable[..., list[str]]


@pytest.fixture
def sign_in(db: None) -> SignIn:
    """Sign in a member of staff with these permissions of the app: ``sign_in("view_thread")``."""

    def enter(*codenames: str, name: str = "staff") -> Client:
        user = User.objects.create_user(name, is_staff=True)
        permissions = Permission.objects.filter(
            content_type__app_label="history_retention", codename__in=codenames
        )
        assert permissions.count() == len(codenames)
        user.user_permissions.set(permissions)
        client = Client()
        client.force_login(user)
        return client

    return enter


@pytest.fixture
def superuser(db: None) -> Client:
    """The client of somebody who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def measured(written_store: WriteStore, frozen_clock: object) -> Path:
    """A measured store of three named threads, two unresumable ones and one in grace."""
    path = written_store(
        [
            ThreadRows(thread_id="large", checkpoints=3, writes=2, size=5_000),
            ThreadRows(thread_id="small", size=1_000),
            ThreadRows(thread_id="recent", age=timedelta(0)),
            ThreadRows(thread_id="lost-1", size=2_000),
            ThreadRows(thread_id="lost-2", size=2_000),
            ThreadRows(thread_id="clearing", age=timedelta(0)),
        ],
        [
            ConversationRow(thread_id="large", command="code"),
            ConversationRow(thread_id="small", project="/srv/shop"),
            ConversationRow(thread_id="recent", age=timedelta(0)),
        ],
    )
    services.measure("history", now=NOW)
    return path


@pytest.fixture
def second_store(
    tmp_path: Path, add_store: Callable[[str, Path], None], settings: Settings
) -> Path:
    """A second store, alias "other", with one named thread that the first has as well."""
    path = write_store(
        tmp_path / "other.db",
        [ThreadRows(thread_id="small", size=3_000)],
        [ConversationRow(thread_id="small")],
    )
    add_store("other", path)
    connections["other"].connect()
    stores = {**settings.HISTORY_RETENTION["STORES"], "other": {}}
    settings.HISTORY_RETENTION = {**settings.HISTORY_RETENTION, "STORES": stores}
    return path


@pytest.fixture
def keys() -> Keys:
    """Tell the keys of threads in the ledger: ``keys("large", store="history")``."""
    return lambda *thread_ids, store="history": [
        Thread.digest_of(store, thread_id) for thread_id in thread_ids
    ]
