"""How threads, sizes and outcomes are spelled on the pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..facts import Ending, SkipReason
from ..outcomes import Outcome
from ..words import SKIPPED_BECAUSE, shortened, spelled_out


def readable(thread_id: str) -> str:
    """Return a thread id with whatever does not print spelled out, an empty one as such."""
    return spelled_out(thread_id) or _("(empty)")


def cell(name: str, **context: Any) -> SafeString:
    """Return a table cell rendered from its template."""
    return render_to_string(f"admin/history_retention/thread/cells/{name}.html", context)


def thread_name(thread_id: str, digest: str = "") -> SafeString:
    """Return a thread id for a table: short, escaped, the whole of it in its title.

    With ``digest``, a link to the thread's own page.
    """
    name = shown_shortened(readable(thread_id), "history-id")
    if not digest:
        return name
    address = reverse("admin:history_retention_thread_change", args=[digest])
    return format_html('<a href="{}">{}</a>', address, name)


def shown_shortened(whole: str, kind: str) -> SafeString:
    """Return a text for a table: short, in an order of its own, the whole of it in its title."""
    short = shortened(whole)
    if short == whole:
        return format_html('<bdi class="{}">{}</bdi>', kind, short)
    return format_html('<bdi class="{}" title="{}">{}</bdi>', kind, whole, short)


def quiet(text: str, *, on_a_line: bool = False) -> SafeString:
    """Return a text for a table cell that says more about what stands before it."""
    return format_html(' <span class="quiet{}">{}</span>', " history-line" * on_a_line, text)


def badge(value: str, word: str | Promise) -> SafeString:
    """Return a word for a table that a colour goes with."""
    return format_html('<span class="history-badge history-{}">{}</span>', value, word)


def counted_threads(count: int) -> str:
    """Return "1 thread", "1,204 threads"."""
    return ngettext("%(count)s thread", "%(count)s threads", count) % {"count": grouped(count)}


def counted_rows(count: int) -> str:
    """Return "1 row", "1,204 rows"."""
    return ngettext("%(count)s row", "%(count)s rows", count) % {"count": grouped(count)}


def grouped(count: int) -> str:
    """Return a number with its thousands set apart."""
    return number_format(count, use_l10n=True, force_grouping=True)


def told(store: str, outcome: Outcome, skipped: Iterable[SkipReason]) -> str:
    """Return what a prune or reclaim did, in sentences with units."""
    removed = outcome.removed
    sentences = [
        _("%(store)s: removed the stored state of %(threads)s (%(rows)s, %(size)s).")
        % {
            "store": store,
            "threads": counted_threads(removed.thread_count),
            "rows": counted_rows(removed.checkpoint_count + removed.write_count),
            "size": filesizeformat(removed.byte_count),
        },
        *kept_since(skipped),
    ]
    if outcome.ending is Ending.INTERRUPTED:
        sentences.append(
            _("That is as much as one request has time for: do it again for the rest.")
        )
    sentences += [text for text in (outcome.error, outcome.vacuum.reason) if text]
    return " ".join(sentences)


def told_of_nothing(store: str, skipped: Iterable[SkipReason]) -> str:
    """Return that nothing was removed, and what was kept."""
    nothing = _("%(store)s: nothing was removed.") % {"store": store}
    return " ".join([nothing, *kept_since(skipped)])


def kept_since(skipped: Iterable[SkipReason]) -> list[str]:
    """Return a sentence for each reason why threads were left alone."""
    return [
        ngettext("%(count)s kept: %(reason)s.", "%(count)s kept: %(reason)s.", count)
        % {"count": grouped(count), "reason": SKIPPED_BECAUSE[reason]}
        for reason, count in sorted(Counter(skipped).items())
    ]
