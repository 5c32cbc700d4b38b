"""The words that the commands and the admin share, and how both spell what a vendor wrote.

Translatable: the admin shows them in the language of whoever looks, the commands in English.
"""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from .facts import Awaiting, KeepReason, SkipReason, Transcripts

LONGEST_SHOWN = 40
"""Characters of an id in a table; a UUID has 36."""

KEPT_BECAUSE = {
    KeepReason.NAMED_BY_KEPT_CONVERSATION: _("named by a kept conversation"),
    KeepReason.HELD: _("held"),
    KeepReason.LEASED: _("in use by an agent"),
    KeepReason.UNKNOWN_AGE: _("unknown age"),
    KeepReason.PROTECTED: _("protected by its agent"),
    KeepReason.LIVE: _("named by no conversation, yet active within the grace window"),
    KeepReason.UNFINISHED: _("unfinished"),
}

BECOME_OF_TRANSCRIPTS = {
    Transcripts.STAY: _("Transcripts stay; the state that a resume needs goes."),
    Transcripts.ARCHIVED: _("Transcripts are archived first; nobody can resume them then."),
    Transcripts.GO: _("Transcripts go along with the state that a resume needs."),
}

AWAITED = {
    Awaiting.INTERRUPT: _("awaiting an answer"),
    Awaiting.TASKS: _("has steps to do"),
}

SKIPPED_BECAUSE = {
    SkipReason.ACTIVE: _("active since the plan"),
    SkipReason.NAMED: _("named by a conversation since the plan"),
    SkipReason.HELD: _("held since the plan"),
    SkipReason.LEASED: _("in use by an agent since the plan"),
    SkipReason.GONE: _("already gone"),
    SkipReason.BUSY: _("perhaps being written to by a transaction that is open"),
    SkipReason.TIMED_OUT: _("longer to remove than a statement may take"),
}


def spelled_out(text: str) -> str:
    r"""Return the text with whatever does not print spelled out, as ``\n`` or ``\u202e``.

    Thread ids are a vendor's: they may hold newlines, terminal escapes, invisible characters or
    halves of a surrogate pair.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def shortened(text: str, gap: str = "…") -> str:
    """Return the beginning and the end of a text too long for a table, and a short one whole."""
    if len(text) <= LONGEST_SHOWN:
        return text
    tail = LONGEST_SHOWN // 4
    return f"{text[: LONGEST_SHOWN - tail - len(gap)]}{gap}{text[-tail:]}"
