"""What is measured on which store, and the run that prints it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import django

from tests.stores.costs import forget_peak, peak_memory

from . import admin_pages, disk, memory, postgres, sqlite_reads, sqlite_removals, waits
from .comparisons import Comparison, table
from .stage import Stage, point_at, remove
from .stores import SIZES, write_store

IN_SQLITE: dict[str, tuple[str, Callable[[Stage], Iterator[Comparison]]]] = {
    "pages": ("SMT", sqlite_reads.pages),
    "measuring": ("SMT", sqlite_reads.measuring),
    "measuring-again": ("SM", sqlite_reads.measuring_again),
    "candidates": ("SMT", sqlite_reads.candidates),
    "selection": ("P", sqlite_reads.selection),
    "admin-page": ("ST", admin_pages.pages),
    "written-bytes": ("SM", sqlite_removals.written_bytes),
    "reclaim": ("SM", sqlite_removals.reclaims),
    "saver": ("SM", sqlite_removals.saver_loop),
    "receiver": ("S", sqlite_removals.receiver),
    "memory": ("ST", memory.growth),
    "vacuum-disk": ("SM", disk.peaks),
    "writer": ("SMT", waits.writers),
}
"""Measurements by name, each with the stores that it is made on."""

IN_POSTGRES: dict[str, tuple[str, Callable[[postgres.Server], Iterator[Comparison]]]] = {
    "postgres-sizes": ("SMT", postgres.sizes),
    "postgres-removals": ("SM", postgres.removals),
}

Line = dict[str, object]
Work = TypeVar("Work", bound=Callable[..., Iterator[Comparison]])


def run(
    folder: Path, sizes: list[str], *, only: list[str] | None, server: str | None, rounds: int
) -> None:
    """Write each store, measure on it, print a line a measurement and all of them as a table."""
    known = [*IN_SQLITE, *IN_POSTGRES]
    names = set(only or known)
    if names - set(known):
        sys.exit(f"No measurement is named {min(names - set(known))}; there are {known}.")
    _introduce(folder, sizes)
    lines: list[Line] = []
    for size in sizes:
        lines += _in_sqlite(folder, size, names, rounds)
        if server:
            lines += _in_postgres(server, size, names, rounds)
    print(table(lines))


def _in_sqlite(folder: Path, size: str, names: Collection[str], rounds: int) -> list[Line]:
    works = _works(IN_SQLITE, size, names)
    if not works:
        return []
    store = folder / f"{size}.db"
    with _told(f"{size}: writing the store"):
        write_store(store, SIZES[size])
    point_at(store)
    stage = Stage(folder=folder, size=size, store=store, rounds=rounds)
    lines = [line for name, work in works for line in _lines(f"{size}: {name}", size, work(stage))]
    remove(store)
    return lines


def _in_postgres(url: str, size: str, names: Collection[str], rounds: int) -> list[Line]:
    works = _works(IN_POSTGRES, size, names)
    if not works:
        return []
    _say(f"{size}: writing the store to PostgreSQL")
    with postgres.serving(url, size, rounds) as server:
        return [
            line for name, work in works for line in _lines(f"{size}: {name}", size, work(server))
        ]


def _works(
    measurements: dict[str, tuple[str, Work]], size: str, names: Collection[str]
) -> list[tuple[str, Work]]:
    return [
        (name, work) for name, (on, work) in measurements.items() if name in names and size in on
    ]


def _lines(what: str, store: str, comparisons: Iterator[Comparison]) -> Iterator[Line]:
    """Print each comparison as soon as it is made, with the memory that this process took."""
    with _told(what):
        while True:
            forget_peak()
            comparison = next(comparisons, None)
            if comparison is None:
                return
            line = comparison.line(store, peak_memory())
            print(json.dumps(line), flush=True)
            yield line


def _introduce(folder: Path, sizes: list[str]) -> None:
    """Say on what is measured and what disk it takes; refuse where there is not enough."""
    needed = max(SIZES[size].disk for size in sizes)
    free = shutil.disk_usage(folder).free
    _say(
        f"{os.cpu_count()} cores, load {_load()}; Python {platform.python_version()}, Django "
        f"{django.__version__}, SQLite {sqlite3.sqlite_version}; takes up to "
        f"{needed / 10**9:.1f} GB of {free / 10**9:.1f} GB free in {folder.parent}"
    )
    if free < needed:
        sys.exit("That is not enough disk: choose a smaller --size, or another --folder.")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say on standard error how long it took, and how busy the machine was by then."""
    started = time.perf_counter()
    yield
    _say(f"{what}: {time.perf_counter() - started:.1f} s, load {_load()}")


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
