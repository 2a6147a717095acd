# The two main commands are `make serve` and `make test`. Both first create .venv from the committed lock.
PYTHON ?= python3
VENV ?= .venv
AGENTS_VENV ?= .venv-agents
CLIENTS_VENV ?= .venv-clients
OLDER_CLIENTS_VENV ?= .venv-clients-older
RAY_VENV ?= .venv-ray
DOCS_VENV ?= .venv-docs
BIN := $(VENV)/bin
VENDORS := tests/clients/vendors
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Otherwise each server that a test starts compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help environments serve agent test test-slow test-search test-agents test-livekit-suite test-clients test-ray lint lint-agents format \
  bench docs lock lock-clients clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

serve: $(VENV)/.runtime ## start the server with the bundled starter voice; prints the playground's address
	$(BIN)/realtime-tts serve $(ARGS)

agent: $(AGENTS_VENV)/.agents ## start the voice agent for clients of OpenAI's Realtime API, beside `make serve`
	$(AGENTS_VENV)/bin/python agents/realtime_server $(ARGS)

# Tests are distributed by file, so that shared fixtures (a server, a browser) start once for each file.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

# Files run in order, short ones last. The browser client's tests come first, with two minutes for each file, so that the
# last lines are pytest's list of failures. Without Node.js 20 they are skipped like other tests without their program, except in CI.
test: $(VENV)/.dev ## all tests except the long ones, on all cores (Chromium tests need Chromium, which CI requires)
	@status=0; \
	if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then \
	  (cd clients/browser && node --test --test-timeout 120000 --test-reporter spec) || status=$$?; \
	else \
	  echo "tests of clients/browser were skipped: they need Node.js 20 or later"; [ -z "$$CI" ] || status=1; \
	fi; \
	$(BIN)/python -m pytest -m "not slow and not gpu" $(PARALLEL) --no-loadscope-reorder $(ARGS) || status=$$?; \
	exit $$status

# A variable, because `make -n` would execute a recursive call of make.
SEARCH = $(BIN)/python -m pytest -m "hypothesis and not slow and not gpu" --hypothesis-profile search $(PARALLEL) $(ARGS)

test-slow: $(VENV)/.dev ## long tests: recognition over many sentences, soak, new Hypothesis examples
	@status=0; \
	$(BIN)/python -m pytest -m "slow and not gpu" --timeout 1800 $(ARGS) || status=$$?; \
	$(SEARCH) || status=$$?; \
	exit $$status

test-search: $(VENV)/.dev ## Hypothesis tests with new random examples (`make test` uses fixed ones); for nightly runs
	$(SEARCH)

test-agents: $(VENV)/.dev lint-agents ## plugins for LiveKit and Pipecat, in a separate environment
	SERVER_PYTHON=$(abspath $(BIN)/python) $(AGENTS_VENV)/bin/python -m pytest tests/agents -m "not slow" \
	  --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

CLIENTS_READY := $(CLIENTS_VENV)/.clients $(OLDER_CLIENTS_VENV)/.clients $(VENDORS)/node_modules/.package-lock.json

test-clients: $(VENV)/.dev $(CLIENTS_READY) ## clients of other services against this server, in a separate environment
	SERVER_PYTHON=$(abspath $(BIN)/python) OLDER_CLIENTS_PYTHON=$(abspath $(OLDER_CLIENTS_VENV)/bin/python) \
	  $(CLIENTS_VENV)/bin/python -m pytest tests/clients/vendors -m "not slow" \
	  $(PARALLEL) $(ARGS)

test-livekit-suite: $(VENV)/.dev $(AGENTS_VENV)/.agents ## LiveKit's tests of speech plugins against this plugin; clones them
	clone=$$(mktemp -d) && trap 'rm -rf '$$clone EXIT && git clone -q --depth 1 --branch livekit-agents@$$($(AGENTS_VENV)/bin/python \
	  -c 'import livekit.agents; print(livekit.agents.__version__)') https://github.com/livekit/agents $$clone && \
	  SERVER_PYTHON=$(abspath $(BIN)/python) $(AGENTS_VENV)/bin/python -m tests.agents.livekit_suite $$clone $(ARGS)

test-ray: $(VENV)/.dev $(RAY_VENV)/.ray ## Ray Serve replicas that start, stop and fail under load, in a separate environment
	RAY_PYTHON=$(abspath $(RAY_VENV)/bin/python) $(BIN)/python -m pytest tests/deploy/test_deploy_ray.py -m slow --timeout 600 $(ARGS)

lint: $(VENV)/.dev ## format check, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint-agents: $(AGENTS_VENV)/.agents ## check types of the plugins and agents
	$(AGENTS_VENV)/bin/python -m mypy --config-file agents/mypy.ini

environments: $(VENV)/.dev $(AGENTS_VENV)/.agents $(CLIENTS_READY) $(DOCS_VENV)/.docs ## create all environments for the tests, in parallel with -j

format: $(VENV)/.dev ## rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DOCS_VENV)/.docs ## build the documentation site in site/, which needs no network and opens from the file system
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict $(ARGS)

bench: $(VENV)/.dev ## measure this machine: first packet, RTF, barge-in, memory; prints a table
	$(BIN)/python -m benchmarks.local $(ARGS)

# Locks contain the hash of each file, for all systems. The exception is torch: the installed build depends on the index that
# the machine uses, and a CUDA build has packages that a CPU build lacks. It has a separate lock without hashes.
COMPILE := uv pip compile --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade
HASHED := --generate-hashes --no-emit-package torch -c requirements-torch.lock --config-file lock.toml

lock: ## resolve all requirements*.lock again (needs uv)
	$(COMPILE) --no-deps --quiet pyproject.toml | grep ^torch== > requirements-torch.lock
	$(COMPILE) $(HASHED) --extra speaker pyproject.toml -o requirements.lock
	$(COMPILE) $(HASHED) --extra speaker --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(COMPILE) --generate-hashes \
	  $(addprefix --no-emit-package ,realtime-tts-client livekit-plugins-realtime-tts pipecat-realtime-tts) \
	  agents/requirements.in -o agents/requirements.lock
	$(COMPILE) $(HASHED) --extra ray -c requirements.lock pyproject.toml -o deploy/ray/requirements.lock
	$(COMPILE) --generate-hashes --group docs -o requirements-docs.lock

lock-clients: ## resolve the versions of other services' clients again (needs uv and npm)
	$(COMPILE) --generate-hashes $(VENDORS)/requirements.in -o $(VENDORS)/requirements.lock
	$(COMPILE) --generate-hashes $(VENDORS)/requirements-older.in -o $(VENDORS)/requirements-older.lock
	cd $(VENDORS) && npm update --package-lock-only --omit-lockfile-registry-resolved

clean: ## remove the environments and caches
	rm -rf $(VENV) $(AGENTS_VENV) $(CLIENTS_VENV) $(OLDER_CLIENTS_VENV) $(RAY_VENV) $(DOCS_VENV) site $(VENDORS)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
  || { echo "Python 3.11 to 3.13 is needed; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }

$(BIN)/python:
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BIN)/python requirements.lock requirements-torch.lock pyproject.toml
	$(BIN)/python -m pip install --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install -r requirements-torch.lock
	$(BIN)/python -m pip install --no-deps -e . -e clients/python
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(BIN)/python -m pip install --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

$(AGENTS_VENV)/.agents: agents/requirements.lock clients/python/pyproject.toml $(wildcard agents/*/pyproject.toml)
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(AGENTS_VENV)
	$(AGENTS_VENV)/bin/python -m pip install --require-hashes --no-deps -r agents/requirements.lock
	$(AGENTS_VENV)/bin/python -m pip install --no-deps -e clients/python $(addprefix -e ,$(dir $(wildcard agents/*/pyproject.toml)))
	@touch $@

$(CLIENTS_VENV)/.clients: $(VENDORS)/requirements.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip install --require-hashes --no-deps -r $(VENDORS)/requirements.lock
	@touch $@

$(OLDER_CLIENTS_VENV)/.clients: $(CLIENTS_VENV)/.clients $(VENDORS)/requirements-older.lock
	$(PYTHON) -m venv $(OLDER_CLIENTS_VENV)
	$(OLDER_CLIENTS_VENV)/bin/python -m pip install --require-hashes --no-deps -r $(VENDORS)/requirements-older.lock
	@touch $@

$(RAY_VENV)/.ray: deploy/ray/requirements.lock requirements-torch.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --require-hashes --no-deps -r deploy/ray/requirements.lock
	$(RAY_VENV)/bin/python -m pip install -r requirements-torch.lock
	@touch $@

$(DOCS_VENV)/.docs: requirements-docs.lock
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --require-hashes --no-deps -r requirements-docs.lock
	@touch $@

# If npm reaches no registry, the JavaScript clients are skipped; the tests' summary says so.
$(VENDORS)/node_modules/.package-lock.json: $(VENDORS)/package-lock.json
	cd $(VENDORS) && npm ci --no-audit --no-fund && touch node_modules/.package-lock.json \
	  || echo "npm could not install the JavaScript clients: their tests will be skipped"
