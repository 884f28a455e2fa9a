# What can be done here. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help install demo run check format test sim fuzz bench clean
PYTHON ?= python3
BIN := .venv/bin
# The unit tests of what calls the kernel; the others cannot tell one kernel from the other.
USES_KERNEL := $(addprefix tests/unit/,storage broker client rpc sim cli core/metadata core/log)
# Where this is set, every process that runs tests would compile all of them again.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/installed ## make .venv with everything the project needs

.venv/installed: pyproject.toml constraints.txt $(shell find native/Cargo.toml native/src -type f)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,spark]'
	touch $@

demo: install ## a shop's data pipeline from end to end, live, in about a minute (Spark needs Java 17 or later)
	$(BIN)/python -m examples.shop

run: install ## start a node on 127.0.0.1:9092 with its data in ./data
	$(BIN)/ottla serve

check: install ## format, lint, types, unit tests and some seeds, in a few minutes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 tests/unit tests/test_tidy.py
	$(BIN)/python -m ottla.sim --seeds 0:20
	$(BIN)/python -m ottla.sim node --seeds 0:10

format: install ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Those beside real peers wait more than they work. Neighbours stay in one process, and share what they have started.
TESTERS ?= 3

test: check ## everything: checks, both kernels, all seeds, crash points, mutants, real Kafka and real clients
	if command -v cargo > /dev/null; then cargo test --quiet --release --no-default-features --manifest-path native/Cargo.toml; fi
	OTTLA_KERNEL=reference $(BIN)/pytest -n 2 $(USES_KERNEL)
	$(BIN)/pytest -n $(TESTERS) --dist worksteal --durations=15 --durations-min=5 tests/sim tests/compat

# Which worlds, how many seeds of each, for how long at most; one of the last two is enough.
WORLDS ?= log,node
SEEDS ?=
MINUTES ?= $(if $(SEEDS),0,5)

sim: install ## play fresh seeds of the simulator on all cores, MINUTES long or SEEDS many, and shrink those that fail
	$(BIN)/python -m ottla.sim.play --worlds $(WORLDS) --minutes $(MINUTES) --seeds $(or $(SEEDS),0)

FUZZ_SECONDS ?= 60
FUZZ_SEED ?= $(shell date +%s)

fuzz: ## mutated bytes for the native kernel's decoders, FUZZ_SECONDS long; a seed gives the same bytes again
	cargo run --quiet --release --target-dir native/target --manifest-path native/fuzz/Cargo.toml -- \
		$(FUZZ_SECONDS) $(FUZZ_SEED) tests/unit/kernel/captured tests/unit/kernel/kept

bench: install ## measure, and keep the figures in bench/RESULTS.md
	$(BIN)/python -m bench

clean: ## remove what was built
	rm -rf .venv .peers build native/target src/ottla/kernel/*.so src/*.egg-info .mypy_cache .ruff_cache .hypothesis
