"""Settings of the bundled project: any store, opened without editing a file.

``HISTORY_DATABASE_URL`` names the store (``sqlite:////home/me/.gsloth/history.db``), by default
the demo's own file; ``HISTORY_LAYOUT`` its layout, by default told from the tables.
``DATABASE_URL`` moves the ledger, by default a SQLite file beside ``manage.py``.
"""

import os
import sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key

try:
    import dj_database_url
except ImportError as error:
    raise ImproperlyConfigured(
        "The bundled project reads its databases from URLs with dj-database-url, which is not "
        "installed: run `make demo`, or `python -m pip install --group demo`."
    ) from error

BASE_DIR = Path(__file__).resolve().parent.parent
DEMO_DIR = BASE_DIR / "demo"


def _database(variable: str, default: Path) -> dict[str, Any]:
    """Read a database from the URL in an environment variable, or use a SQLite file."""
    url = os.environ.get(variable, "")
    if not url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(default)}
    try:
        config = dict(dj_database_url.parse(url))
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{variable} is not the URL of a database: {error} For a SQLite file write "
            "sqlite:// and its absolute path, as in sqlite:////home/me/.gsloth/history.db."
        ) from error
    if str(config["ENGINE"]).endswith(".postgresql") and not (
        find_spec("psycopg") or find_spec("psycopg2")
    ):
        raise ImproperlyConfigured(
            f"{variable} names a PostgreSQL database, and no driver for it is installed: run "
            '`python -m pip install "psycopg[binary]"`.'
        )
    return config


def _secret_key() -> str:
    """Return the key of the environment, of the demo, or one that lasts as long as the process."""
    kept = DEMO_DIR / "secret_key"
    if "DJANGO_SECRET_KEY" in os.environ:
        return os.environ["DJANGO_SECRET_KEY"]
    return kept.read_text().strip() if kept.exists() else get_random_secret_key()


SECRET_KEY = _secret_key()

# Django's own server gives out the admin's style sheets under DEBUG alone, while a command that
# runs under it keeps its last 9,000 statements in memory: so each has its own default.
DEBUG = os.environ.get("DJANGO_DEBUG", "1" if sys.argv[1:2] == ["runserver"] else "0") == "1"
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")

INSTALLED_APPS = [
    "project",
    "history_retention",
    "history_retention.contrib.openclaw",
    "history_retention.contrib.harness",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
if find_spec("django_extensions"):
    INSTALLED_APPS.append("django_extensions")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "project.middleware.strict_content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": _database("DATABASE_URL", BASE_DIR / "ledger.sqlite3"),
    "history": _database("HISTORY_DATABASE_URL", DEMO_DIR / "history.db"),
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # The admin and a command write the ledger side by side: each waits for its turn.
    DATABASES["default"].setdefault("OPTIONS", {}).update(transaction_mode="IMMEDIATE", timeout=20)
DATABASE_ROUTERS = ["history_retention.routers.HistoryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

HISTORY_RETENTION = {
    "STORES": {
        "history": {
            "LAYOUT": os.environ.get("HISTORY_LAYOUT", "auto"),
            "CONVERSATIONS": None,
        },
    },
    "GRACE": timedelta(hours=24),
    "BOX_SECONDS": 0.025,
    "GAP_SECONDS": 0.05,
    "SECURE_DELETE": "fast",
    "POLICIES": [],
}

CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL", "memory://")
CELERY_TIMEZONE = "UTC"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True
STATIC_URL = "static/"
