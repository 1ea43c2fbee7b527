# Everything runs in .venv, made here on first use. PYTHON chooses the interpreter (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXAMPLE := examples/cpu-llama-tp2-dp2
REPORT := out/cpu-llama-tp2-dp2.html

# What to check. `make test TESTS=tests/trace` runs one folder's tests.
TESTS ?= tests
WORKERS ?= 2

# Hostile inputs of each kind that `make fuzz` tries.
COUNT ?= 2000

# Tests and benchmarks start many processes: none of them compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check tests tests-plain tests-read fuzz bench docs clean

help: ## This list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.package ## Replay the bundled 4-rank example and write its HTML report
	$(BIN)/foretrace replay $(EXAMPLE) --report $(REPORT) --trace out/cpu-llama-tp2-dp2.trace.json.gz
	@echo
	@echo "Report:   $(CURDIR)/$(REPORT)"
	@echo "Timeline: $(CURDIR)/out/cpu-llama-tp2-dp2.trace.json.gz (open it at ui.perfetto.dev)"

test: check tests tests-plain ## Format, lint, types, floors, tests, compiled loops as plain Python

check: $(VENV)/.test ## Format, lint, types and floors alone
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(VENV)/.test ## Tests alone, with the twenty slowest
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --durations=20 $(TESTS)

tests-plain: $(VENV)/.test ## The tests of compiled loops once more, not compiled
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m compiled $(TESTS)

tests-read: $(VENV)/.test ## Byte code of all tests, that no worker has to make again
	$(BIN)/pytest --quiet --collect-only $(TESTS) >/dev/null

fuzz: $(VENV)/.test ## Hostile files and command lines with a fresh seed
	PYTHONPATH=. $(BIN)/python -m tests.fuzz --count $(COUNT) --keep out/fuzz.jsonl

bench: $(VENV)/.package ## Time what people wait for, beside the stored baselines
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.docs ## The documentation as a site, in out/site
	$(BIN)/mkdocs build --strict

clean: ## Remove what these commands made
	rm -rf $(VENV) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "foretrace needs Python 3.11 or later; choose one with: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: $(VENV)/bin/python pyproject.toml
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.docs: $(VENV)/.package
	$(INSTALL) --editable '.[docs]'
	@touch $@

# One PyTorch release, so that what the recorder's tests see does not change under them. What of
# its byte code tests need is made as they import it.
$(VENV)/.test: $(VENV)/bin/python pyproject.toml
	$(INSTALL) --no-compile torch==2.13.0 --editable '.[test]'
	@touch $(VENV)/.package $@

# Both, with one search for what they need.
$(VENV)/.test-and-docs: $(VENV)/bin/python pyproject.toml
	$(INSTALL) --no-compile torch==2.13.0 --editable '.[test,docs]'
	@touch $(VENV)/.package $(VENV)/.test $(VENV)/.docs $@
