"""Where the pages are, and reading them as a browser does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from history_retention.models import Hold, Lease, Measurement, Sweep, Thread

ADMIN = "admin:history_retention_"
THREADS = reverse(f"{ADMIN}thread_changelist")
MEASURE = reverse(f"{ADMIN}thread_measure")
RECLAIM = reverse(f"{ADMIN}thread_reclaim")
VACUUM = reverse(f"{ADMIN}thread_vacuum")
CONVERSATIONS = reverse(f"{ADMIN}conversation_changelist")
TURNS = reverse(f"{ADMIN}session_changelist")
HOLDS = reverse(f"{ADMIN}hold_changelist")
ADD_HOLD = reverse(f"{ADMIN}hold_add")
LEASES = reverse(f"{ADMIN}lease_changelist")
MEASUREMENTS = reverse(f"{ADMIN}measurement_changelist")
SWEEPS = reverse(f"{ADMIN}sweep_changelist")

Fields = dict[str, list[str]]


class _ConsentForm(HTMLParser):
    """Collects what the form with the consent box would post without the box ticked."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: Fields = {}
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "form":
            self._inside = "history-consent" in (named.get("class") or "").split()
        if self._inside and tag == "input" and named.get("type") == "hidden":
            self.fields.setdefault(named["name"] or "", []).append(named.get("value") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def page_of(thread_key: str) -> str:
    """Return the address of a thread's own page."""
    return reverse(f"{ADMIN}thread_change", args=[thread_key])


def text_of(response: Any) -> str:
    """Return the words of a page, with single spaces."""
    reader = _Text()
    reader.feed(response.content.decode())
    return " ".join(" ".join(reader.parts).split())


def consent_form(response: Any) -> Fields:
    """Return the hidden fields of the page's consent form; empty when it has none."""
    reader = _ConsentForm()
    reader.feed(response.content.decode())
    return reader.fields


def ticked(form: Fields, **changes: Any) -> Fields:
    """Return the form as posted with its box ticked."""
    return {**form, "consent": ["yes"], **changes}


def ask_to_prune(
    client: Client, keys: Sequence[str], *, select_across: bool = False, query: str = ""
) -> Any:
    """Tick threads in the list and choose the action."""
    return client.post(
        THREADS + query,
        {
            "action": ["prune_selected"],
            "select_across": [str(int(select_across))],
            "index": ["0"],
            "_selected_action": list(keys),
        },
    )


def prune(client: Client, keys: Sequence[str], **options: Any) -> Any:
    """Ask, tick the box and agree."""
    form = consent_form(ask_to_prune(client, keys, **options))
    return client.post(THREADS + options.get("query", ""), ticked(form), follow=True)


def messages_of(response: Any) -> list[tuple[str, str]]:
    """Return level and text of the messages that a response shows or passes on."""
    context = response.context
    shown = context["messages"] if context and "messages" in context else ()
    found = list(shown) or list(get_messages(response.wsgi_request))
    return [(message.level_tag, str(message)) for message in found]


def ledger() -> Mapping[str, list[Any]]:
    """Return every row of what the admin can write to."""
    return {
        model.__name__: list(model._default_manager.order_by("pk").values())
        for model in (Thread, Measurement, Sweep, Hold, Lease, LogEntry)
    }


def listed(response: Any) -> list[str]:
    """Return the ids of the threads on the page of a list, in order."""
    return [thread.thread_id for thread in response.context["cl"].result_list]
