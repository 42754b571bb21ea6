# Two commands do everything on a fresh machine: `make quickstart` and `make test`.
# Needs Python 3.11 or newer with its venv module; another one: make PYTHON=python3.12 quickstart
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Installed before everything that needs it: what the package index gives by default may be a build for graphics cards, of
# several gigabytes. With another index configured, or a wheel at hand: make TORCH=path/to/torch.whl test
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip --disable-pip-version-check
FUZZ_SECONDS ?= 60
# Processes that run tests: many tests wait for processes of their own. TEST_PROCESSES=0 runs them one by one, here.
TEST_PROCESSES ?= 6
# A test file at a time for each: its tests share what they start. A process that dies ends the run: with a new one in its place
# xdist waits for ever for the tests of the dead one.
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
# Compiled once, not by each of the thousand processes that tests start.
export PYTHONDONTWRITEBYTECODE =

.PHONY: quickstart test test-fast test-redis test-docs test-swarm test-numa frozen install format lint types mypy pyright architecture docs bench fuzz release wheel images clean

quickstart: $(VENV)/installed-runtime ## serve a small model, send it images, show the answers
	$(BIN)/python -m cluster_serving.node.quickstart

test: $(VENV)/installed-dev ## every test, with the coverage gate
	$(PYTEST) --cov --cov-report=term:skip-covered

test-fast: $(VENV)/installed-dev ## the unit tests but those that take seconds
	$(PYTEST) -n 2 -m 'not slow' tests/unit

test-redis: $(VENV)/installed-dev ## what touches Redis, with the redis-server that is first on the PATH
	$(PYTEST) -m redis

test-docs: $(VENV)/installed-dev ## the code of README, tutorials, how-to pages and examples, page by page, minutes
	$(BIN)/python -m pytest -m pages --no-cov tests/system/test_pages.py

test-swarm: $(VENV)/installed-dev ## a stack on a real Swarm of three hosts, minutes; skipped, with the reason, where there can be none
	$(BIN)/python -m pytest -m swarm -s -rs tests/system/test_swarm*.py -k "$(SWARM_TESTS)"

test-numa: $(VENV)/installed-dev ## a node on two NUMA domains, emulated, minutes; skipped, with the reason, where that cannot be
	$(BIN)/python -m pytest -m numa -s -rs tests/system/test_numa.py

# Right after a release: make frozen RELEASE=v0.1.0
RELEASE ?= HEAD
FROZEN = src client frontend node swarm ':!node/quickstart' ':!frontend/metrics/grafana' ':!frontend/dashboard/static' ':!frontend/dashboard/vendor' ':!swarm/README.md'

frozen: ## keeps the source of RELEASE as the release that tests run beside today's code
	git archive $(RELEASE) $(FROZEN) | xz -9e > tests/frozen/release.tar.xz

install: $(VENV)/installed-dev ## what a developer needs

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: mypy pyright

mypy pyright: $(VENV)/installed-dev
	$(BIN)/$@

architecture: $(VENV)/installed-dev
	$(BIN)/lint-imports

fuzz: $(VENV)/installed-dev ## what decodes bytes from the wire, for FUZZ_SECONDS in all
	cd tests && ../$(BIN)/python -m fuzz.fuzz_codecs --seconds $(FUZZ_SECONDS)

docs: $(VENV)/installed-dev ## the pages that are made from the code, and the site: build/docs/index.html
	$(BIN)/python -m docs.generate
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs

bench: $(VENV)/installed-dev ## the queue, beside its floor
	$(BIN)/python -m bench.queue

release: $(VENV)/installed-dev ## dist/: source archives, wheels, bill of materials and checksums of the commit, the same bytes each time
	$(PIP) install -q --group release
	$(PIP) install -q --require-hashes -r docker/requirements-build.txt
	$(BIN)/python .ci/release.py

wheel: release ## the quick start, from the wheels of dist/ in an environment of its own; type checkers find their types
	rm -rf build/wheel && $(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python -m pip install -q "$$(ls dist/cluster_serving-*.whl)[onnx]" dist/cluster_serving_compat-*.whl
	cd build/wheel && venv/bin/python -P -m cluster_serving.node.quickstart
	cd build/wheel && venv/bin/python -P -c 'from zoo.serving import client, schema; from bigdl.serving import client, schema'
	cp tests/typing/*_calls.py build/wheel/
	cd build/wheel && ../../$(BIN)/mypy --strict --python-executable venv/bin/python right_calls.py wrong_calls.py

# Others: make images EXTRAS=torch,http TAG=1.0-torch DOCKER_BUILD_ARGS='--build-arg PIP_EXTRA_INDEX_URL=...'
EXTRAS ?= onnx,http
TAG ?= $(shell sed -n 's/__version__ = "\(.*\)"/\1/p' src/cluster_serving/__init__.py)
DOCKER ?= docker
DOCKER_BUILD_ARGS ?=
DOCKER_BUILD = DOCKER_BUILDKIT=1 $(DOCKER) build -f docker/Dockerfile --build-arg VERSION=$(TAG) \
  --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) $(DOCKER_BUILD_ARGS)

images: ## cluster-serving-node with the backends of EXTRAS, and cluster-serving-frontend; of tag TAG, and latest
	$(DOCKER_BUILD) --target node --build-arg EXTRAS=$(EXTRAS) -t cluster-serving-node:$(TAG) -t cluster-serving-node:latest .
	$(DOCKER_BUILD) --target frontend -t cluster-serving-frontend:$(TAG) -t cluster-serving-frontend:latest .

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip

$(VENV)/installed-runtime: pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[onnx]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml $(VENV)/installed-runtime
	$(PIP) install -q '$(TORCH)'
	$(PIP) install -q -e '.[all]' --group dev
	@touch $@
