"""The bundled project's settings, with an app beside it whose models name threads."""

from project.settings import *  # noqa: F403
from project.settings import DATABASES as PROJECT_DATABASES
from project.settings import INSTALLED_APPS as PROJECT_APPS

INSTALLED_APPS = [*PROJECT_APPS, "tests.hostapp"]
DATABASES = {
    **PROJECT_DATABASES,
    # What a test may point at another server.
    "replica": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "TEST": {"MIGRATE": False},
    },
}
