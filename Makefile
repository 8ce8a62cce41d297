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
.PHONY: help setup demo test test-all test-slow native-test native-test-sanitized lint format bench clean

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv, compile and install (done by every target below)

# The build requirements are installed first and the build is not isolated, so that a change in native/ compiles
# only what it touches. mypy cannot see through an editable install: the generated stub is copied to the sources.
# Such an install also remembers which modules are packages, and is renewed where one has become a package.
$(READY): pyproject.toml constraints.txt CMakeLists.txt $(NATIVE) $(PACKAGES)
	@echo "== set-up in $(VENV); the first time this takes some minutes: tools, compiling, torch"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "   build tools"
	@$(PIP) 'scikit-build-core>=1,<2' 'nanobind>=3,<4' cmake ninja
	@echo "   the package and what it needs"
	@$(PIP) --no-build-isolation -e '.[dev,report,train]'
	@cp "$$(ls -t build/*/_native.pyi | head -1)" src/tidegraph/_native.pyi
	@touch $@

# Fewer columns, examples and epochs than by default, so that it is over within two minutes on two cores.
demo: $(READY)  ## stream the shipped data through the engine, then learn from it and write a report
	@$(BIN)/tidegraph demo
	@$(BIN)/tidegraph run nyc-flights --name demo --set columns=32 --set max_examples=30000 --set epochs=3

test: native-test  ## the native and the fast Python tests
	@echo "== python tests"
	@$(PYTEST) -m "not slow"

test-all: test test-slow  ## adds the slow Python tests and the native ones under sanitizers

test-slow: native-test-sanitized
	@echo "== slow python tests"
	@$(PYTEST) -m "slow and not ray"
	@echo "== tests of a Ray cluster; where Ray ends their process before it reports, once more"
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

lint: $(READY)  ## ruff, mypy --strict, clang-format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run --Werror $(NATIVE)

format: $(READY)  ## rewrite the sources as `make lint` wants them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(NATIVE)

bench: $(READY)  ## measure the engine; writes benchmarks/results/propagation.json
	@mkdir -p benchmarks/results
	@$(BIN)/tidegraph bench propagation --output benchmarks/results/propagation.json

clean:  ## remove everything that make made
	rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis src/tidegraph/_native.pyi
