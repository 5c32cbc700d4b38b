import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py as a person does, with more in the environment."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("variable", ["HISTORY_DATABASE_URL", "DATABASE_URL"])
@pytest.mark.parametrize("url", ["history.db", "mongodb://localhost/x", "postgres://u@h:port/x"])
def test_a_wrong_url_is_one_sentence_that_names_its_variable(variable: str, url: str) -> None:
    ran = manage("check", **{variable: url})

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"manage.py: {variable} is not the URL of a database: ")
    assert ran.stderr.count("\n") == 1


def test_each_url_moves_its_own_database() -> None:
    ran = manage(
        "shell",
        "--no-imports",
        "--command",
        "from django.db import connections as c; print([c[a].settings_dict['NAME'] for a in c])",
        HISTORY_DATABASE_URL="sqlite:////srv/an%20agent/history.db",
        DATABASE_URL="sqlite:////srv/ledger.db",
    )

    assert (ran.stderr, ran.stdout) == ("", "['/srv/ledger.db', '/srv/an agent/history.db']\n")


@pytest.mark.parametrize(("command", "debug"), [("runserver", True), ("history_prune", False)])
def test_debug_is_on_for_the_development_server_alone(command: str, debug: bool) -> None:
    script = (
        "import sys; sys.argv[1:] = sys.argv[1:2]; import project.settings as s; print(s.DEBUG)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", script, command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == f"{debug}\n"


@pytest.fixture
def without_driver(tmp_path: Path) -> str:
    """A folder for PYTHONPATH that hides the drivers of PostgreSQL."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(psycopg=None, psycopg2=None)\n"
    )
    return str(tmp_path)


@pytest.mark.parametrize("variable", ["HISTORY_DATABASE_URL", "DATABASE_URL"])
def test_a_missing_driver_is_one_sentence_that_says_what_to_install(
    without_driver: str, variable: str
) -> None:
    ran = manage("check", PYTHONPATH=without_driver, **{variable: "postgres://u@h/x"})

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"manage.py: {variable} names a PostgreSQL database, and no driver for it is installed: "
        'run `python -m pip install "psycopg[binary]"`.\n'
    )
