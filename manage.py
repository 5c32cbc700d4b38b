#!/usr/bin/env python
"""Run Django's commands with the bundled project's settings."""

import os
import sys


def main() -> None:
    """Run the command line; a wrong configuration is one sentence and exit status 1."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("manage.py: Django is not installed for this Python: run `make demo` first.")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"manage.py: {error}")


if __name__ == "__main__":
    main()
