"""Write a store to try the other commands on."""

import os
import sqlite3
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from project.demo_store import write_demo_store


class Command(BaseCommand):
    help = "Write a small LangGraph store to demo/history.db, to try the other commands on."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--force", action="store_true", help="Write it anew where demo/history.db is there."
        )

    def handle(self, *, force: bool, **options: object) -> None:
        path = settings.DEMO_DIR / "history.db"
        if path.exists() and not force:
            raise CommandError(
                f"{path} is there already and was left as it is; to write it anew pass --force."
            )
        unfinished = path.with_suffix(".unfinished")
        try:
            path.parent.mkdir(exist_ok=True)
            _remove(unfinished)
            written = write_demo_store(unfinished, now=timezone.now())
            _remove(path)
            unfinished.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise CommandError(f"{path} could not be written: {error}.") from error
        author = "LangGraph's own saver" if written.own_saver else "plain SQL"
        self.stdout.write(
            f"{os.path.relpath(path)}: wrote {written.threads} threads "
            f"({written.checkpoints} checkpoints, {written.writes} writes) and "
            f"{written.conversations} conversations with {written.turns} turns, "
            f"{path.stat().st_size / 2**20:.1f} MB, with {author}."
        )


def _remove(path: Path) -> None:
    """Remove a SQLite file and its logs, which would be replayed into its successor."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
