"""A GET never changes anything, on any page, in the stores or in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from history_retention.models import Hold, Lease, Measurement

from .conftest import Keys, SignIn
from .pages import (
    ADD_HOLD,
    ADMIN,
    CONVERSATIONS,
    HOLDS,
    LEASES,
    MEASURE,
    MEASUREMENTS,
    RECLAIM,
    SWEEPS,
    THREADS,
    VACUUM,
    ledger,
    page_of,
    prune,
    text_of,
)


@pytest.mark.django_db(databases=["default", "history"])
def test_no_get_changes_a_store_or_the_ledger(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    prune(superuser, keys("small"))
    Hold.objects.create(store="history", thread_id="large", reason="audit")
    Lease.objects.take("1 an agent", [("history", "large")])
    forged = THREADS + "?action=prune_selected&_selected_action=x&post=yes&consent=yes"
    addresses = [
        THREADS, THREADS + "?q=large&state=resumable", page_of(*keys("large")),
        forged,
        RECLAIM, RECLAIM + "?post=yes&consent=yes", VACUUM, VACUUM + "?consent=yes", MEASURE,
        CONVERSATIONS, reverse(f"{ADMIN}session_changelist"), HOLDS, ADD_HOLD, SWEEPS,
        MEASUREMENTS, LEASES, *_rows_of("measurement", "sweep", "hold", "lease"), "/admin/",
    ]  # fmt: skip
    before = measured.read_bytes(), ledger()
    answers = {address: superuser.get(address).status_code for address in addresses}
    assert (measured.read_bytes(), ledger()) == before
    assert {address: status for address, status in answers.items() if status != 200} == {
        forged: 302,
        MEASURE: 405,
    }


def test_measurements_sweeps_and_leases_are_read_and_never_changed(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    prune(superuser, keys("small"))
    Lease.objects.take("1 an agent", [("history", "large")])
    before = ledger()
    for address in _rows_of("measurement", "sweep", "lease"):
        assert superuser.post(address, {"store": "mine"}).status_code == 403
        delete = address.replace("change", "delete")
        assert superuser.post(delete, {"post": "yes"}).status_code == 403
    for name in ("measurement", "sweep", "thread", "lease"):
        assert superuser.post(reverse(f"{ADMIN}{name}_add"), {}).status_code == 403
    assert ledger() == before


def test_a_sweeps_page_tells_sizes_and_bounds(
    measured: Path, superuser: Client, keys: Keys
) -> None:
    prune(superuser, keys("small"))
    (address,) = _rows_of("sweep")
    text = text_of(superuser.get(address))
    assert 'Bounds: {"selected": 1}' in text
    assert "Threads removed: 1" in text
    assert "Outcome: done" in text


def test_a_measurements_page_tells_exact_bytes(measured: Path, superuser: Client) -> None:
    (address,) = _rows_of("measurement")
    size = Measurement.objects.get().file_bytes
    assert f"({size:,} bytes)" in text_of(superuser.get(address))


def test_a_lease_is_listed_with_the_thread_it_keeps_and_who_has_it(
    measured: Path, sign_in: SignIn
) -> None:
    for thread_id in ("large", "", "line\n\0\udcff"):
        Lease.objects.take("1 4711 somewhere", [("history", thread_id)])
    client = sign_in("view_lease")

    text = text_of(client.get(LEASES))
    pages = [text_of(client.get(address)) for address in _rows_of("lease")]

    for name in ("large", "(empty)", "line\\n\\x00\\udcff"):
        assert name in text
        assert any(f"Thread: {name}" in page for page in pages), pages
    assert text.count("1 4711 somewhere") == 3


@pytest.mark.parametrize("address", [THREADS, CONVERSATIONS, HOLDS, SWEEPS, MEASUREMENTS, LEASES])
def test_staff_without_permissions_sees_no_page(
    measured: Path, sign_in: SignIn, address: str
) -> None:
    assert sign_in().get(address).status_code == 403


def _rows_of(*names: str) -> list[str]:
    rows = ledger()
    return [
        reverse(f"{ADMIN}{name}_change", args=[row["digest" if name == "lease" else "id"]])
        for name in names
        for row in rows[name.capitalize()]
    ]
