"""The admin's own log: whose word a thread's removal or a sweep was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone
from django.utils.translation import gettext as _

from ..facts import Plan
from ..models import Sweep, Thread
from ..recording import storable

KEYS_A_QUERY = 500
"""Below the number of parameters that any SQLite takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRemoval:
    """Log entries written before a removal, as Django's own delete action does."""

    user_pk: int
    digests: Sequence[str]
    since: datetime

    def withdraw_unremoved(self) -> None:
        """Delete the entries of threads that the ledger still has, as they were left alone."""
        content_type = ContentType.objects.get_for_model(Thread)
        for keys in _batches(self.digests):
            remaining = Thread.objects.filter(digest__in=keys).values_list("digest", flat=True)
            LogEntry.objects.filter(
                user_id=self.user_pk,
                content_type=content_type,
                action_flag=DELETION,
                action_time__gte=self.since,
                object_id__in=list(remaining),
            ).delete()


def log_removal(user_pk: int, plan: Plan) -> LoggedRemoval:
    """Log the removal of every thread of the plan."""
    since = timezone.now()
    threads = [
        Thread(
            digest=Thread.digest_of(plan.database, thread.thread_id),
            store=plan.database,
            thread_id=storable(thread.thread_id),
        )
        for thread in plan.threads
    ]
    LogEntry.objects.log_actions(
        user_pk, threads, DELETION, _("Pruned the stored state; transcripts stay.")
    )
    return LoggedRemoval(
        user_pk=user_pk, digests=[thread.digest for thread in threads], since=since
    )


def log_sweep(user_pk: int, kind: Sweep.Kind, store: str) -> None:
    """Log the sweep of a whole store that the user has just run."""
    newest = Sweep.objects.filter(kind=kind, store=store, actor_id=user_pk).order_by("-pk")[:1]
    LogEntry.objects.log_actions(user_pk, newest, ADDITION, str(kind.label))


def _batches(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), KEYS_A_QUERY):
        yield keys[start : start + KEYS_A_QUERY]
