"""Leases in the ledger: which count, how ids are kept, and how owners renew and end them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from history_retention import recording, services
from history_retention.facts import KeepReason
from history_retention.models import Hold, Lease
from history_retention.models.leases import LEASE
from history_retention.models.thread_ids import stored_id, thread_id_of

from .conftest import WriteStore
from .store_files import NOW

pytestmark = pytest.mark.django_db

ODD = ["", " ", "a", "A", "\0", "a\0b", "\udcff", "\ud800", "json:", 'json:"a"', "x" * 10_000, "👍"]


def lease(thread_id: str = "t", *, store: str = "history", owner: str = "1 me") -> Lease:
    """Take a lease and return its row."""
    Lease.objects.take(owner, [(store, thread_id)])
    return Lease.objects.get(digest=Lease.digest_of(store, thread_id, owner))


def expire(**which: str) -> None:
    """Let leases have run out a moment ago."""
    past = timezone.now() - timedelta(seconds=1)
    assert Lease.objects.filter(**which).update(expires_at=past)


def leased(at: datetime, store: str = "history") -> set[str]:
    return set(Lease.objects.active(at).thread_ids(store))


def test_a_lease_lasts_ten_minutes_by_the_clock_of_the_ledger() -> None:
    before = datetime.now(UTC)

    expires = lease().expires_at

    assert timedelta(minutes=10) == LEASE
    assert timedelta(0) <= expires - LEASE - before + timedelta(milliseconds=1)
    assert expires - LEASE <= datetime.now(UTC)


@pytest.mark.parametrize("skew", [timedelta(days=-30), timedelta(0), timedelta(days=30)])
def test_a_lease_counts_whatever_the_clock_of_the_sweeping_host_says(skew: timedelta) -> None:
    lease()

    assert leased(timezone.now() + skew) == {"t"}


def test_a_lease_that_has_run_out_counts_no_more() -> None:
    lease()
    lease("other")
    expire(thread_id="t")

    assert leased(timezone.now()) == {"other"}


def test_a_plan_as_of_an_earlier_instant_keeps_what_was_leased_then() -> None:
    lease()
    expire()

    assert leased(timezone.now() - timedelta(minutes=1)) == {"t"}


def test_leases_count_for_their_own_store() -> None:
    lease("a")
    lease("b", store="other")

    assert leased(NOW) == {"a"}
    assert leased(NOW, store="other") == {"b"}


@pytest.mark.parametrize("thread_id", ODD)
def test_any_thread_id_is_kept_and_read_back(thread_id: str) -> None:
    lease(thread_id)

    assert leased(NOW) == {thread_id}
    assert recording.protections("history", NOW) == {thread_id: KeepReason.LEASED}


def test_ids_that_differ_in_anything_have_leases_that_differ() -> None:
    Lease.objects.take("1 me", [("history", thread_id) for thread_id in ODD])

    assert leased(NOW) == set(ODD)
    assert Lease.objects.count() == len(ODD)


@given(st.text(st.characters(exclude_categories=[])))
def test_a_stored_id_tells_the_id_and_any_database_can_hold_it(thread_id: str) -> None:
    stored = stored_id(thread_id)

    assert thread_id_of(stored) == thread_id
    assert "\0" not in stored.encode().decode()


def test_taking_a_lease_again_renews_it_and_adds_none() -> None:
    lease()
    expire()

    lease()

    assert Lease.objects.count() == 1
    assert leased(timezone.now()) == {"t"}


def test_an_owner_renews_and_gives_up_its_own_leases_and_no_others() -> None:
    for owner in ("1 me", "1 you"):
        Lease.objects.take(owner, [("history", str(number)) for number in range(1_200)])
    expire(owner="1 me")

    assert Lease.objects.renew("1 me") == 1_200
    Lease.objects.give_up("1 me", {("history", str(number)) for number in range(1_199)})

    assert set(Lease.objects.filter(owner="1 me").values_list("thread_id", flat=True)) == {"1199"}
    assert Lease.objects.filter(owner="1 you").count() == 1_200


def test_a_thread_of_several_owners_is_leased_until_the_last_gives_it_up() -> None:
    lease(owner="1 me")
    lease(owner="1 you")

    Lease.objects.give_up("1 me", [("history", "t")])
    assert leased(NOW) == {"t"}
    Lease.objects.give_up("1 you", [("history", "t")])

    assert leased(NOW) == set()


def test_a_hold_and_a_lease_of_one_thread_are_told_as_the_hold() -> None:
    lease()
    Hold.objects.create(store="history", thread_id="t", reason="audit")

    assert recording.protections("history", NOW) == {"t": KeepReason.HELD}


@pytest.mark.django_db(databases=["default", "history"])
def test_measuring_forgets_leases_that_ran_out_and_keeps_the_others(
    written_store: WriteStore,
) -> None:
    written_store()
    lease("gone")
    lease("kept")
    expire(thread_id="gone")

    services.measure("history", now=NOW, save=False)
    assert Lease.objects.count() == 2
    services.measure("history", now=NOW)

    assert [each.thread_id for each in Lease.objects.all()] == ["kept"]


def test_a_lease_says_what_it_is() -> None:
    assert str(lease("t-1")) == "history: t-1"
