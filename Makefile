# Two commands do everything: `make run` and `make test`. Both install what they need into .venv.
#   make run  DATA=folder PORT=8000 AGENTS=agents.toml ARGS="--any other flag"
SHELL := bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
# Given on the command line only: many desks export a PORT of their own.
WORKERS = auto
DATA = data
PORT =
AGENTS =
ARGS =
serve = --data $(DATA) $(if $(PORT),--port $(PORT)) $(if $(AGENTS),--agents $(AGENTS)) $(ARGS)
# A desk runs all tests on all cores; those that measure, or that need both cores, run alone after them.
pytest = $(PY) -m pytest -p no:cacheprovider $(if $(CI),--durations=30)
together = -n $(WORKERS) --dist loadgroup
one_by_one = -p no:xdist

.PHONY: help run test test-long test-clis check format bench docs docs-check lock web wheel install install-test clean

help: ## show these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

run: install web ## install what is missing, start the server with the demo agent, print how to chat
	@exec .venv/bin/turnkeeper serve $(serve)

test: install-test web ## install what the tests need, run them all
	@$(PY) tests/needs.py --install
	@scripts/page test
	$(pytest) $(together) -m "not alone and not long and not real_cli"
	@if grep -rqs --include="test_*.py" "mark\.alone" tests; then \
	    $(pytest) $(one_by_one) -m "alone and not long and not real_cli"; fi

test-long: install-test web ## the long soaks: ten times what make test does (an hour or more)
	@$(PY) tests/needs.py --install
	TURNKEEPER_TEST_LONG=1 $(pytest) $(one_by_one) --timeout=7200 -m "long"

test-clis: install-test web ## all tests of real coding CLIs, fetched from npm into .testdata (claude-code: TURNKEEPER_REAL_CLAUDE=1)
	@$(PY) tests/needs.py --install --clis
	$(pytest) $(one_by_one) --timeout=900 -m "pi_cli or codex_cli or claude_cli or real_cli"

check: install-test ## format, lint, types, rooms, shell scripts
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	@for script in scripts/* .ci/run; do bash -n $$script; done

format: install-test ## format the code and repair what the linter can
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: .testdata/bench/.installed ## measure, side by side with peers (they are installed into .testdata/bench)
	.testdata/bench/bin/turnkeeper bench $(ARGS)

# Peers want packages of their own versions: they get a place of their own, and no lock.
.testdata/bench/.installed: pyproject.toml | install
	rm -rf .testdata/bench
	$(PY) -m venv .testdata/bench
	.testdata/bench/bin/python -m pip install -qq --disable-pip-version-check -e '.[bench]'
	@touch $@

docs: install-test ## write the generated pages of docs/ anew
	$(PY) -m tests.tidy.generated --write

docs-check: install-test ## fail where a generated page is old, a link leads nowhere or a name is undocumented
	$(pytest) $(one_by_one) tests/tidy

lock: install-test ## write requirements/*.txt anew (ARGS=--upgrade moves the pins)
	scripts/lock $(ARGS)

web: install ## build the page, if it changed
	@scripts/page

wheel: install-test web ## build wheel and sdist into dist/
	$(PY) -m build --no-isolation

install:
	@scripts/venv run

install-test:
	@scripts/venv test

clean: ## remove what these commands made, except data
	rm -rf .venv .venv.lock .testdata dist web/node_modules web/.built src/turnkeeper/server/static
