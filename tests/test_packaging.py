import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "history_retention"

OPTIONAL = ("celery", "kombu", "django_extensions", "langgraph", "ormsgpack", "psycopg")


def modules() -> Iterator[tuple[str, str]]:
    """Name every module of the package with its text, but for the tests of the add-ons."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if "/tests/" not in name:
            yield name, path.read_text()


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The names inside a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("django_history_retention-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return frozenset(packed.namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel_names: frozenset[str]) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert files - wheel_names == set()


@pytest.mark.parametrize(
    "pattern",
    [
        r"history_retention/py\.typed",
        r"history_retention/templates/.+\.html",
        r"history_retention/static/.+\.css",
        r"history_retention/migrations/0001_\w+\.py",
        r"django_history_retention-[\d.]+\.dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_holds_what_is_not_code(wheel_names: frozenset[str], pattern: str) -> None:
    assert any(re.fullmatch(pattern, name) for name in wheel_names)


def test_the_wheel_holds_nothing_beside_the_package(wheel_names: frozenset[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in wheel_names} == {
        "history_retention",
        "django_history_retention",
    }


def test_every_module_but_the_job_and_the_saver_is_imported_with_django_alone() -> None:
    names = [
        "history_retention." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name, _ in modules()
        if not name.startswith(("jobs/", "contrib/", "guard/saver")) and name != "__init__.py"
    ]
    script = f"""
import importlib, sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth",
        "django.contrib.sessions", "django.contrib.messages", "django.contrib.admin",
        "history_retention"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    USE_TZ=True)
import django
django.setup()
for name in {names!r}:
    importlib.import_module(name)
print(len({names!r}))
"""

    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stderr, ran.stdout) == ("", f"{len(names)}\n")
    assert len(names) > 20


def test_statements_are_executed_in_stores_alone() -> None:
    outside = {
        name
        for name, text in modules()
        if not re.match(r"(contrib/\w+/)?(stores/|services\.py)", name)
        and re.search(r"(?<!\bservices)\.execute(many|script)?\(", text)
    }

    assert outside == set()


def test_settings_are_read_in_one_module() -> None:
    readers = {
        name
        for name, text in modules()
        if re.search(r"(?<![\w.])settings(, \"|\.(?!AUTH_USER_MODEL)[A-Z])", text)
    }

    assert readers <= {"conf.py"}


def test_the_clock_is_read_at_the_edges_alone() -> None:
    readers = {
        name
        for name, text in modules()
        if re.search(r"\b(timezone\.now|datetime\.(now|utcnow|today)|date\.today)\(", text)
    }

    assert not {
        name
        for name in readers
        if not re.match(r"(admin/|management/commands/|tasks\.py|jobs/)", name)
    }


def test_no_module_holds_more_than_one_idea() -> None:
    lengths = {
        name: len(text.splitlines())
        for name, text in modules()
        if not name.startswith("migrations/")
    }

    assert {name: length for name, length in lengths.items() if length > 300} == {}
