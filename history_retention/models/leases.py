"""Leases: what agents that run, in any process on any host, have open."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice

from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..words import spelled_out
from .thread_ids import ThreadIdField

LEASE = timedelta(minutes=10)
"""How long a lease outlasts its last renewal, and so its owner's death."""

NEVER_SEEN = datetime(1970, 1, 1, tzinfo=UTC)
"""When a lease expires until the statement after its own, in the same transaction."""

ROWS_A_STATEMENT = 500


class LeaseQuerySet(models.QuerySet["Lease"]):
    """Leases, and which of them count.

    Expiry is written and read by the clock of the ledger's database, which is one for all hosts.
    """

    def active(self, at: datetime) -> LeaseQuerySet:
        """Return the leases that have not run out, by the database's clock or as of ``at``."""
        return self.filter(Q(expires_at__gt=Now()) | Q(expires_at__gt=at))

    def thread_ids(self, store: str) -> models.QuerySet[Lease, str]:
        """Return the ids of the store's threads, one that has several owners several times."""
        return self.filter(store=store).order_by().values_list("thread_id", flat=True)

    def take(self, owner: str, threads: Iterable[tuple[str, str]]) -> None:
        """Lease threads, given as store and id, for a full term from now."""
        rows = (
            Lease(
                digest=Lease.digest_of(store, thread_id, owner),
                store=store,
                thread_id=thread_id,
                owner=owner,
                expires_at=NEVER_SEEN,
            )
            for store, thread_id in threads
        )
        while batch := list(islice(rows, ROWS_A_STATEMENT)):
            with transaction.atomic(using=self.db):
                self.bulk_create(batch, ignore_conflicts=True)
                taken = self.filter(digest__in=[lease.digest for lease in batch])
                taken.update(expires_at=Now() + LEASE)  # in one expression, not one a row

    def renew(self, owner: str) -> int:
        """Let all of the owner's leases begin a new term; return how many there are."""
        return self.filter(owner=owner).update(expires_at=Now() + LEASE)

    def give_up(self, owner: str, threads: Collection[tuple[str, str]]) -> None:
        """End leases of the owner before they run out."""
        digests = (Lease.digest_of(store, thread_id, owner) for store, thread_id in threads)
        while batch := list(islice(digests, ROWS_A_STATEMENT)):
            self.filter(digest__in=batch).delete()

    def forget_expired(self) -> None:
        """Delete what owners left behind that died, or lost the ledger, and did not come back."""
        self.filter(expires_at__lt=Now()).delete()


class Lease(models.Model):
    """A running agent's word that a thread is in use. Ours; renewed while the agent is open.

    The key is a digest, as that of ``Thread`` is. ``owner`` names the process.
    """

    digest = models.CharField(primary_key=True, max_length=64, editable=False)
    store = models.CharField(_("store"), max_length=255)
    thread_id = ThreadIdField(_("thread"))
    owner = models.CharField(_("owner"), max_length=255, db_index=True)
    expires_at = models.DateTimeField(_("expires"), db_index=True)

    objects = LeaseQuerySet.as_manager()

    class Meta:
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        default_permissions = ("view",)
        ordering = ["-expires_at", "digest"]
        indexes = [models.Index(fields=["store", "expires_at"], name="history_lease_store")]

    def __str__(self) -> str:
        return f"{self.store}: {spelled_out(self.thread_id)}"

    @staticmethod
    def digest_of(store: str, thread_id: str, owner: str) -> str:
        """Return the key of a lease: SHA-256 of all that makes it one of its kind."""
        return hashlib.sha256(json.dumps([store, thread_id, owner]).encode()).hexdigest()
