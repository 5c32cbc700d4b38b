"""The Celery application: ``celery --app project worker --beat``.

Nothing prunes by itself until somebody says what: ``HISTORY_PRUNE_OLDER_THAN=90`` in the
environment adds a weekly prune of threads idle for 90 days.
"""

import os

from celery import Celery
from celery.schedules import crontab

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

app = Celery("project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = {
    "measure every hour": {
        "task": "history_retention.measure",
        "schedule": crontab(minute=5),
    },
    "reclaim every night": {
        "task": "history_retention.reclaim",
        "schedule": crontab(hour=3, minute=15),
    },
}
if "HISTORY_PRUNE_OLDER_THAN" in os.environ:
    app.conf.beat_schedule["prune every Sunday"] = {
        "task": "history_retention.prune",
        "schedule": crontab(hour=4, minute=15, day_of_week="sunday"),
        "kwargs": {"older_than_days": int(os.environ["HISTORY_PRUNE_OLDER_THAN"])},
    }
