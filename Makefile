# Commands for users and developers; `make help` lists them.

# python3 if it is new enough, else the oldest suitable version.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
STAMP := .venv/.installed
NODE_MODULES := app/editor/node_modules/.package-lock.json

# The environment contains Node, as a wheel.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help venv studio test test-all lint format docs bench demo-model editor clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

.venv:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Install one, or set its path: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml constraints.txt | .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	@touch $@

$(NODE_MODULES): app/editor/package.json app/editor/package-lock.json | $(STAMP)
	cd app/editor && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

venv: $(STAMP) ## create .venv with the pinned packages

studio: $(STAMP) ## open the studio at http://127.0.0.1:7860
	$(BIN)/pml studio

lint: $(STAMP) $(NODE_MODULES) ## check code: ruff, mypy, tsc, eslint and the editor grammar
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd app/editor && npm run --silent check

PYTEST := $(BIN)/pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

test: $(STAMP) $(NODE_MODULES) ## run lint and all tests, with the browser tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint tests

.PHONY: tests
tests: $(STAMP)
	$(PYTEST)

test-all: lint ## run every model family and long random tests, for a release
	PML_ALL_TESTS=1 $(PYTEST)

format: $(STAMP) ## format the Python files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

API := import engine, pathlib, pdoc; [getattr(engine, name) for name in engine.__all__]; \
	pdoc.render.configure(docformat="google"); pdoc.pdoc("engine", output_directory=pathlib.Path("build/api"))

docs: $(STAMP) ## write the Python reference to build/api/engine.html
	$(BIN)/python -c '$(API)'

bench: $(STAMP) ## measure the figures with goals into bench/ (an hour or more on two cores)
	$(BIN)/python -m benchmarks suite --out bench

demo-model: $(STAMP) ## train a model like the bundled one (4.5 hours, see training/README.md)
	$(BIN)/python -m training.train --run training/runs/demo --minutes 80
	$(BIN)/python -m training.train --run training/runs/further --minutes 185 --init training/runs/demo/export --rate 0.6

editor: $(NODE_MODULES) ## rebuild the editor bundle
	cd app/editor && npm run --silent build

clean: ## remove .venv, caches and build outputs
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis app/editor/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
