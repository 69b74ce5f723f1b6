# `make demo` and `make test` do all of their own set-up; the second time they are quick.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
MODEL ?= qwen2.5-coder-1.5b
JOBS ?= 2

.PHONY: demo test test-slow lint format bench-core perplexity clean

demo: $(VENV)/.run
	$(RUN)/python benchmarks/demo.py --model $(MODEL)

test: $(VENV)/.dev lint
	$(RUN)/python -m pytest -q -n $(JOBS)

test-slow: $(VENV)/.dev
	$(RUN)/python -m pytest -q -m slow

lint: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/pyright

format: $(VENV)/.dev
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

bench-core: $(VENV)/.dev
	$(RUN)/python benchmarks/core.py

perplexity: $(VENV)/.run
	$(RUN)/python benchmarks/perplexity.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info
