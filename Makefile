# Everything runs in .venv, which the first target that needs it sets up. `make help` lists targets.

# Any Python from 3.11 that can create virtual environments; name another with PYTHON=/path/to/it.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& command -v $$python && break; done)

# A real store that the environment names is none of the business of the demo and the tests.
BIN = env -u HISTORY_DATABASE_URL -u HISTORY_LAYOUT .venv/bin
MANAGE = $(BIN)/python manage.py
TEST_OPTIONS ?= -n auto --dist worksteal
BENCH_OPTIONS ?=

# Run a command of manage.py and show it as a person would type it.
run = @echo '$$ .venv/bin/python manage.py $(1)' && $(MANAGE) $(1) && echo

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test lint types check matrix bench clean

help:
	@echo "make demo    a seeded store, its readout, a dry-run prune, and the way to the admin"
	@echo "make test    the tests; options for pytest go in TEST_OPTIONS"
	@echo "make lint    ruff: rules and format"
	@echo "make types   mypy, strict"
	@echo "make check   Django's checks, and that no migration is missing"
	@echo "make matrix  the tests on every supported Python and Django"
	@echo "make bench   the benchmarks; options (--size M, --only NAME) go in BENCH_OPTIONS"
	@echo "make clean   remove what the other targets made, but for the ledger"

demo: .venv/.installed-demo demo/secret_key demo/history.db
	$(call run,migrate --verbosity 0)
	$(call run,history_readout)
	$(call run,history_prune --older-than 30 --dry-run)
	@echo "To see the same in the admin, create an account, start the server and open it:"
	@echo "  .venv/bin/python manage.py createsuperuser"
	@echo "  .venv/bin/python manage.py runserver"
	@echo "  http://127.0.0.1:8000/"

demo/history.db: | .venv/.installed-demo
	$(call run,history_seed_demo)

demo/secret_key: | .venv/.installed-demo
	@mkdir -p demo
	@umask 077 && $(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(50))' > $@

test: .venv/.installed-tests
	$(BIN)/python -m pytest $(TEST_OPTIONS)

lint: .venv/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-types
	$(BIN)/mypy

check: .venv/.installed-demo
	$(call run,check --fail-level WARNING)
	$(call run,makemigrations --check --dry-run)

matrix: .venv/.installed-matrix
	.ci/matrix

bench: .venv/.installed-tests
	$(BIN)/python -m benchmarks $(BENCH_OPTIONS)

clean:
	rm -rf .venv .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	rm -f demo/secret_key demo/history.db demo/history.db-*

.venv/.created:
	@test -n "$(PYTHON)" || { echo "No Python from 3.11 that can create virtual environments was" \
		"found: install one (Debian, Ubuntu: apt install python3 python3-venv), or name it with" \
		"make PYTHON=/path/to/python3." >&2; exit 1; }
	"$(PYTHON)" -m venv --clear .venv
	.venv/bin/python -m pip install --quiet --upgrade pip
	@touch $@

.venv/.installed-%: pyproject.toml | .venv/.created
	.venv/bin/python -m pip install --quiet --editable '.[celery,jobs]' --group $*
	@touch $@
