# Every target sets up what it needs: a virtual environment in .venv with the versions the tests pass with.

PYTHON ?= python3
VENV := .venv/bin

.PHONY: install demo test check format bench

install: .venv/installed

.venv/installed: pyproject.toml .tested-versions.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmt needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(VENV)/pip install --quiet --constraint .tested-versions.txt --editable '.[dev]'
	touch $@

demo: install  ## the quickstart recipe, end to end
	PATH="$(CURDIR)/$(VENV):$$PATH" recipes/quickstart/run.sh

test: install
	$(VENV)/pytest

check: install  ## all that CI runs
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/pytest

format: install
	$(VENV)/ruff format .
	$(VENV)/ruff check --fix .

bench: install  ## needs NMT_DATA; see recipes/benchmarks/README.md
	$(VENV)/python recipes/benchmarks/preprocess.py
