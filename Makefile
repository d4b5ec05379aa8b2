# The first python3 that is new enough; another one: make PYTHON=/path/to/python3
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Two for each core of the smallest machine: many tests wait for processes. The slow ones stand side
# by side, so a worker that is done takes over of what others still have.
JOBS ?= 4
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DELETE_ON_ERROR:
.PHONY: install venv check format test demo cases bench bench-mcp plots reference soak fuzz \
	crash-points hostile deliveries pollers conformance mcp-clients lock clean

install venv: $(STAMP)

# Everything by hash from the lock file; then the project itself, which adds nothing to it.
$(STAMP): pyproject.toml requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; say make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

demo: $(STAMP)
	$(BIN)/python scripts/demo.py

cases: $(STAMP)
	$(BIN)/python scripts/cases.py

bench: $(STAMP)
	$(BIN)/python scripts/bench.py $(ARGS)

# Takes a quarter of an hour; ARGS=--draw from the numbers that are there.
plots: $(STAMP)
	$(BIN)/python scripts/bench_plot.py $(ARGS)

bench-mcp: $(STAMP)
	$(BIN)/python scripts/bench_mcp.py

# Fetch what they need from npm, into ~/.cache/engine; a minute or two each.
conformance: $(STAMP)
	scripts/mcp_conformance.sh

mcp-clients: $(STAMP)
	$(BIN)/python scripts/mcp_clients.py

reference: $(STAMP)
	$(BIN)/python scripts/reference.py

soak: $(STAMP)
	$(BIN)/python scripts/soak.py --minutes $(or $(MINUTES),10)

# Half an hour; another seed each time, which it prints: ARGS='--seed S --target NAME' for the same.
fuzz: $(STAMP)
	nice $(BIN)/python scripts/fuzz.py --count $(or $(COUNT),1000000) --examples $(or $(EXAMPLES),200) $(ARGS)

# Two minutes each.
deliveries: $(STAMP)
	$(BIN)/python scripts/deliveries.py $(ARGS)

pollers: $(STAMP)
	$(BIN)/python scripts/pollers.py $(ARGS)

# Takes an hour; ARGS='--target mother --most 10' a minute.
crash-points: $(STAMP)
	$(BIN)/python scripts/crash_points.py $(ARGS)

# Takes twenty minutes, and wants the machine for itself; ARGS='--only frames --rounds 1' one.
hostile: $(STAMP)
	$(BIN)/python scripts/hostile.py $(ARGS)

# Writes the lock file anew, with the newest versions that pyproject.toml allows.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --upgrade --generate-hashes --extra dev --extra mcp \
		--build-deps-for editable --allow-unsafe --strip-extras --no-emit-index-url \
		--no-emit-options --no-emit-trusted-host --output-file requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
