# `make demo`: a first Gate from nothing. `make unit`: the tests, for whoever edits; TESTS=tests/engine runs one folder.
# `make test`: what a change has to pass. `make test-all`: that, and what is slow or wants more than Python.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo
TESTS ?= tests
JOBS ?= 2

# Compiled once: else each of the many processes of tests, benchmarks and demo compiles this package or its tests anew.
export PYTHONDONTWRITEBYTECODE =

# The wheel and what it requires, in a venv of its own, and a copy of the checkout without the package's source: what
# runs there imports the wheel and nothing of this folder.
WHEEL := build/wheel/venv
COPY := build/wheel/copy

# The venv of the tools that check, and the folder whose package they measure: `make test` takes the wheel's.
TOOLS ?= $(VENV)
FROM ?= .

.PHONY: demo test test-all lint types unit dist wheel slow newest bench clean

demo: $(VENV)/.installed
	@test -d $(DEMO) || $(BIN)/oloproof init $(DEMO) --example stateful-agent
	@$(BIN)/oloproof run --project $(DEMO); code=$$?; \
	  echo; test $$code -ne 1 || echo "This agent has two defects on purpose, and the Gate blocks it."; echo "Next:"; \
	  echo "  $(BIN)/oloproof inspect --project $(DEMO) --case ord-013~injected"; \
	  echo "  $(BIN)/oloproof ui --project $(DEMO)      the same run in Dagster's UI"; \
	  echo "  $(DEMO)/README.md                       which line causes which verdict, and how to mend it"; \
	  test $$code -le 1

test:
	$(MAKE) lint types wheel bench TOOLS=$(WHEEL) FROM=$(COPY)

test-all: test slow newest

lint: $(TOOLS)/.dev
	$(TOOLS)/bin/ruff check .
	$(TOOLS)/bin/ruff format --check .

# Type checkers do not see that assets/ and resources/ are packages of oloproof_dagster: what the wheel holds is checked.
types: dist $(TOOLS)/.dev
	rm -rf build/typecheck
	$(TOOLS)/bin/pip install --quiet --no-deps --no-compile --target build/typecheck dist/*.whl
	cd build/typecheck && "$(CURDIR)/$(TOOLS)/bin/mypy" --config-file ../../pyproject.toml --cache-dir ../mypy \
	  oloproof_dagster oloproof.py

# Two calls: what is sensitive to timing runs when the others are through. 5 is pytest's code where no test is chosen.
PYTEST := python -m pytest -q
BESIDE := -n $(JOBS) --dist loadfile -m "not alone and not slow"
ALONE := -m "alone and not slow"

unit: $(VENV)/.dev
	$(BIN)/$(PYTEST) $(BESIDE) $(TESTS) || test $$? -eq 5
	$(BIN)/$(PYTEST) $(ALONE) $(TESTS) || test $$? -eq 5

# Built anew by every `make`, as nothing says which files were deleted since.
dist: | $(WHEEL)/bin/python
	rm -rf build/lib build/bdist.* dist
	$(WHEEL)/bin/pip wheel --quiet --no-deps --wheel-dir dist .

# The variable is where the checkout is, for the test that compares the wheel with it.
IN_COPY = cd $(COPY) && OLOPROOF_CHECKOUT="$(CURDIR)" "$(CURDIR)/$(WHEEL)/bin/"$(PYTEST)

wheel: dist $(WHEEL)/.dev
	$(WHEEL)/bin/pip install --quiet --force-reinstall --no-deps dist/*.whl
	rm -rf $(COPY)
	mkdir -p $(COPY)
	cp -r tests docs benchmarks deploy README.md CHANGELOG.md Makefile pyproject.toml workspace.yaml $(COPY)
	$(IN_COPY) $(BESIDE) $(TESTS) || test $$? -eq 5
	$(IN_COPY) $(ALONE) $(TESTS) || test $$? -eq 5

# In the copy that `make wheel` leaves behind. Property tests take part with ten times as many examples.
slow:
	$(IN_COPY) -n $(JOBS) --dist loadfile -m "slow or hypothesis" --hypothesis-profile thorough $(TESTS) || test $$? -eq 5

# The development extras hold Dagster back at what dagster-postgres and dagster-k8s of the same release require. Here is
# the newest that resolves beside the wheel alone, made anew each time.
NEWEST := build/newest/venv
ON_DAGSTER := $(addprefix tests/dagster/,test_assets.py test_attempts.py test_automation.py test_edits.py \
  test_gate_assets.py test_history.py test_refusals.py test_reuse.py test_versions.py) tests/processes/test_shards.py

newest:
	rm -rf build/newest
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/pip install --quiet dist/*.whl pytest pytest-xdist hypothesis
	$(NEWEST)/bin/pip list | grep -E "^(dagster|pandas|pyarrow|pydantic) "
	cd $(COPY) && "$(CURDIR)/$(NEWEST)/bin/"$(PYTEST) $(BESIDE) $(ON_DAGSTER)

bench: $(TOOLS)/.dev
	cd $(FROM) && "$(CURDIR)/$(TOOLS)/bin/python" -m benchmarks --smoke

clean:
	rm -rf build dist $(VENV) $(DEMO) *.egg-info

$(VENV)/bin/python $(WHEEL)/bin/python:
	$(PYTHON) -m venv $(@D:/bin=)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e .
	@touch $@

# What the wheel requires is installed once, and again where pyproject.toml has changed. It is compiled then: where Python
# writes no bytecode, every process of the tests would compile Dagster anew.
$(WHEEL)/.dev: pyproject.toml | dist
	$(WHEEL)/bin/pip install --quiet "$$(echo dist/*.whl)[dev]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.installed
