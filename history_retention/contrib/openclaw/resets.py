"""Resetting a session: its key goes on with an empty transcript.

A file of age A gets a new session: what of the old family no entry needs is archived with reason
``reset`` and removed, in the same commit that gives the entry its new id. In age B nothing is
removed: a reset event is appended to the same session, and OpenClaw shows what comes after it.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ...exceptions import StoreUnreadable
from ...stores.sqlite import Value
from .archives.blobs import milliseconds
from .archives.files import Archive
from .catalogue import Catalogue
from .database import AgentDatabase
from .entries import Entry, entry_of, text_of
from .plans import References, Stay, removal
from .removals import Removals, require_removable

OF_A_SESSION = (
    *("compactionCheckpoints", "compactionCount", "usageFamilyKey", "usageFamilySessionIds"),
    *("lastInteractionAt", "lastActivityAt", "startedAt", "endedAt", "status", "sessionFile"),
)
"""What an entry says of its session and not of itself: a new session has none of it."""

_NEXT = "the entry after its reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What a reset did. ``removed`` counts the rows of each table."""

    key: str
    reset: bool
    session_id: str = ""
    archived: tuple[Archive, ...] = ()
    removed: Mapping[str, int]
    kept: tuple[Stay, ...] = ()


class Resets:
    """Resets entries of an open file that may be changed, inside its transaction."""

    def __init__(self, database: AgentDatabase, catalogue: Catalogue, removals: Removals) -> None:
        self._database = database
        self._catalogue = catalogue
        self._removals = removals

    def reset(self, key: str, at: datetime, *, changes: Mapping[str, Any] | None = None) -> Reset:
        """Reset an entry; raises as ``Removals.remove`` does, and the caller rolls back.

        ``changes`` replace what a reset leaves of the entry, as OpenClaw's own callers do.
        """
        entry = self._catalogue.entry(key)
        if entry is None:
            return Reset(key=key, reset=False, removed={})
        require_removable(entry, self._database)
        now = milliseconds(at)
        begun: dict[str, Value] = {"updatedAt": now, "sessionStartedAt": now}
        if self._database.age.has_nodes:
            done = self._mark(entry, self._database.edited(key, begun), at)
        else:
            begun_anew = {"sessionId": str(uuid4()), **begun}
            text = self._database.edited(key, begun_anew, OF_A_SESSION)
            done = self._replace(entry, text if changes is None else text_of(changes), at)
        self._catalogue.forget()
        return done

    def _replace(self, entry: Entry, text: bytes, at: datetime) -> Reset:
        database = self._database
        fields = json.loads(text)
        following = entry_of(entry.key, fields["sessionId"], text, fields["updatedAt"])
        others = [each for each in self._catalogue.entries().values() if each.key != entry.key]
        needed = References([*others, replace(following, key=_NEXT)], database.age)
        plan = removal(entry, database.age, needed, self._removals.windows(entry))
        archived = self._removals.archived(plan.session_ids, "reset", at)
        database.begin_session(entry, following, text)
        removed: Counter[str] = Counter()
        for session_id in plan.session_ids:
            removed.update(database.dependents.remove_window(session_id))
        return Reset(
            key=entry.key,
            reset=True,
            session_id=following.current_id,
            archived=archived,
            removed=dict(removed),
            kept=plan.stays,
        )

    def _mark(self, entry: Entry, text: bytes, at: datetime) -> Reset:
        database = self._database
        window = database.transcripts.windows([entry.current_id]).get(entry.current_id)
        if window is not None:
            if window.is_cold:
                raise StoreUnreadable(
                    f"{database.file.alias}: the transcript of {entry.key} is in cold storage, so "
                    "nothing can be appended to it. Open it in OpenClaw first."
                )
            stamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            event = {
                "type": "reset",
                "id": secrets.token_hex(4),
                "parentId": database.transcripts.leaf(entry.current_id),
                "timestamp": stamp,
                "reason": "reset",
            }
            database.transcripts.append(entry.current_id, event, milliseconds(at))
        database.rewrite(entry.key, text, milliseconds(at))
        return Reset(key=entry.key, reset=True, session_id=entry.current_id, removed={})
