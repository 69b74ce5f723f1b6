# `make demo` and `make test` do all of their own set-up; the second time they are quick.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Builds in this environment, so that the constraints count and a change compiles what it must.
BUILD := $(PIP) --no-build-isolation
KERNELS := CMakeLists.txt $(filter-out %.py %.pyi,$(wildcard src/paceline/kernels/*.*))
SANITIZED := build/sanitize
MODEL ?= qwen2.5-coder-1.5b
JOBS ?= 2

.PHONY: demo test test-slow lint format sanitize bench-core bench-kernels bench-drafters bench-verify \
	bench-window bench-serve bench-peers readme-figures roofline perplexity clean browser

demo: $(VENV)/.run
	$(RUN)/python benchmarks/demo.py --model $(MODEL)

test: $(VENV)/.dev lint browser
	$(RUN)/python -m pytest -q -n $(JOBS)

# The page is tested in a real browser. Where Debian's can be had it is installed; without one these
# tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium; } \
		|| echo 'no chromium: the tests of the page will be skipped'

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

# The kernels' tests on a build that checks every address and every undefined operation. It lies in
# a folder of its own, which -S puts in the place of the editable install; Python itself is not
# checked, so what it never frees is no news.
sanitize: $(VENV)/.dev
	$(BUILD) --no-deps --upgrade --target $(SANITIZED)/lib \
		--config-settings=build-dir=$(SANITIZED)/build \
		--config-settings=cmake.build-type=Debug \
		--config-settings=cmake.define.PACELINE_SANITIZE=ON .
	PYTHONPATH=$(SANITIZED)/lib:$$($(RUN)/python -c 'import torch; print(torch.__path__[0])')/.. \
	LD_PRELOAD="$$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		$(RUN)/python -S -m pytest -q --capture=sys -p no:cacheprovider tests/kernels

bench-core: $(VENV)/.dev
	$(RUN)/python benchmarks/core.py

bench-kernels: $(VENV)/.bench
	$(RUN)/python benchmarks/kernels.py --readme README.md

bench-drafters: $(VENV)/.run
	$(RUN)/python benchmarks/drafters.py --readme README.md

bench-verify: $(VENV)/.run
	$(RUN)/python benchmarks/verify.py --page docs/losslessness.md

bench-window: $(VENV)/.run
	$(RUN)/python benchmarks/window.py

bench-serve: $(VENV)/.serve
	$(RUN)/python benchmarks/serve.py --model smollm2-135m
	$(RUN)/python benchmarks/serve.py --model $(MODEL)

bench-peers: $(VENV)/.peers
	$(RUN)/python benchmarks/peers_bench.py --model $(MODEL)

# From the records in benchmarks/results, without measuring anything.
readme-figures: $(VENV)/.run
	$(RUN)/python benchmarks/readme_figures.py --readme README.md

roofline: $(VENV)/.run
	$(RUN)/python benchmarks/roofline.py

perplexity: $(VENV)/.run
	$(RUN)/python benchmarks/perplexity.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: constraints.txt | $(VENV)/bin/python
	$(PIP) scikit-build-core nanobind cmake ninja
	touch $@

$(VENV)/.run: pyproject.toml $(KERNELS) $(VENV)/.tools
	$(BUILD) --config-settings=build-dir=build/{wheel_tag} --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.run
	$(BUILD) --config-settings=build-dir=build/{wheel_tag} --editable '.[dev]'
	touch $@

$(VENV)/.peers: constraints.txt | $(VENV)/.bench
	$(PIP) transformers openvino-genai
	touch $@

$(VENV)/.serve: pyproject.toml constraints.txt | $(VENV)/.run
	$(BUILD) --config-settings=build-dir=build/{wheel_tag} --editable '.[serve]'
	touch $@

# llama.cpp, to compare with: it is compiled here, which takes a quarter of an hour on two cores.
$(VENV)/.bench: constraints.txt | $(VENV)/.run
	$(PIP) 'llama-cpp-python'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info
