# Two commands do all set-up on a fresh machine: `make demo` and `make test`.
# Only Python >= 3.11 and make are needed; everything else goes into .venv.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE  # compiled tests save each later run half of its start
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo fleet-demo run test test-faults test-browser check meaning bench bench-write bench-fleet peers screenshots lock clean

demo: $(VENV)/.runtime  ## create sample sessions, index them, look them up, remove them
	$(BIN)/python tests/demo.py

fleet-demo: $(VENV)/.dev  ## two machines share their sessions through a PostgreSQL server
	$(BIN)/python tests/fleet/demo.py

run: $(VENV)/.runtime  ## the daemon in the foreground, on your own sessions
	$(BIN)/indexerd run

test: $(VENV)/.dev  ## the suite, without the tests marked `browser` and `faults`
	$(BIN)/python -m pytest -q -n 3 -m "not browser and not faults"

test-faults: $(VENV)/.dev  ## tests of crashes, hangs, floods and full disks; a short run of the benchmarks
	$(BIN)/python -m pytest -q -n 2 -m faults -rs

test-browser: $(VENV)/.dev  ## tests of the pages in Chromium, if it is installed
	$(BIN)/python -m pytest -q -n 2 -m browser -rs tests/browser

meaning: $(VENV)/.dev  ## how well names, summaries and search do, beside plain baselines
	$(BIN)/python -m bench.meaning

check: $(VENV)/.dev  ## linters, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## benchmarks, each next to a limit measured in the same run, as one table
	$(BIN)/python bench/run.py

bench-write: $(VENV)/.dev  ## the same, and write the table to docs/PERFORMANCE.md
	$(BIN)/python bench/run.py --write

bench-fleet: $(VENV)/.dev  ## figures of a fleet, for docs/FLEET.md
	PYTHONPATH=bench $(BIN)/python -m bench.fleet

peers:  ## install the program that the cold index is compared with, in its own environment
	test -x $(VENV)-peers/bin/python || $(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet -r bench/peers.txt

screenshots: $(VENV)/.dev  ## make the README's pictures, of made-up sessions
	$(BIN)/python tests/browser/screenshots.py

$(VENV)/.runtime: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "indexerd needs Python 3.11 or newer" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.dev: requirements-dev.lock requirements-semantic.lock $(VENV)/.runtime
	$(PIP) --require-hashes -r requirements-dev.lock
	rm -rf $(VENV)/semantic  # aside: only tests that say so search by meaning
	$(PIP) --require-hashes --target $(VENV)/semantic -r requirements-semantic.lock
	touch $@

lock: $(VENV)/.runtime  ## pin all dependencies again, with hashes and without download addresses
	$(BIN)/python -m pip install --quiet 'pip-tools>=7.5'
	$(BIN)/python -m piptools compile --quiet --generate-hashes --no-strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header \
		-o requirements.lock pyproject.toml requirements-build.in
	sed 's/^\([^ ]*\)\[.*\]==/\1==/' requirements.lock >$(VENV)/constraints.txt  # these have no extras
	$(BIN)/python -m piptools compile --quiet --generate-hashes --no-strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header \
		-c $(VENV)/constraints.txt -o requirements-dev.lock requirements-dev.in
	$(BIN)/python -m piptools compile --quiet --generate-hashes --no-strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header \
		-o requirements-semantic.lock requirements-semantic.in

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
