# Two commands do everything: `make serve` and `make test`. Both create .venv from the committed lock first.
PYTHON ?= python3
VENV ?= .venv
AGENTS_VENV ?= .venv-agents
CLIENTS_VENV ?= .venv-clients
OLDER_CLIENTS_VENV ?= .venv-clients-older
RAY_VENV ?= .venv-ray
BIN := $(VENV)/bin
VENDORS := tests/clients/vendors
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Else each server that a test starts compiles itself anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help environments serve test test-slow test-search test-agents test-livekit-suite test-clients test-ray lint lint-agents format \
  bench lock lock-clients clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

serve: $(VENV)/.runtime ## start the server with the bundled starter voice; prints the playground's address
	$(BIN)/realtime-tts serve $(ARGS)

# A file is the unit: what its tests share (a server, a browser) is started once.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile

# Files are taken in order, the short last. The browser client's tests run after a failure too; each file has two minutes.
test: $(VENV)/.dev ## all tests but the long ones, on all cores (Chromium ones run if Chromium is there; in CI it must be)
	@status=0; \
	$(BIN)/python -m pytest -m "not slow and not gpu" $(PARALLEL) --no-loadscope-reorder $(ARGS) || status=$$?; \
	(cd clients/browser && node --test --test-timeout 120000) || status=$$?; \
	exit $$status

# A command of its own name, as `make -n` would run a call of make.
SEARCH = $(BIN)/python -m pytest -m "hypothesis and not slow and not gpu" --hypothesis-profile search $(PARALLEL) $(ARGS)

test-slow: $(VENV)/.dev ## the long ones: recognition over many sentences, soak, new Hypothesis examples
	@status=0; \
	$(BIN)/python -m pytest -m "slow and not gpu" --timeout 1800 $(ARGS) || status=$$?; \
	$(SEARCH) || status=$$?; \
	exit $$status

test-search: $(VENV)/.dev ## Hypothesis tests with new random examples, which `make test` keeps the same; for nights
	$(SEARCH)

test-agents: $(VENV)/.dev lint-agents ## plugins for LiveKit and Pipecat, in an environment of their own
	SERVER_PYTHON=$(abspath $(BIN)/python) $(AGENTS_VENV)/bin/python -m pytest tests/agents -m "not slow" $(ARGS)

CLIENTS_READY := $(CLIENTS_VENV)/.clients $(OLDER_CLIENTS_VENV)/.clients $(VENDORS)/node_modules/.package-lock.json

test-clients: $(VENV)/.dev $(CLIENTS_READY) ## other services' own clients against this server, in an environment of their own
	SERVER_PYTHON=$(abspath $(BIN)/python) OLDER_CLIENTS_PYTHON=$(abspath $(OLDER_CLIENTS_VENV)/bin/python) \
	  $(CLIENTS_VENV)/bin/python -m pytest tests/clients/vendors -m "not slow" \
	  $(PARALLEL) $(ARGS)

test-livekit-suite: $(VENV)/.dev $(AGENTS_VENV)/.agents ## LiveKit's own tests of speech plugins on ours; clones them
	clone=$$(mktemp -d) && trap 'rm -rf '$$clone EXIT && git clone -q --depth 1 --branch livekit-agents@$$($(AGENTS_VENV)/bin/python \
	  -c 'import livekit.agents; print(livekit.agents.__version__)') https://github.com/livekit/agents $$clone && \
	  SERVER_PYTHON=$(abspath $(BIN)/python) $(AGENTS_VENV)/bin/python -m benchmarks.livekit_suite $$clone $(ARGS)

test-ray: $(VENV)/.dev $(RAY_VENV)/.ray ## replicas on Ray Serve that come, go and fail under load, Ray in an environment of its own
	RAY_PYTHON=$(abspath $(RAY_VENV)/bin/python) $(BIN)/python -m pytest tests/deploy/test_deploy_ray.py -m slow --timeout 600 $(ARGS)

lint: $(VENV)/.dev ## format check, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint-agents: $(AGENTS_VENV)/.agents ## types of the plugins and agents
	$(AGENTS_VENV)/bin/python -m mypy --config-file agents/mypy.ini

environments: $(VENV)/.dev $(AGENTS_VENV)/.agents $(CLIENTS_READY) ## all that tests need, with -j side by side

format: $(VENV)/.dev ## rewrite files in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev ## measure this machine: first packet, RTF, barge-in, memory; prints a table
	$(BIN)/python -m benchmarks.local $(ARGS)

# Every file of a version has its hash, for all systems. Not torch: which build is installed depends on the index that the
# machine uses, and a CUDA build brings packages that a CPU build does not have. So it has a lock of its own, without hashes.
COMPILE := uv pip compile --universal --no-header --no-annotate --no-emit-index-url --upgrade
HASHED := --generate-hashes --no-emit-package torch -c requirements-torch.lock --config-file lock.toml

lock: ## resolve all requirements*.lock anew (needs uv)
	$(COMPILE) --python-version 3.10 --no-deps --quiet pyproject.toml | grep ^torch== > requirements-torch.lock
	$(COMPILE) --python-version 3.10 $(HASHED) --extra speaker pyproject.toml -o requirements.lock
	$(COMPILE) --python-version 3.10 $(HASHED) --extra speaker --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(COMPILE) --python-version 3.11 --generate-hashes \
	  $(addprefix --no-emit-package ,realtime-tts-client livekit-plugins-realtime-tts pipecat-realtime-tts) \
	  agents/requirements.in -o agents/requirements.lock
	$(COMPILE) --python-version 3.11 $(HASHED) --extra ray -c requirements.lock pyproject.toml -o deploy/ray/requirements.lock

lock-clients: ## resolve the versions of other services' clients anew (needs uv and npm)
	$(COMPILE) --python-version 3.11 --generate-hashes $(VENDORS)/requirements.in -o $(VENDORS)/requirements.lock
	$(COMPILE) --python-version 3.11 --generate-hashes $(VENDORS)/requirements-older.in -o $(VENDORS)/requirements-older.lock
	cd $(VENDORS) && npm update --package-lock-only --omit-lockfile-registry-resolved

clean: ## remove the environments and caches
	rm -rf $(VENV) $(AGENTS_VENV) $(CLIENTS_VENV) $(OLDER_CLIENTS_VENV) $(RAY_VENV) $(VENDORS)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Python 3.10 to 3.13 is needed; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BIN)/python requirements.lock requirements-torch.lock pyproject.toml
	$(BIN)/python -m pip install --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -r requirements-torch.lock
	$(BIN)/python -m pip install --no-deps -e . -e clients/python
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(BIN)/python -m pip install --require-hashes -r requirements-dev.lock
	@touch $@

$(AGENTS_VENV)/.agents: agents/requirements.lock clients/python/pyproject.toml $(wildcard agents/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "The agents need Python 3.11 to 3.13; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(AGENTS_VENV)
	$(AGENTS_VENV)/bin/python -m pip install --require-hashes -r agents/requirements.lock
	$(AGENTS_VENV)/bin/python -m pip install --no-deps -e clients/python $(addprefix -e ,$(dir $(wildcard agents/*/pyproject.toml)))
	@touch $@

$(CLIENTS_VENV)/.clients: $(VENDORS)/requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "The clients need Python 3.11 to 3.13; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip install --require-hashes -r $(VENDORS)/requirements.lock
	@touch $@

$(OLDER_CLIENTS_VENV)/.clients: $(CLIENTS_VENV)/.clients $(VENDORS)/requirements-older.lock
	$(PYTHON) -m venv $(OLDER_CLIENTS_VENV)
	$(OLDER_CLIENTS_VENV)/bin/python -m pip install --require-hashes -r $(VENDORS)/requirements-older.lock
	@touch $@

$(RAY_VENV)/.ray: deploy/ray/requirements.lock requirements-torch.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Ray's lock needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --require-hashes -r deploy/ray/requirements.lock
	$(RAY_VENV)/bin/python -m pip install -r requirements-torch.lock
	@touch $@

# Where npm reaches no registry, the JavaScript clients are skipped, which the tests' summary says.
$(VENDORS)/node_modules/.package-lock.json: $(VENDORS)/package-lock.json
	cd $(VENDORS) && npm ci --no-audit --no-fund && touch node_modules/.package-lock.json \
	  || echo "npm could not install the JavaScript clients: their tests will be skipped"
