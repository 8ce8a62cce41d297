# Every target sets up what it needs. The first run creates .venv and compiles; later runs start in seconds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := $(shell find native -name '*.?pp' 2>/dev/null)
PACKAGES := $(shell find src -name __init__.py 2>/dev/null)
PIP := $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt
CMAKE_NATIVE := $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	-DTIDEGRAPH_PYTHON=OFF -DTIDEGRAPH_TESTS=ON -DTIDEGRAPH_STRICT=ON

# Not -n auto: the engine starts threads of its own. torch's would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2
PYTEST_RAY := $(PYTEST) -n 0 -m ray --junitxml=build/ray.xml

.DEFAULT_GOAL := help
.PHONY: help setup demo live test test-all test-slow native-test native-test-sanitized lint format bench malformed docs wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv, compile and install (done by every target below)

# Install the build requirements first and do not isolate the build, so that a change in native/ compiles only what
# it touches. mypy cannot see through an editable install, so copy the generated stub to the sources. An editable
# install also remembers which modules are packages, so renew it when a module becomes one.
$(READY): pyproject.toml constraints.txt CMakeLists.txt $(NATIVE) $(PACKAGES)
	@echo "== set-up in $(VENV); the first time this takes some minutes: tools, compiling, torch"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "   build tools"
	@$(PIP) 'scikit-build-core>=1,<2' 'nanobind>=3,<4' cmake ninja
	@echo "   the package and what it needs"
	@$(PIP) --no-build-isolation -e '.[dev,docs,report]'
	@cp "$$(ls -t build/*/_native.pyi | head -1)" src/tidegraph/_native.pyi
	@touch $@

# Fewer columns, examples and epochs than by default, so that it ends within a minute on two cores.
demo: $(READY)  ## stream the shipped flights, train on them, write runs/demo/report.html
	@$(BIN)/tidegraph demo
	@$(BIN)/tidegraph run nyc-flights --name demo --set columns=32 --set max_examples=30000 --set epochs=3

live: $(READY)  ## replay the flights of 2013 at 1,000 times their pace into a server with a page
	@$(BIN)/tidegraph demo --live

test: native-test  ## run the native and the fast Python tests
	@echo "== python tests"
	@$(PYTEST) -m "not slow"

test-all: test test-slow  ## also run the slow tests, and the native ones under sanitizers

test-slow: native-test-sanitized
	@echo "== slow python tests"
	@$(PYTEST) -m "slow and not ray"
	@echo "== tests of a Ray cluster; once more if Ray ends the process before pytest reports"
	@rm -f build/ray.xml
	@$(PYTEST_RAY) || { test ! -e build/ray.xml && $(PYTEST_RAY); }

native-test: $(READY)
	@echo "== native tests"
	@$(CMAKE_NATIVE) -B build/native >/dev/null
	@$(BIN)/cmake --build build/native
	@build/native/native_tests

native-test-sanitized: $(READY)
	@echo "== native tests, address and undefined behaviour sanitizers"
	@$(CMAKE_NATIVE) -B build/asan -DTIDEGRAPH_SANITIZE=address,undefined >/dev/null
	@$(BIN)/cmake --build build/asan
	@build/asan/native_tests
	@echo "== native tests, thread sanitizer"
	@$(CMAKE_NATIVE) -B build/tsan -DTIDEGRAPH_SANITIZE=thread >/dev/null
	@$(BIN)/cmake --build build/tsan
	@build/tsan/native_tests

lint: $(READY)  ## run ruff, mypy --strict and clang-format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(NATIVE)

format: $(READY)  ## reformat the sources
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(NATIVE)

bench: $(READY)  ## measure the engine, write benchmarks/results/propagation.json
	@mkdir -p benchmarks/results
	@$(BIN)/tidegraph bench propagation --output benchmarks/results/propagation.json

malformed: $(READY)  ## send 100,000 malformed requests to a server
	@TIDEGRAPH_MALFORMED=100000 $(PYTEST) tests/test_malformed.py

docs: $(READY)  ## build the documentation as a site in site/, strictly
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

# Environments of its own, so that it does not need .venv: one builds the sdist and, from that, the wheel;
# a clean one, without a compiler, installs the wheel and runs a smoke test. PYTHON=python3.13 builds for another Python.
WHEEL := $(CURDIR)/build/wheel
wheel:  ## build sdist and wheel in dist/, try the wheel in a clean environment
	@rm -rf $(WHEEL) && mkdir -p $(WHEEL)
	@echo "== sdist, and the wheel from it"
	@$(PYTHON) -m venv $(WHEEL)/tools && $(WHEEL)/tools/bin/pip install -qq --disable-pip-version-check build
	@$(WHEEL)/tools/bin/python -m build --outdir $(WHEEL)/dist . >$(WHEEL)/log || { cat $(WHEEL)/log; exit 1; }
	@echo "== installing the wheel without a compiler"
	@$(PYTHON) -m venv $(WHEEL)/clean
	@cd $(WHEEL)/clean && PATH=$(WHEEL)/clean/bin CC=false CXX=false bin/python -m pip install -qq \
		--disable-pip-version-check --only-binary :all: -c $(CURDIR)/constraints.txt $(WHEEL)/dist/*.whl
	@cd $(WHEEL)/clean && PATH=$(WHEEL)/clean/bin CC=false CXX=false bin/python $(CURDIR)/tests/smoke.py
	@mkdir -p dist && cp $(WHEEL)/dist/* dist/ && ls -1 $(WHEEL)/dist | sed 's|^|dist/|'

clean:  ## remove everything make made
	rm -rf build dist site $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis src/tidegraph/_native.pyi
