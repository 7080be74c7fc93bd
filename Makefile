PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: quickstart test lint

quickstart: $(VENV)/installed  ## text -> vocabulary -> records -> encoder -> SavedModels -> [MASK]
	$(BIN)/python -m bert_tf.quickstart

test: $(VENV)/installed lint  ## lint, then all tests
	$(BIN)/python -m pytest

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --editable '.[test]'
	touch $@
