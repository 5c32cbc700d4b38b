"""Where a SQLite database lies, told without opening it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..exceptions import StoreMissing, StoreUnreadable


def path_of(name: object) -> Path | None:
    """Return the real path of a database name, or None for one in memory."""
    text = str(name)
    if text.startswith("file:"):
        uri = urlsplit(text)
        if "mode=memory" in uri.query or uri.path == ":memory:":
            return None
        text = unquote(uri.path)
    return None if text in ("", ":memory:") else Path(text).resolve()


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
