"""The admin's own log: whose word a thread's removal or a sweep was."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.utils.translation import gettext as _

from ..models import Sweep, Thread


def log_removal(user_pk: int, store: str, thread_ids: Iterable[str]) -> None:
    """Log each thread that is gone.

    Only afterwards, other than Django's own delete action: which of the planned threads go is
    known when they went, and until then the sweep's own record tells who asked for it.
    """
    threads = [
        Thread(
            digest=Thread.digest_of(store, thread_id),
            store=store,
            thread_id=thread_id,
        )
        for thread_id in thread_ids
    ]
    LogEntry.objects.log_actions(user_pk, threads, DELETION, _("Pruned the stored state."))


def log_sweep(user_pk: int, kind: Sweep.Kind, store: str) -> None:
    """Log the sweep of a whole store that the user has just run."""
    newest = Sweep.objects.filter(kind=kind, store=store, actor_id=user_pk).order_by("-pk")[:1]
    LogEntry.objects.log_actions(user_pk, newest, ADDITION, str(kind.label))
