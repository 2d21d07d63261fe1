# `make demo`: a first Gate from nothing. `make test`: everything that CI checks.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo

.PHONY: demo test lint types unit wheel bench clean

demo: $(VENV)/.installed
	@test -d $(DEMO) || $(BIN)/oloproof init $(DEMO) --example stateful-agent
	@$(BIN)/oloproof run --project $(DEMO); code=$$?; \
	  echo; test $$code -ne 1 || echo "This agent has two defects on purpose, and the Gate blocks it."; echo "Next:"; \
	  echo "  $(BIN)/oloproof inspect --project $(DEMO) --case ord-013~injected"; \
	  echo "  $(BIN)/oloproof ui --project $(DEMO)      the same run in Dagster's UI"; \
	  echo "  $(DEMO)/README.md                       which line causes which verdict, and how to mend it"; \
	  test $$code -le 1

test: lint types unit wheel bench

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type checkers do not see that assets/ and resources/ are packages of oloproof_dagster: the installed copy is checked.
types: $(VENV)/.dev
	rm -rf build/typecheck
	$(BIN)/pip install --quiet --no-deps --target build/typecheck .
	cd build/typecheck && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml oloproof_dagster oloproof.py

unit: $(VENV)/.dev
	$(BIN)/python -m pytest

# The wheel in a venv of its own; the tests run from a copy, so that nothing is imported from this checkout.
wheel: $(VENV)/.dev
	rm -rf build/lib build/wheel dist
	$(BIN)/python -m build --quiet --wheel
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet dist/*.whl pytest hypothesis
	mkdir -p build/wheel/copy
	cp -r tests docs benchmarks README.md pyproject.toml build/wheel/copy
	cd build/wheel/copy && ../venv/bin/python -c "import oloproof; oloproof.Stateful" && ../venv/bin/python -m pytest -q

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks --smoke

clean:
	rm -rf build dist $(VENV) $(DEMO) *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.installed
