# Everything a contributor runs. Only make and Python 3.11 or newer have to be there.

# With PYTHON=… everything runs in an environment of that interpreter, beside .venv and never in its place.
ifdef PYTHON
VENV := .venv-$(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
else
VENV := .venv
endif
PYTHON_IN_VENV := $(VENV)/bin/python
STAMP := $(VENV)/.installed
USER_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)-user/.installed)
SCALE_STAMP := $(VENV)-scale/.installed
SUITES_STAMP := $(VENV)-suites/.installed
RELEASE_STAMP := $(VENV)-release/.installed
CHECKED := $(wildcard src tests examples bench tools)

# A few examples of each property, the same each time. `make seeds` tries many: see CONTRIBUTING.md.
HYPOTHESIS_PROFILE ?= quick
export HYPOTHESIS_PROFILE

# A process for each processor and one more, unless told: make test WORKERS=1
WORKERS ?= auto

# The tests start hundreds of Python processes. In an image that forbids bytecode, each of them compiles
# again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help deps demo test check formatted linted typed layered housed documented
.PHONY: seeds coverage house interpreters matrix bench proof torture mutants peers docs newcomer screenshots site conformance scale clients adapters suites models nightly
.PHONY: format lock wheel image man release-check clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

deps: $(STAMP)  ## set up .venv; every other target does it where it is missing or out of date

$(STAMP): requirements/dev.txt requirements/claude.txt requirements/uv.txt pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh $(VENV)
	@touch $@

demo: $(USER_STAMP)  ## see what lamina does, in one run, with no more installed than a user has
	@$(dir $(USER_STAMP))bin/lamina demo

# Who has the environment of a contributor already needs no second one.
$(VENV)-user/.installed: requirements/user.txt requirements/uv.txt pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh $(VENV)-user requirements/user.txt
	@touch $@

test: $(STAMP)  ## run the tests
	@$(PYTHON_IN_VENV) -m pytest -n $(WORKERS) --dist worksteal -m "not thorough" $(ARGS)

SEEDS ?= 1 2 3 4 5 6 7 8 9 10

seeds: $(STAMP)  ## what is too thorough for every change, and every property with ten seeds (SEEDS=...: with these)
	@HYPOTHESIS_PROFILE=seeds $(PYTHON_IN_VENV) -m pytest -q -n $(WORKERS) --dist worksteal -m thorough $(ARGS) \
	  || [ $$? -eq 5 ]  # none of them is thorough
	@for seed in $(SEEDS); do \
	  HYPOTHESIS_PROFILE=seeds $(PYTHON_IN_VENV) -m pytest -q -n $(WORKERS) --dist worksteal \
	    -m "hypothesis and not thorough" --hypothesis-seed=$$seed $(ARGS) || exit 1; \
	done

coverage: $(STAMP)  ## run the tests and print which lines they do not reach
	@$(PYTHON_IN_VENV) -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered $(ARGS)

house: $(STAMP)  ## how dense the code is and how clearly it is named, beside projects that we admire (no figure of lines is a limit)
	@$(PYTHON_IN_VENV) -m tools.house

interpreters: $(STAMP)  ## a small environment for each Python found; `make test` compares their bytes, too
	@$(PYTHON_IN_VENV) -m tools.interpreters

matrix: $(STAMP)  ## the tests of determinism, golden bytes and laws on every Python found, and their bytes compared
	@HYPOTHESIS_PROFILE=dev $(PYTHON_IN_VENV) -m tools.matrix $(ARGS)

check: formatted linted typed layered housed documented  ## format, lint, types, import contracts, figures of the house, docs

formatted: $(STAMP)
	@$(VENV)/bin/ruff format --check --quiet $(CHECKED)

linted: $(STAMP)
	@$(VENV)/bin/ruff check --quiet $(CHECKED)

typed: $(STAMP)
	@$(PYTHON_IN_VENV) -m mypy $(CHECKED)

layered: $(STAMP)
	@$(VENV)/bin/lint-imports --no-logo

housed: $(STAMP)
	@$(PYTHON_IN_VENV) -m tools.house --check
	@$(PYTHON_IN_VENV) -m tools.size
	@$(PYTHON_IN_VENV) -m tools.entered

# `make test` runs the blocks of every page, follows its links, and compares the help of commands and docs/api.md.
documented: $(STAMP)
	@$(PYTHON_IN_VENV) -m tools.prose --check
	@$(PYTHON_IN_VENV) -m tools.site

site: $(STAMP)  ## build the documentation as a site into build/site
	@$(PYTHON_IN_VENV) -m tools.site
	@echo "open build/site/index.html"

bench: $(STAMP)  ## compare with other libraries; prints ratios
	@$(PYTHON_IN_VENV) bench/fit_request.py

proof: $(STAMP)  ## shared benchmarks under each policy; says how to get data that is missing (PARTS="variables bfcl-memory"; ARGS="--json FILE")
	@$(PYTHON_IN_VENV) -m bench.proof $(PARTS) $(ARGS)

torture: $(STAMP)  ## kill, starve and lie to a store, and count what it loses (ARGS="sqlite: --long"; ARGS=--help says more)
	@$(PYTHON_IN_VENV) -m tools.torture $(ARGS)

scale: $(SCALE_STAMP)  ## logs read on Dask and Ray with a worker killed, and gateways over a database that fails
	@$(VENV)-scale/bin/python -m pytest -q -n 0 tests/costs/test_mapped_files.py
	@$(VENV)-scale/bin/python -m tools.scale_postgres

# Dask and Ray are large, and only this target needs them.
$(SCALE_STAMP): requirements/scale.txt requirements/uv.txt pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh $(VENV)-scale requirements/scale.txt
	@touch $@

mutants: $(STAMP)  ## turn 60 decisions of the source round, one at a time, and print which of them no test notices
	@$(PYTHON_IN_VENV) -m tools.mutants $(ARGS)

peers: $(STAMP)  ## install the libraries that the lab compares with, and try each (NAMES=...: only these)
	@sh tools/environments.sh $(VENV) peers $(NAMES)
	@$(PYTHON_IN_VENV) -m tools.peers $(NAMES)

conformance: $(STAMP)  ## the suite of the Model Context Protocol on lamina mcp (it needs npm)
	@$(PYTHON_IN_VENV) -m tools.mcp_conformance $(ARGS)

clients: $(STAMP)  ## install coding agents from npm and PyPI under .clients/ and run them through `lamina run` (NAMES=...: only these)
	@sh tools/clients.sh $(NAMES)
	@$(PYTHON_IN_VENV) -m tools.clients $(ARGS) $(NAMES)
adapters: $(STAMP)  ## test each adapter and each recipe of docs/frameworks.md in an environment of its framework (NAMES=...: only these)
	@$(PYTHON_IN_VENV) -m tools.adapters $(NAMES)

suites: $(SUITES_STAMP)  ## the tests of official SDKs and of frameworks, bare and with lamina in every client and agent (ARGS="ollama"; ARGS=--all: the slow rest)
	@$(VENV)-suites/bin/python -m tools.suites $(ARGS)

# The newest SDKs, which need not be those that lamina is developed with.
$(SUITES_STAMP): requirements/suites.txt requirements/uv.txt pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh $(VENV)-suites requirements/suites.txt
	@touch $@

models: $(STAMP)  ## refresh the table of models and prices from the newest list, and print what changed (ARGS=--dry-run: only print)
	@$(PYTHON_IN_VENV) -m tools.models $(ARGS)

nightly: $(STAMP)  ## everything that CI leaves out, one part after the other, with a table at the end (PARTS="adapters scale": only these)
	@$(PYTHON_IN_VENV) -m tools.nightly $(PARTS)

docs: $(STAMP)  ## rewrite the output blocks of the documentation from real output
	@$(PYTHON_IN_VENV) -m tools.docs --write
	@$(PYTHON_IN_VENV) -m tools.cli_help --write
	@$(PYTHON_IN_VENV) -m tools.api --write

newcomer: $(STAMP)  ## install the wheel as a user does, on each Python, and paste the README
	@$(PYTHON_IN_VENV) -m tools.newcomer $(ARGS)

screenshots: $(STAMP)  ## take the pictures of the inspector in docs/pictures/ anew
	@$(PYTHON_IN_VENV) -m tools.screenshots

format: $(STAMP)  ## format the code and apply what the linter can fix
	@$(VENV)/bin/ruff check --fix --quiet $(CHECKED) || true
	@$(VENV)/bin/ruff format $(CHECKED)

lock: $(STAMP)  ## pin the newest versions of all requirements, with hashes
	@sh tools/lock.sh $(VENV)

wheel: $(STAMP)  ## build the wheel into dist/ and print what it holds
	@$(PYTHON_IN_VENV) -m hatchling build -t wheel
	@$(PYTHON_IN_VENV) -m zipfile --list dist/lamina_context-*.whl

image:  ## build the gateway's container from base images pinned by digest (needs Docker)
	@sh tools/image.sh

man: $(STAMP)  ## write the man page into build/lamina.1
	@mkdir -p build
	@$(PYTHON_IN_VENV) -m tools.cli_help --man > build/lamina.1
	@echo "man -l build/lamina.1"

release-check: $(RELEASE_STAMP)  ## a dry run of a release: both files built, checked and installed, and the SBOM
	@sh tools/release_check.sh $(VENV)-release

$(RELEASE_STAMP): requirements/release.txt requirements/uv.txt pyproject.toml tools/bootstrap.sh
	@sh tools/bootstrap.sh $(VENV)-release requirements/release.txt
	@touch $@

clean:  ## remove everything that was made here
	rm -rf .venv .venv-* .matrix .peers .clients .adapters .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
