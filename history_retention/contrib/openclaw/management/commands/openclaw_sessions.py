"""List, delete, reset and clean up OpenClaw's sessions, and look after their archives."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser

from .....exceptions import HistoryRetentionError, UsageError
from .....facts import Ending, Plan
from .....management.commands import _flags
from .....management.commands._base import DestructiveCommand
from .....management.commands._text import counted, printable
from .....models import Sweep
from ... import quantities
from ...archives.inventory import Holding
from ...archives.retention import expired
from ...budgeting import budget_of, keep_budget
from ...cleanups import clean_up, decisions_of, rules_of
from ...operations import Deleted, delete, opened, plan_delete, removals_of, reset
from . import _cleanup_flags
from . import _openclaw_documents as documents
from . import _openclaw_text as text

ACTS = {
    "list": "Show every entry with its sessions, sizes and what protects it.",
    "delete": "Delete entries by key: their sessions are archived first, unless others need them.",
    "reset": "Give a key an empty transcript.",
    "cleanup": "Do what OpenClaw's own maintenance would, with its settings and defaults.",
    "archives": "List the archived transcripts, verify them, or remove old ones.",
}


class Command(DestructiveCommand):
    """Look after the sessions of an OpenClaw agent."""

    help = (
        "List, delete, reset and clean up the sessions of an OpenClaw agent, and look after their "
        "archives. Shows what it is about to do and asks first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the acts, each with the common flags and its own."""
        acts = parser.add_subparsers(dest="act", metavar="act", required=True)
        for act, help_text in ACTS.items():
            of_act = acts.add_parser(act, help=help_text, description=help_text)
            super().add_arguments(of_act)
            of_act.add_argument(
                "-v", "--verbosity", type=int, choices=range(4), default=argparse.SUPPRESS
            )
            getattr(self, f"_add_{act}")(of_act.add_argument)

    def _add_list(self, add: Callable[..., Any]) -> None:
        """Take no flag of its own."""

    def _add_delete(self, add: Callable[..., Any]) -> None:
        add("keys", nargs="+", metavar="KEY", help="A session key, as list shows it.")
        add(
            "--keep-transcripts",
            action="store_true",
            help="Delete the entries alone; their sessions stay in the database.",
        )

    def _add_reset(self, add: Callable[..., Any]) -> None:
        add("keys", nargs=1, metavar="KEY", help="A session key, as list shows it.")

    def _add_cleanup(self, add: Callable[..., Any]) -> None:
        _cleanup_flags.add_to(add)

    def _add_archives(self, add: Callable[..., Any]) -> None:
        add("--verify", action="store_true", help="Read every archive from end to end.")
        add(
            "--older-than",
            metavar="TIME",
            help="Remove published archives that are older, as 90d. Their transcripts are gone "
            "then.",
        )

    def serve(self, options: dict[str, Any]) -> None:
        """Do the act."""
        acts: dict[str, Callable[[dict[str, Any]], None]] = {
            "list": self._list,
            "delete": self._delete,
            "reset": self._reset,
            "cleanup": self._clean_up,
            "archives": self._archives,
        }
        acts[_flags.word("the act", options["act"], tuple(ACTS))](options)

    def _list(self, _options: dict[str, Any]) -> None:
        with opened(self.database) as store, self.watched() as progress:
            listing = store.listing(progress)
            age, version = store.age.name, store.version
        if self.to_json:
            self.say_document(documents.listing_document(self.database, age, version, listing))
        else:
            self.say(text.listing_lines(self.database, listing))

    def _delete(self, options: dict[str, Any]) -> None:
        keys = list(dict.fromkeys(_flags.texts("KEY", options["keys"])))
        keeps = _flags.switch("--keep-transcripts", options["keep_transcripts"])
        asks = self.asks(options)
        plan = plan_delete(self.database, keys, now=self.as_of)
        planned = sorted(thread.thread_id for thread in plan.prunable)  # as a sweep goes
        removals = removals_of(self.database, planned, keeps_transcripts=keeps)
        if self.rehearsing or planned:
            self.show(text.removal_lines(removals, dry_run=self.rehearsing), asks=asks)
        if self.rehearsing:
            if self.to_json:
                self.say_document(documents.rehearsal_document(self.database, keys, removals))
            return
        if planned and asks:
            self.ask(f"Delete {counted(len(planned), 'entry', 'entries')} of {self.database}?")
        deleted = delete(plan, trigger=Sweep.Trigger.COMMAND, keeps_transcripts=keeps)
        self._tell_deleted(keys, plan, deleted)
        self._require_done(deleted)

    def _tell_deleted(self, keys: Sequence[str], plan: Plan, deleted: Deleted) -> None:
        done = {deletion.key: deletion for deletion in deleted.deletions}
        left = {key: documents.left_of(key, deleted, plan.kept) for key in keys if key not in done}
        told = [documents.deletion_document(key, done.get(key), left.get(key)) for key in keys]
        if self.to_json:
            self.say_document(told[0] if len(told) == 1 else {"results": told})
        else:
            absent = [(key, why or "there is no such entry") for key, why in left.items()]
            self.say(text.deletion_lines(deleted.deletions, absent))

    def _require_done(self, deleted: Deleted) -> None:
        if deleted.outcome.ending is not Ending.DONE:
            raise CommandError(deleted.outcome.error)
        if deleted.pending:
            self.note(
                [
                    f"{self.database}: {counted(len(deleted.pending), 'archive')} could not be "
                    "written to a file yet and stay in the database; the next removal tries again."
                ]
            )

    def _reset(self, options: dict[str, Any]) -> None:
        (key,) = _flags.texts("KEY", options["keys"])
        asks = self.asks(options)
        if self.rehearsing:
            raise UsageError("reset has no --dry-run: it changes the one key that it names.")
        if asks:
            self.ask(f"Reset {printable(key)} of {self.database}?")
        done = reset(self.database, key, trigger=Sweep.Trigger.COMMAND)
        if self.to_json:
            self.say_document(documents.reset_document(done))
        else:
            self.say(text.reset_lines(done))

    def _clean_up(self, options: dict[str, Any]) -> None:
        rules = rules_of(self.database, partial(_cleanup_flags.changed, options=options))
        asks = self.asks(options)
        decisions = decisions_of(self.database, rules, now=self.as_of)
        with self.watched() as progress:
            budget = budget_of(self.database, rules, now=self.as_of, progress=progress)
        enforces = rules.enforces and options["max_disk_bytes"] is not None
        victims = budget.victims if enforces else ()
        is_idle = not victims and all(each.action.value == "keep" for each in decisions)
        describe = partial(
            documents.cleanup_document,
            self.database,
            decisions,
            mode=options["mode"],
            budget=budget,
        )
        lines = text.cleanup_lines(self.database, decisions, dry_run=self.rehearsing)
        self.show([*lines, *text.budget_lines(self.database, budget, enforces)], asks=asks)
        if self.rehearsing:
            if self.to_json:
                self.say_document(describe(None))
            return
        if asks and not is_idle:
            self.ask(f"Clean up {self.database}?")
        with self.watched() as progress:
            done = clean_up(
                self.database,
                decisions,
                now=self.as_of,
                trigger=Sweep.Trigger.COMMAND,
                progress=progress,
            )
        freed = None
        if victims:
            freed = keep_budget(
                self.database, budget, now=self.as_of, trigger=Sweep.Trigger.COMMAND
            )
        if self.to_json:
            self.say_document(describe(done, freed))
        elif not is_idle:
            self.say(text.cleaned_lines(self.database, done, freed))
        for deleted in (done.deleted, freed.deleted if freed else None):
            if deleted is not None:
                self._require_done(deleted)

    def _archives(self, options: dict[str, Any]) -> None:
        verifies = _flags.switch("--verify", options["verify"])
        older_than = _flags.text("--older-than", options["older_than"])
        if older_than is not None:
            self._remove_archives(older_than, options)
            return
        with opened(self.database) as store:
            told: list[tuple[Holding, str]] = []
            for holding in store.archives.all():
                found = ""
                if verifies:
                    try:
                        content = store.archives.verified(holding)
                        found = counted(content.event_count, "event") if content else "pending"
                    except HistoryRetentionError as error:
                        found = f"damaged: {error}"
                told.append((holding, found))
        damaged = sum(found.startswith("damaged") for _, found in told)
        if self.to_json:
            self.say_document(
                {
                    "database": self.database,
                    "archives": [
                        documents.holding_document(holding, {"verified": found} if verifies else {})
                        for holding, found in told
                    ],
                }
            )
        else:
            self.say(text.holding_lines(self.database, told))
        if damaged:
            raise CommandError(f"{self.database}: {counted(damaged, 'archive')} cannot be read.")

    def _remove_archives(self, older_than: str, options: dict[str, Any]) -> None:
        age = quantities.duration(older_than)
        if not age:
            raise UsageError("--older-than takes a time above 0, as 90d.")
        asks = self.asks(options)
        with opened(self.database) as store:
            chosen = expired(store.archives.all(), age, self.as_of)
        what = counted(len(chosen), "archive")
        self.show(text.holding_lines(self.database, [(each, "") for each in chosen]), asks=asks)
        if chosen and not self.rehearsing:
            if asks:
                self.ask(f"Remove {what} of {self.database} for good?")
            with opened(self.database) as store:
                removed = [each for each in chosen if store.archives.remove(each)]
            what = counted(len(removed), "archive")
        if self.to_json:
            self.say_document(
                {
                    "database": self.database,
                    "dry_run": self.rehearsing,
                    "removed": [documents.holding_document(each, {}) for each in chosen],
                }
            )
        else:
            will = "would remove" if self.rehearsing else "removed"
            self.say([f"{self.database}: {will} {what} older than {printable(older_than)}"])
