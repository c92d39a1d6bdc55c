# Two commands are enough: `make run` shows what Firstfault does, `make test` checks everything.
# Both set up what they need, on a fresh machine too. `make` alone lists the others.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test check fmt docs bench editor package clean setup node-tools

help: ## list the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.runtime ## diagnose the example logs and check the example script
	@scripts/demo.sh $(BIN)/firstfault

test: setup ## set everything up and run every check and test
	@BIN=$(BIN) scripts/test.sh all

check: setup ## the static part: format, lint, types, import contracts, generated pages
	@BIN=$(BIN) scripts/test.sh static

fmt: setup ## format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	npm run --silent fmt

docs: $(VENV)/.dev ## print the generated pages anew
	$(BIN)/python scripts/generate.py

bench: $(VENV)/.dev ## measure start-up, keystroke, diagnosis, large logs and the monitor beside their baselines
	$(BIN)/python scripts/bench.py
	$(BIN)/python scripts/bench_logs.py
	$(BIN)/python scripts/bench_monitor.py

editor: firstfault.vsix ## open a VS Code workbench on 127.0.0.1 with the extension and the examples
	@extension/test/e2e/setup.sh
	@node extension/test/e2e/editor.mjs || [ $$? -eq 130 ]  # Ctrl-C is the way to end it

package: $(VENV)/.runtime firstfault.vsix ## build the wheel and the .vsix into dist/
	@mkdir -p dist
	$(BIN)/pip wheel -qq --no-deps --no-build-isolation --wheel-dir dist .
	cp firstfault.vsix dist/
	@ls -lh dist

clean: ## remove everything that was built or installed here
	rm -rf $(VENV) node_modules extension/test/e2e/node_modules extension/test/e2e/shots extension/dist extension/bundled
	rm -rf build dist firstfault.vsix .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# ---------------------------------------------------------------------------------- what the commands need

setup: $(VENV)/.dev node_modules/.installed

$(VENV)/.pip:
	@scripts/require.sh python $(PYTHON)
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check pip==25.3  # the first pins of `--group` were older
	@touch $@

$(VENV)/.runtime: $(VENV)/.pip pyproject.toml
	@$(BIN)/pip install -qq --disable-pip-version-check --editable . --group source
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@$(BIN)/python scripts/torch_size.py
	@$(BIN)/pip install -qq --disable-pip-version-check --group dev
	@touch $@

node_modules/.installed: package.json package-lock.json
	@scripts/require.sh node
	@npm ci --no-audit --no-fund --loglevel=error
	@touch $@

VSIX_SOURCES := package.json $(wildcard extension/*.mjs) $(shell find extension/src extension/media pyserver/firstfault signatures -type f -not -name '*.pyc' 2>/dev/null)
firstfault.vsix: $(VENV)/.runtime node_modules/.installed $(VSIX_SOURCES)
	@npm run --silent package
	@touch $@
