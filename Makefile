# make demo and make test need only Python >= 3.11, make and git: both build .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# The rooms of agentbus that docs/house.md marks as pure.
PURE := $(shell sed -n '/^### agentbus/,$$s|^. \([a-z_/]*\.py\) . P . .*|agentbus/\1|p' docs/house.md | paste -sd, -)

.PHONY: demo test test-harness check bench crash clean

demo: .venv/ready
	$(BIN)/agentbus demo

test: check
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 -q
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=95
	$(BIN)/coverage report --fail-under=100 --include='journal/*,$(PURE)'

# With the real clients, from npm, and a stand-in for their models; skips what is not installed. About five minutes.
# node comes as a package as well: some clients want a newer one than there may be.
HARNESS_CACHE ?= $(HOME)/.cache/agentbus-harness
HARNESS_CLIENTS ?= @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai @modelcontextprotocol/inspector
HARNESS_NODE := $(HARNESS_CACHE)/node_modules/node-$(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed 's/x86_64/x64/;s/aarch64/arm64/')

test-harness: .venv/ready $(HARNESS_CACHE)/ready
	AGENTBUS_TEST_HARNESS=1 AGENTBUS_HARNESS_CACHE=$(HARNESS_CACHE) $(BIN)/python -m pytest -q -o timeout=600 tests/harness

$(HARNESS_CACHE)/ready:
	@command -v npm >/dev/null || { echo "npm is not installed: it brings the clients" >&2; exit 1; }
	@echo "installing the clients into $(HARNESS_CACHE): some minutes, and it needs a package registry"
	npm install --silent --prefix $(HARNESS_CACHE) $(notdir $(HARNESS_NODE)) || true
	PATH=$(HARNESS_NODE)/bin:$$PATH npm install --silent --prefix $(HARNESS_CACHE) $(HARNESS_CLIENTS)
	@touch $@

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python tools/bench.py

crash: .venv/ready
	for mode in kill cut flip fail power history real; do $(BIN)/python tools/crash.py $$mode || exit 1; done

.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "agentbus needs Python 3.11 or newer with venv; none found on PATH (or set PYTHON=...)" >&2; exit 1; }
	@echo "building .venv: about a minute, and it needs a package index"
	@$(BIN)/python -c '' 2>/dev/null || rm -rf .venv  # the Python it was made from may be gone
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv .coverage .coverage.*
