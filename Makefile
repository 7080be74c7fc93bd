PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Each needs up to two gigabytes of memory.
TEST_WORKERS ?= 3

.PHONY: quickstart test test-all test-oldest test-notebooks lint docs package

quickstart: $(VENV)/installed  ## text -> vocabulary -> records -> encoder -> SavedModels -> [MASK]
	$(BIN)/python -m bert_tf.quickstart

PYTEST = $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist=loadfile --no-loadscope-reorder

test: $(VENV)/installed lint  ## lint, then all tests but the slow ones
	$(PYTEST) -m "not slow"

test-all: $(VENV)/installed lint  ## lint, then all tests: also kills, and every format against every other
	$(PYTEST)

test-oldest:  ## all tests with the oldest supported TensorFlow, in a separate environment
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --editable '.[test]' \
	  'tensorflow==2.20.*' 'tensorflow-text==2.20.*' 'tf_keras==2.20.*'
	.venv-oldest/bin/python -m pytest

test-notebooks:  ## executes colab/, in an environment with nothing but what the notebooks install
	$(PYTHON) -m venv .venv-notebooks
	.venv-notebooks/bin/pip install '.[huggingface,kerashub]' ipykernel jupytext nbclient pandas pytest
	.venv-notebooks/bin/python -m pytest colab -c /dev/null --rootdir colab -s

lint: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

docs: $(VENV)/installed-docs  ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

package: $(VENV)/installed  ## wheel and sdist in dist/, checked, and the wheel tried in an environment of its own
	$(BIN)/pip install build twine
	rm -rf dist .venv-package
	$(BIN)/pyproject-build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/pip install dist/*.whl
	cd dist && ../.venv-package/bin/bert-tf --help

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --editable '.[test]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --editable '.[docs]'
	touch $@
