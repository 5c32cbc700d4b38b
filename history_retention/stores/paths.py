"""Where a SQLite database lies, told without opening it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes

from ..exceptions import StoreMissing, StoreUnreadable


def path_of(name: object) -> Path | None:
    """Return the real path of a database name, or None for one in memory."""
    text = str(name)
    if text.startswith("file:"):
        text, _, query = text.removeprefix("file:").partition("#")[0].partition("?")
        if text.startswith("//"):  # an authority, which SQLite takes if it is this machine
            text = "/" + text[2:].partition("/")[2]
        text = "" if "mode=memory" in query else os.fsdecode(unquote_to_bytes(text))
    if text in ("", ":memory:"):
        return None
    try:
        return Path(text).resolve()
    except (RuntimeError, ValueError):  # links in a circle, a NUL: looking at it tells which
        return Path(text).absolute()


def require_file(alias: str, path: Path) -> None:
    """Raise StoreMissing or StoreUnreadable for what SQLite would create, or would hang on."""
    hint = f"check NAME of {alias!r} in DATABASES"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise StoreMissing(f"{alias}: there is no file {path}; none was created; {hint}.") from None
    except (OSError, ValueError) as error:
        raise StoreUnreadable(f"{alias}: {path} cannot be looked at ({error}); {hint}.") from error
    if stat.S_ISDIR(mode):
        raise StoreUnreadable(f"{alias}: {path} is a folder, not a database file; {hint}.")
    if not stat.S_ISREG(mode):
        raise StoreUnreadable(f"{alias}: {path} is not a regular file; {hint}.")


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def temporary_folder() -> Path:
    """Return where SQLite puts its temporary files (https://www.sqlite.org/tempfiles.html, 5)."""
    places = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"))
    for place in (*places, "/var/tmp", "/usr/tmp", "/tmp"):  # noqa: S108 - SQLite's own list
        if place and Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path.cwd()
