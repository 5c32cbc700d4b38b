"""Compare what this package does with plain alternatives; one JSON line a measurement.

Stores are written to a temporary folder, used by all measurements of their size, and removed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import django

from .stores import SIZES


def main(arguments: list[str]) -> None:
    """Parse the command line and run, over a ledger of its own that is removed afterwards."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was written is removed then too
    with tempfile.TemporaryDirectory(prefix="history-bench-", dir=options.folder) as folder:
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/ledger.db"
        os.environ["HISTORY_DATABASE_URL"] = f"sqlite:///{folder}/history.db"
        django.setup()
        from django.core.management import call_command

        from .runs import run

        call_command("migrate", verbosity=0)
        run(
            Path(folder),
            options.size or ["S"],
            only=options.only,
            server=options.postgres,
            rounds=options.rounds,
        )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--size", action="append", choices=SIZES, help="a store to write; repeatable (default: S)"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="run no other measurement; repeatable"
    )
    parser.add_argument(
        "--postgres", metavar="URL", help="a server where databases may be created, to measure too"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often what is timed is done")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
