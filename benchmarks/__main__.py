"""Run the benchmarks: ``python -m benchmarks [--size S]``; one JSON line a measurement."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django

from .stores import SIZES, Size, write_store


@contextmanager
def _stage() -> Iterator[Path]:
    """Set Django up over a ledger of its own in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="history-bench-") as folder:
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/ledger.db"
        os.environ["HISTORY_DATABASE_URL"] = f"sqlite:///{folder}/history.db"
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield Path(folder)


def _run(folder: Path, name: str, size: Size) -> None:
    from . import disk, measurements

    for journal_mode in ("delete", "wal"):
        path = folder / f"{journal_mode}.db"
        write_store(path, size, journal_mode=journal_mode)
        measurements.point_at(path)
        works = [disk.peak_of_a_vacuum, measurements.longest_wait_of_a_writer]
        if journal_mode == "delete":
            works = [
                measurements.pages_of_measuring,
                measurements.pages_of_choosing,
                measurements.time_of_measuring,
                measurements.time_of_measuring_by_key,
                measurements.time_of_measuring_again,
                measurements.bytes_written_by_removing,
                *works,
            ]
        for work in works:
            print(work(path).as_json(name), flush=True)
        path.unlink()


def main(arguments: list[str]) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="S", help="the store to write")
    size = parser.parse_args(arguments).size
    with _stage() as folder:
        _run(folder, size, SIZES[size])


if __name__ == "__main__":
    main(sys.argv[1:])
