PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help run test lint format bench figures clean

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: .venv/installed  ## Set up, then run the main job: compare the paper's methods on one problem
	$(BIN)/fedsplit compare

test: .venv/installed-test  ## Set up, then run the tests
	$(BIN)/pytest -n auto

lint: .venv/installed-test  ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-test  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed-test  ## Measure speed and memory as ratios, and print the table
	$(BIN)/python benchmarks/speed.py

figures: .venv/installed  ## Draw the README's picture again
	$(BIN)/fedsplit compare --ensemble spiked --kappa 100 -m 10 -n 400 --rounds 100 --plot docs/images/compare.png

clean:  ## Remove the virtual environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedsplit needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch .venv/installed $@
