# The few commands of the project. Every target sets up what it needs in $(VENV).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# torch is pinned here, and only here, so that a plain index gives every developer and CI the same build.
TORCH  ?= torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help setup demo test check golden wheel bench tau clean

help:  ## List the targets.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/.ready: pyproject.toml
	@echo "setting up $(VENV): torch and the tools, a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

setup: $(VENV)/.ready  ## Make a virtual environment with everything in it.

demo: setup  ## Compile the tiny engine and generate text with it on the CPU.
	$(BIN)/python -m ddtreec compile tiny-k2-cpu -o demo/tiny-k2-cpu
	$(BIN)/python -m ddtreec run demo/tiny-k2-cpu --weights models/tiny-pair/target \
	  --drafter-weights models/tiny-pair/drafter --prompt-file examples/queue.txt --max-new-tokens 96
	@echo "next: . $(VENV)/bin/activate && ddtreec run --prompt 'def add(a, b):' --show-tree"

test: setup  ## Run all tests that need neither a GPU nor many minutes.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not gpu and not slow" -n 2  # two processes, a thread each: they would spin

check: setup  ## Lint, format, types, import doors, sizes, specs, generated text.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m tools.house

golden: setup  ## Rewrite generated/ from the specs; the diff is the review.
	$(BIN)/python -m tools.golden

wheel: setup  ## Build the wheel into dist/.
	$(BIN)/python -m build --wheel

bench: setup  ## Measure on this machine; ratios within one run.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	$(BIN)/python -m benchmarks.compiler
	$(BIN)/python -m benchmarks.cpu_decode
	$(BIN)/python -m benchmarks.tau

tau: setup  ## Measure the shipped pair from its weights: benchmarks/results/tau.json, docs/tau.md and its pictures.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[plot]"
	$(BIN)/python -m benchmarks.tau

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis demo dist
