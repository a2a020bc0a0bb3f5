# `make demo` and `make test` do all set-up on a machine with only python3, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint types docs bench format clean
help:
	@echo "make demo    fit and compare on 10,000 embedded MNIST digits, and write a report"
	@echo "make test    run the tests (set DSCCA_DATA to include those on real data)"
	@echo "make lint    check format and style     make types   check types"
	@echo "make docs    build the documentation into site/"
	@echo "make bench   print speed and memory ratios"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ".[test,lint,types,docs,parquet,features,faiss,milvus,ray,tune,report,plot]"
	touch $@

$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@

demo: $(STAMP)
	$(BIN)/dscca demo

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
