"""Threads that a host's table was seen to name, by which it is known again once it names none."""

from __future__ import annotations

from django.db import connections

from .conf import store_options
from .facts import Plan
from .models import Sweep
from .stores.sqlite import is_plain


def of(plan: Plan) -> dict[str, object]:
    """Return what the record of a sweep keeps of the threads that the host's table names."""
    thread_ids = [thread_id for thread_id in plan.witnesses if is_plain(thread_id)]
    if not plan.named_by or not thread_ids:
        return {}
    return {
        "named_by": plan.named_by,
        "place": _place(plan.database),
        "thread_ids": thread_ids,
    }


def on_record(database: str, named_by: str) -> list[str]:
    """Return the witnesses of the newest sweep of this very database that has any."""
    sweep = Sweep.objects.filter(
        store=database, witnesses__named_by=named_by, witnesses__place=_place(database)
    ).first()
    return list(sweep.witnesses["thread_ids"]) if sweep else []


def _place(database: str) -> str:
    """Return what is the same for as long as the alias means the same database."""
    options = connections[database].settings_dict
    place = f"{options['HOST']}:{options['PORT']}/{options['NAME']}"
    schemas = store_options(database).schema, options["OPTIONS"].get("options", "")
    return " ".join(filter(None, (place, *schemas)))
