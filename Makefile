# Outlast: everything a contributor runs. `make` alone prints this help.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PINS   := tools/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test check format lint types layers fast requirements proof bench studio brief companion newest clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Tests flush a great deal: where there is room for it, what they write stays in memory.
ROOM := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
test fast proof: export TMPDIR := $(or $(ROOM),$(TMPDIR))

# Hundreds of short processes: what one of them has compiled, the next must find.
export PYTHONDONTWRITEBYTECODE :=

# A virtual environment of its own, made again whenever the dependencies change.
$(READY): pyproject.toml $(PINS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outlast needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --constraint $(PINS) --editable . --group dev
	@touch $@

demo: $(READY)  ## a short tour: real jobs, three workers, a real kill
	@$(BIN)/outlast demo $(ARGS)

test: $(READY) lint types layers  ## everything: format, lint, types, layers, every test
	$(BIN)/python -m pytest --ignore tests/chaos --numprocesses 3 --dist loadgroup
	$(BIN)/python -m pytest tests/chaos --numprocesses 3
	@$(MAKE) --no-print-directory requirements ARGS=--totals

check: $(READY) lint types layers fast  ## under two minutes: lint, types, layers, fast tests

format: $(READY)  ## rewrite the code in the house format
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

requirements: $(READY)  ## which requirement is proved by which test, and which is not yet
	@$(BIN)/python tools/requirements.py $(ARGS)

proof: $(READY)  ## the same tests at full size (long)
	OUTLAST_SIZE=full $(BIN)/python -m pytest

bench: $(READY)  ## speed, growth and pick-up, beside others in the same run
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench $(ARGS)

studio: $(READY)  ## a small studio at work: examples/story_studio, shown in its own words
	cd examples && $(abspath $(BIN))/python -m story_studio.run $(ARGS)

brief: $(READY)  ## a daily news brief made by slot jobs: examples/daily_brief (ARGS=--stay keeps it up)
	cd examples && $(abspath $(BIN))/python -m daily_brief.run $(ARGS)

companion: $(READY)  ## a companion that tells people their day: examples/companion, as S2's items
	cd examples && $(abspath $(BIN))/python -m companion.run $(ARGS)

newest: $(READY)  ## take the newest version of everything the tests use; `make test` then says whether to keep it
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable . --group dev
	{ grep '^#' $(PINS); $(BIN)/python -m pip freeze --exclude-editable; } > $(VENV)/pins && mv $(VENV)/pins $(PINS)
	@touch $(READY)

clean:  ## forget the environment and every cache
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache dist build
