"""What a confirmation page has shown, carried by the page itself and checked when it comes back.

A page may show thousands of threads, and Django refuses a form of more than 1,000 fields, so
what was shown travels as one signed text: twelve bytes a thread, six that tell which thread it
is and six that change with its state. The signature covers the instant the plan was made for and
the user it was shown to. So nothing is removed that this user has not been shown, and a thread
that changed since is left alone.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b

from django.core.signing import BadSignature, Signer
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from ..exceptions import UsageError
from ..facts import Plan, PlannedThread, SkipReason
from ..outcomes import SkippedThread

MOST_THREADS = 20_000
"""The most threads one page removes: above that the request, not the page, is the wrong place."""

_MARK = 8
"""Characters of six bytes in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What somebody was shown: the instant of the plan, and a mark of each thread's state."""

    as_of: datetime
    marks: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """A new plan held against what was shown.

    ``plan`` has only threads shown and unchanged, ``changed`` those that changed since, and
    ``unseen`` counts the threads that the page did not show.
    """

    plan: Plan
    changed: tuple[SkippedThread, ...]
    unseen: int


def sealed(kind: str, user_pk: object, as_of: datetime, plans: Iterable[Plan]) -> str:
    """Return what the page carries about the plans it shows."""
    marks = (
        _identity(plan.database, thread) + _condition(thread)
        for plan in plans
        for thread in plan.threads
    )
    return _signer(kind, user_pk, as_of.isoformat()).sign("".join(marks))


def opened(kind: str, user_pk: object, as_of: str, seal: str) -> Consent:
    """Return what was shown; UsageError when page, instant or user is another than was signed."""
    try:
        instant = parse_datetime(as_of)
        text = _signer(kind, user_pk, as_of).unsign(seal)
    except (BadSignature, ValueError):
        instant = None
    if instant is None:
        raise UsageError(
            _(
                "Nothing was removed: this confirmation does not match what you were shown. "
                "Select the threads again."
            )
        )
    pairs = (text[at : at + 2 * _MARK] for at in range(0, len(text), 2 * _MARK))
    return Consent(as_of=instant, marks={pair[:_MARK]: pair[_MARK:] for pair in pairs})


def held_against(plan: Plan, consent: Consent) -> Agreed:
    """Keep in the plan what was shown and has not changed since."""
    changed: list[SkippedThread] = []
    unseen = 0

    def unchanged(thread: PlannedThread) -> bool:
        nonlocal unseen
        shown = consent.marks.get(_identity(plan.database, thread))
        if shown is None:
            unseen += 1
        elif shown != _condition(thread):
            changed.append(SkippedThread(thread_id=thread.thread_id, reason=SkipReason.ACTIVE))
        return shown == _condition(thread)

    return Agreed(
        plan=replace(
            plan,
            prunable=tuple(filter(unchanged, plan.prunable)),
            reclaimable=tuple(filter(unchanged, plan.reclaimable)),
        ),
        changed=tuple(changed),
        unseen=unseen,
    )


def _signer(kind: str, user_pk: object, as_of: str) -> Signer:
    return Signer(salt=f"history_retention.admin.{kind}:{user_pk}:{as_of}")


def _identity(store: str, thread: PlannedThread) -> str:
    return _mark(f"{store}\0{thread.thread_id}")


def _condition(thread: PlannedThread) -> str:
    return _mark(repr((thread.fingerprint, thread.conversation_ids, thread.turn_count)))


def _mark(text: str) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return urlsafe_b64encode(digest).decode("ascii")
