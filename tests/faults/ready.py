"""Django set up, for the processes that are forked with it; imported for that alone."""

import django

django.setup()
