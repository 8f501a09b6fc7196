# QDQ Workbench. `make demo` and `make test` need nothing but make and Python 3.10 to 3.13.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The interpreter: the first of these that runs and that TensorFlow has wheels for. Override: make PYTHON=...
PYTHON ?= $(shell for python in python3 python3.12 python3.11 python3.13 python3.10; do \
	$$python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& { echo $$python; break; }; done)

# The TensorFlow build: `tensorflow` where there is an NVIDIA GPU (or where no CPU-only build exists),
# else the much smaller `tensorflow-cpu`. Override: make install TF=tensorflow
TF ?= $(shell if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then echo tensorflow; \
	elif [ "$$(uname -s)-$$(uname -m)" = Linux-x86_64 ]; then echo tensorflow-cpu; else echo tensorflow; fi)

VENV ?= .venv
EXTRAS ?= dev docs
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq
EMPTY :=
STAMP := $(VENV)/.installed-$(TF)-$(subst $(EMPTY) $(EMPTY),-,$(EXTRAS))
WORKERS ?= 3

export KERAS_BACKEND := tensorflow
export TF_CPP_MIN_LOG_LEVEL ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without compiled files every process of the tests would compile the package, and rewrite the assertions, for itself.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv install demo test lint types contracts docs frontend browser pytest exhaustive fuzz agreement load soak notebooks lab bench bench-peers build installed oldest clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

venv: $(BIN)/python  ## Create the virtual environment

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.13 was found; name one with make PYTHON=/path/to/python"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

install: $(STAMP)  ## Install the package in place, its dependencies and the developer tools (TF=tensorflow|tensorflow-cpu)

# pip cannot express "tensorflow or tensorflow-cpu". So the package comes alone first and prints its own requirements
# with the chosen build in them. It steps aside while those are installed: pip would complain about the other build.
$(STAMP): pyproject.toml | $(BIN)/python
	@echo "Installing qdq-workbench with $(TF) and the extras: $(EXTRAS); this takes some minutes ..."
	@$(PIP) install --no-deps -e .
	@$(BIN)/python -m qdq_workbench.cli.requirements --tensorflow $(TF) $(EXTRAS) > $(VENV)/requirements.txt
	@$(PIP) uninstall -y qdq-workbench
	@$(PIP) install -r $(VENV)/requirements.txt
	@$(PIP) install --no-deps -e .
	@rm -f $(VENV)/.installed-* && touch $@
	@echo "Installed. Next: source $(BIN)/activate, then docs/first_file.md or make lab"

demo: $(STAMP)  ## Run the main job into build/demo; DATA= and MODEL= bring your own
	@$(BIN)/qdq-workbench demo --output build/demo $(if $(DATA),--data "$(DATA)") $(if $(MODEL),--model "$(MODEL)")

test:  ## Lint, types, import contracts, the site, the front end, then every test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types contracts docs frontend browser
	@$(MAKE) --no-print-directory pytest

frontend: $(STAMP)  ## Rebuild the widget's bundle and compare, lint and test its TypeScript (skipped without Node 20)
	@if command -v npm >/dev/null 2>&1; then \
		cd widgets && npm ci --no-audit --no-fund --loglevel=error && npm run --silent check && npm run --silent lint \
		&& npm run --silent types && npm test --silent; \
	else echo "npm was not found: the front end's own checks are skipped; its built bundle is in the repository"; fi

# The tests in a real JupyterLab need a Chromium: the system's where there is one, else Debian's, else Playwright's.
# Without any of them these tests skip and say so.
browser: $(STAMP)  ## Provide a Chromium for the browser tests
	@if command -v chromium chromium-browser google-chrome >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo "Installing Chromium for the browser tests ..."; \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
		|| echo "Chromium could not be installed: the browser tests will be skipped"; \
	else $(BIN)/python -m playwright install chromium >/dev/null 2>&1 \
		|| echo "Playwright could not install its Chromium: the browser tests will be skipped"; fi

lint: $(STAMP)  ## ruff: every rule, and the layout of the code
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet || { echo "run: ruff format"; exit 1; }

types: $(STAMP)  ## mypy, strict
	@$(BIN)/mypy

contracts: $(STAMP)  ## import-linter: who may import whom
	@$(BIN)/lint-imports

docs: $(STAMP)  ## Build the documentation site into build/site; warnings are errors, and no network is needed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "The site: build/site/index.html"

pytest: $(STAMP)  ## The tests alone; ARGS= goes to pytest
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

exhaustive: $(STAMP)  ## The tests that `make test` leaves out: further cases of what others hold, some minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --exhaustive -m exhaustive $(ARGS)

fuzz: $(STAMP)  ## Try random models for MINUTES=10; SEED= gives others, COUNT= limits their number
	@$(BIN)/python tests/fuzz/long_run.py --minutes $(or $(MINUTES),10) --seed $(or $(SEED),0) $(if $(COUNT),--count $(COUNT))

agreement: $(STAMP)  ## Compare the explanations with ONNX Runtime under random toggles; TOGGLES=200 per network, ONLY=ResNet50 ...
	@$(BIN)/python tests/agreement/long_run.py --toggles $(or $(TOGGLES),200) $(if $(ONLY),--only $(ONLY))

load: $(STAMP)  ## Use a bench of LAYERS=3000 for ACTIONS=1000, then one in JupyterLab; MINUTES= for each, SEED= gives other actions
	@$(BIN)/python tests/load/long_run.py --actions $(or $(ACTIONS),1000) --layers $(or $(LAYERS),3000) --seed $(or $(SEED),0) $(if $(MINUTES),--minutes $(MINUTES))
	@$(BIN)/python tests/load/browser_run.py --actions $(or $(ACTIONS),1000) --layers $(or $(LAYERS),3000) --seed $(or $(SEED),0) $(if $(MINUTES),--minutes $(MINUTES))

# A sample of small faults, each against the tests that reach it: hours for all rooms, minutes for one. It goes on where it ended.
soak: $(STAMP)  ## Do the tests notice? MUTANTS=13 per room, ROOMS="graph spec", SEED=; results in build/mutation
	@$(BIN)/python tests/mutation/long_run.py --mutants $(or $(MUTANTS),13) --seed $(or $(SEED),0) $(if $(ROOMS),--rooms $(ROOMS)) $(ARGS)

notebooks: $(STAMP)  ## Run the notebooks as a reader does, each in 180 s at most (LIMIT=); ONLY="03 09"
	@$(BIN)/python tests/notebooks/long_run.py --seconds $(or $(LIMIT),180) $(if $(ONLY),--only $(ONLY))

lab: $(STAMP)  ## Open JupyterLab on the quickstart notebook
	@$(BIN)/qdq-workbench lab

bench-peers: $(STAMP)  ## Measure other packages beside ours, each in an environment of its own; ARGS= goes to the script
	@$(BIN)/python benchmarks/peers.py $(ARGS)

# About 20 minutes on two idle cores. Not among them: peers (bench-peers), keras_applications and the accuracy
# benchmarks, which take hours or need data; big_model, which needs 16 GB of memory.
BENCH ?= import_time planning quantizing qat_step evaluation calibrating exporting onnx_speed sensitivity graph_widget
bench: $(STAMP)  ## Run the benchmarks of the figures table; each prints its ratios. BENCH="qat_step exporting" runs these
	@for name in $(BENCH); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || echo "$$name failed"; done

# An environment with the build tool alone; the tool makes one of its own with the build backend.
BUILD := .venv-build
build:  ## Build the wheel and the source archive into dist/, with the build tools only
	@test -n "$(PYTHON)" || { echo "No Python 3.10 to 3.13 was found; name one with make PYTHON=/path/to/python"; exit 1; }
	@test -x $(BUILD)/bin/pyproject-build || { $(PYTHON) -m venv $(BUILD) && $(BUILD)/bin/python -m pip -qq install "build>=1.2"; }
	@rm -f dist/qdq_workbench-*
	@$(BUILD)/bin/python -m build

installed: build  ## Use both archives in an empty environment outside of the checkout, and write its SBOM into dist/
	@$(PYTHON) tests/packaging/installed.py dist --tensorflow $(TF) --sbom dist $(ARGS)

# The lower bounds of pyproject.toml: uv resolves every direct dependency to the lowest version that fits the others.
OLDEST := .venv-oldest
$(OLDEST)/installed: $(STAMP) pyproject.toml
	@echo "Installing the oldest dependencies that pyproject.toml allows into $(OLDEST) ..."
	@test -x $(OLDEST)/bin/uv || { $(PYTHON) -m venv $(OLDEST) && $(OLDEST)/bin/python -m pip -qq install uv; }
	@$(BIN)/python -m qdq_workbench.cli.requirements --tensorflow $(TF) dev > $(OLDEST)/bounds.txt
	@$(OLDEST)/bin/uv pip compile -q --python $(OLDEST)/bin/python --resolution lowest-direct $(OLDEST)/bounds.txt -o $(OLDEST)/oldest.txt
	@$(OLDEST)/bin/uv pip install -q --python $(OLDEST)/bin/python -r $(OLDEST)/oldest.txt
	@$(OLDEST)/bin/uv pip install -q --python $(OLDEST)/bin/python --no-deps -e .
	@touch $@

# Old releases warn of what newer ones of others deprecate, and warnings are errors in the tests.
oldest: $(OLDEST)/installed  ## Test ROOMS="verification conversion wrappers fuzz" with the oldest dependencies that are allowed; ARGS= goes to pytest
	@$(OLDEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" -W ignore::DeprecationWarning \
		$(addprefix tests/,$(or $(ROOMS),verification conversion wrappers fuzz)) $(ARGS)

clean:  ## Remove the virtual environment, build output and caches
	rm -rf $(VENV) $(BUILD) $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
