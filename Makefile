# The habits of the project. Every target does its own set-up on a machine with Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_BIN := .bench-venv/bin
WORKERS ?= 2

.PHONY: demo test test-long check docs bench bench-scaling figures chromium clean

demo: $(VENV)/installed $(VENV)/kernels  ## the whole loop on built-in data
	$(BIN)/seachange demo --out demo-output --force
	@echo "(seachange is $(BIN)/seachange here.)"

test: $(VENV)/developer $(VENV)/kernels chromium  ## the suite, then its small part again without the compiler
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "small and not large and not long" \
	  $$(grep -rl --include='test_*.py' mark.small tests)

test-long: $(VENV)/developer $(VENV)/kernels  ## statistical and scale runs, and more examples of properties
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "long or hypothesis" --hypothesis-profile=long --durations=0 tests

check: $(VENV)/developer  ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/documents  ## the documentation as pages, in site/; they ask the network for nothing
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Written: site/index.html"

bench: $(VENV)/installed $(VENV)/kernels .bench-venv/installed  ## ratios against the peers, in one run
	$(BIN)/python benchmarks/em_iteration.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/cold_fit.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/cores_and_memory.py
	$(BIN)/python benchmarks/change_points.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/policy_learning.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/gradient_pass.py
	$(BIN)/python benchmarks/estimates.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/deciding.py --peer-python $(BENCH_BIN)/python
	$(BIN)/python benchmarks/compile_time.py
	$(BIN)/python benchmarks/online_evaluation.py

bench-scaling: $(VENV)/installed $(VENV)/kernels  ## seconds and memory of a fit against rounds, and the figure
	$(BIN)/python benchmarks/scaling.py --figure docs/figures/scaling.png

figures: demo chromium  ## the figures that the documentation shows
	cp demo-output/recovery.png docs/figures/
	$(BIN)/seachange replicate synthetic --runs 10 --figure docs/figures/reward-by-states.png --force
	$(BIN)/python benchmarks/future_values.py --figure docs/figures/future-values.png
	$(BIN)/python docs/figures/adaptive_sampling.py
	$(BIN)/python docs/figures/concepts.py
	$(BIN)/python docs/figures/report.py

chromium:  ## a browser for the tests of the report page; without one they are skipped
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
	  sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	  $$sudo apt-get update --quiet -o Acquire::Retries=0 -o Acquire::http::Timeout=20 && \
	  $$sudo apt-get install --yes --quiet chromium; } || \
	  echo "Chromium is not installed and could not be installed: tests of the report page in a browser will be skipped."

clean:
	rm -rf $(VENV) .bench-venv .pytest_cache .mypy_cache .ruff_cache .hypothesis site demo-output replicate-output

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/developer: pyproject.toml $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

$(VENV)/documents: pyproject.toml $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

# The compiler's cache does not notice when a kernel calls one in another file that has changed.
$(VENV)/kernels: $(wildcard src/seachange/kernels/*.py) | $(VENV)/bin/python
	find src -name '*.nb[ic]' -delete
	touch $@

.bench-venv/installed: benchmarks/requirements.txt benchmarks/requirements-obp.txt
	$(PYTHON) -m venv .bench-venv
	$(BENCH_BIN)/python -m pip install --quiet --upgrade pip
	$(BENCH_BIN)/python -m pip install --quiet --requirement benchmarks/requirements.txt
	$(BENCH_BIN)/python -m pip install --quiet --no-deps --ignore-requires-python --requirement benchmarks/requirements-obp.txt
	touch $@
