# Two commands carry everything: `make demo` and `make test`. Each sets up .venv by itself on first use.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test lint docs soak bench release-check format clean

help:            ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedlama needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing fedlama into .venv (once)"
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.run
	@echo "installing the development tools into .venv (once)"
	@$(PIP) -e '.[dev]'
	@touch $@

demo: .venv/.run ## FedAvg against FedLAMA and frugal on the embedded digits: a table and a report
	$(BIN)/fedlama demo

# A file's tests stay in one process, because they share what was expensive to make: a site, a browser, a deployment.
# In the order of their names: by default files with few tests come last, and those are the slowest.
test: .venv/.dev ## all tests, in two processes
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: .venv/.dev ## ruff, pyright, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: .venv/.dev ## the documentation as a site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

MINUTES ?= 10
soak: .venv/.dev ## drawn configurations, killed and resumed, all checked: 10 minutes, or MINUTES=1
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

bench: .venv/.dev ## benchmarks: fedlama beside a bare loop and other simulators, as ratios
	$(BIN)/python -m benchmarks --write results/benchmarks.md

release-check: .venv/.dev ## wheel and sdist: built, installed into empty environments, demo run from another folder
	$(BIN)/python -m audit.release

format: .venv/.dev ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:           ## remove the virtual environment and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
