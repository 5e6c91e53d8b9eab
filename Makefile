# Outlast: the commands of a contributor. `make` without a target prints this help.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PINS   := tools/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check format lint types layers fast requirements proof bench studio brief companion newest clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Tests flush often. If /dev/shm has 4 GB free, their files are kept in memory.
ROOM := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
test fast proof: export TMPDIR := $(or $(ROOM),$(TMPDIR))

# Tests start hundreds of short processes, which share compiled bytecode.
export PYTHONDONTWRITEBYTECODE :=

# The virtual environment, rebuilt when the dependencies change.
$(READY): pyproject.toml $(PINS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outlast needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --constraint $(PINS) --editable . --group dev
	@touch $@

demo: $(READY)  ## a short tour: real jobs on three workers, one of them killed
	@$(BIN)/outlast demo $(ARGS)

test: $(READY) lint types layers  ## everything: format, lint, types, layers, all tests
	$(BIN)/python -m pytest --ignore tests/chaos --numprocesses 3 --dist loadgroup
	$(BIN)/python -m pytest tests/chaos --numprocesses 3
	@$(MAKE) --no-print-directory requirements ARGS=--totals

check: $(READY) lint types layers fast  ## under two minutes: lint, types, layers, fast tests

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --quiet .

lint: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(READY)
	$(BIN)/mypy --no-error-summary

layers: $(READY)
	$(BIN)/lint-imports --no-cache > $(VENV)/layers.log || (cat $(VENV)/layers.log; exit 1)

fast: $(READY)
	OUTLAST_SIZE=check $(BIN)/python -m pytest -m "not slow" -n 2 --dist loadgroup

requirements: $(READY)  ## list the requirements with the tests that prove them
	@$(BIN)/python tools/requirements.py $(ARGS)

proof: $(READY)  ## all tests at full size (slow)
	OUTLAST_SIZE=full $(BIN)/python -m pytest

bench: $(READY)  ## benchmarks, compared with other libraries in the same run
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench $(ARGS)

studio: $(READY)  ## run examples/story_studio
	cd examples && $(abspath $(BIN))/python -m story_studio.run $(ARGS)

brief: $(READY)  ## run examples/daily_brief (ARGS=--stay keeps its server running)
	cd examples && $(abspath $(BIN))/python -m daily_brief.run $(ARGS)

companion: $(READY)  ## run examples/companion
	cd examples && $(abspath $(BIN))/python -m companion.run $(ARGS)

newest: $(READY)  ## upgrade and pin all dependencies; run `make test` afterwards
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable . --group dev
	{ grep '^#' $(PINS); $(BIN)/python -m pip freeze --exclude-editable; } > $(VENV)/pins && mv $(VENV)/pins $(PINS)
	@touch $(READY)

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache dist build
