# make demo: see it work.  make test: run the suite.  Nothing but Python 3.11+ is needed beforehand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-full test-repeat test-campaigns test-mutants test-newest lint format test-compose test-snakemake bench bench-peers constraints web manual dist clean check-python

demo: .venv/demo
	@$(BIN)/loopline demo

# Two processes a core, for half of the suite waits for other processes. Bytecode is kept whatever the environment says:
# the suite starts hundreds of processes.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
PROCESSES ?= $$(($$(getconf _NPROCESSORS_ONLN) * 2))
test: .venv/installed
	$(PYTEST) -n $(PROCESSES) --dist worksteal

# The rest of what must be green before anything lands: pages in a browser, PostgreSQL, documentation that runs, more live
# grids.
test-full: .venv/installed
	$(PYTEST) -n $(PROCESSES) --dist worksteal -m full

# The suite N times, each in another order and with other examples; BUSY=2 beside two busy processes. See tests/repeat.py.
N ?= 20
BUSY ?= 0
TESTS ?=
test-repeat: .venv/installed
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m tests.repeat --times $(N) --busy $(BUSY) --processes $(PROCESSES) $(TESTS)

# Minutes to hours: many random examples by a seed of the day, printed (SEED=N tries a day again), and the tests marked
# `campaign`.
SEED ?= $(shell date +%Y%m%d)
test-campaigns: .venv/installed
	LOOPLINE_CAMPAIGNS=1 $(PYTEST) -n auto --dist worksteal -m "" --timeout 1800 --hypothesis-seed=$(SEED)
	$(MAKE) test-snakemake
	$(MAKE) test-mutants SAMPLE=10 MUTANTS_SEED=$(SEED)

# A sample of mutations of the scheduler's core: what do its tests let live? Some minutes; SAMPLE=400 takes hours.
SAMPLE ?= 40
MUTANTS_SEED ?= 1
test-mutants: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --target .bench/mutants --upgrade 'cosmic-ray>=8.4,<9'
	$(BIN)/python -m tests.mutants --sample $(SAMPLE) --seed $(MUTANTS_SEED)

# The newest release of every library instead of the locked ones, in an environment of its own: the tests of the Python
# client, the command line and the API.
NEWEST := .bench/newest
test-newest: | check-python
	rm -rf $(NEWEST)
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip uv
	$(NEWEST)/bin/uv pip install --system-certs --quiet --python $(NEWEST)/bin/python --upgrade $(EXTRAS) --group dev --editable . -r pyproject.toml
	env -u PYTHONDONTWRITEBYTECODE $(NEWEST)/bin/python -m pytest -n $(PROCESSES) --dist worksteal \
		tests/python tests/cli tests/api tests/live/test_functions.py tests/live/test_joblib_conformance.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-compose: .venv/installed
	$(BIN)/python -m pytest tests/compose -p no:cacheprovider -p no:xdist

test-snakemake: .venv/installed
	$(BIN)/python -m pytest tests/snakemake -p no:cacheprovider -p no:xdist

# What a task costs, beside what a user might pick instead: ten minutes on a computer that does nothing else.
bench: .venv/installed
	$(BIN)/python benchmarks/run_all.py

bench-peers:
	$(PYTHON) benchmarks/harness/install_peers.py

# Not `elastic`: its PSI/J wants an older psutil than the worker.
EXTRAS := $(foreach extra,master worker planner discovery sim dask postgres s3,--extra $(extra))
constraints: .venv/installed
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --group dev --generate-hashes --universal \
		--python-version 3.11 --no-header --quiet --output-file requirements/all.txt
	$(BIN)/uv pip compile pyproject.toml --extra master --extra worker --group install --constraint requirements/all.txt \
		--no-emit-package uv \
		--no-annotate --generate-hashes --universal --python-version 3.11 --no-header --quiet \
		--output-file requirements/demo.txt

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --silent && touch node_modules/.package-lock.json

# The master's page, into master/loopline_master/dashboard/assets. Needs Node 20.19 or newer, which nothing else here does.
web: .venv/demo web/node_modules/.package-lock.json
	$(BIN)/python -c "$$PRINT_OPENAPI" > web/openapi.json
	cd web && npm run --silent types && npm run --silent check
	cd web && npm run --silent test && npm run --silent build

define PRINT_OPENAPI
import json
from loopline_master.http.openapi import document
from loopline_master.http.routes import all_operations
print(json.dumps(document(all_operations()), indent=1))
endef
export PRINT_OPENAPI

# The manual, into master/loopline_master/manual, from where a master serves it under /manual/, and the man pages, into
# build/man, from where a wheel takes them. Checks every link.
manual: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python docs/man_pages.py

# What a release is made of: sdist and wheel in dist/, with the manual, and a list of the libraries that it may run with
# (SBOM, CycloneDX). Refused where a tag says another version.
dist: manual
	@version=$$($(BIN)/python -c 'import loopline; print(loopline.__version__)'); \
	tag=$$(git describe --exact-match --tags 2>/dev/null); \
	[ -z "$$tag" ] || [ "$$tag" = "v$$version" ] || { \
		echo "the tag here is $$tag, and __version__ in shared/loopline_shared/__init__.py says $$version: make them agree"; \
		exit 1; }
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	@mkdir -p build
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --constraint requirements/all.txt --generate-hashes --universal \
		--python-version 3.11 --no-annotate --no-header --quiet --output-file build/runtime.txt
	$(BIN)/uv tool run --quiet --from "cyclonedx-bom>=7,<8" cyclonedx-py requirements build/runtime.txt \
		--pyproject pyproject.toml --output-reproducible --output-file dist/loopline.cdx.json 2>build/sbom.log

clean:
	rm -rf dist master/loopline_master/manual .venv .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis loopline-demo

# What the demo needs, about 100 MB; not compiled ahead, since it imports a part of it only.
.venv/demo: pyproject.toml requirements/demo.txt | check-python
	@echo "making a virtual environment in .venv"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "installing the libraries of master and worker there ($$(grep -c == requirements/demo.txt) packages):"
	@rm -f $@.libraries
	@($(PIP) --no-compile --no-deps --require-hashes -r requirements/demo.txt && touch $@.libraries) | $(NAMES)
	@test -f $@.libraries
	@echo "installing Loopline itself there, in place"
	@$(PIP) --quiet --no-compile --no-deps --no-build-isolation --editable .
	@touch $@

# All the rest: what the suite, the linters and the simulator need, about 900 MB; not compiled ahead either, which takes
# half as long again, for a small part of it is ever imported. By uv, with a fraction of pip's work; pip has its turn
# where that fails, for it may know an index of which uv does not.
.venv/installed: .venv/demo requirements/all.txt
	@echo "installing what tests and linters need ($$(grep -c == requirements/all.txt) packages):"
	@rm -f $@
	@awk '/^uv==/,!/\\$$/' requirements/all.txt > $@.uv
	@$(PIP) --quiet --no-compile --no-deps --require-hashes -r $@.uv
	@if $(BIN)/uv pip install --system-certs --python $(BIN)/python --require-hashes -r requirements/all.txt; then touch $@; else \
		($(PIP) --no-compile --require-hashes -r requirements/all.txt && touch $@) | $(NAMES); fi
	@test -f $@

PIP := $(BIN)/pip install --disable-pip-version-check
# Prints the name of each package as pip comes to it, and what pip says besides of errors.
NAMES := while read -r first name rest; do [ "$$first" != Collecting ] || printf ' %s' "$${name%%[=<>~]*}"; done; echo

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Loopline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
		echo "Install one, then: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "Python's venv module is missing. On Debian or Ubuntu: sudo apt install python3-venv"; exit 1; }
