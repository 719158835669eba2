# Needs python3 (3.11 or newer), make and a package index that pip can reach; everything is put below this folder.
PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
LOCK := .venv-lock
TRY := build/try-env
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SAMPLE ?= sample_logs/efa-provider-missing-socket-fallback/job.log

# Compiled modules are kept: without them each of the programs that the tests start compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fast test-all answers test-lowest lock lint bench docs try fuzz audit release-check dist pyz image clean

demo: $(READY)
	$(BIN)/nccl-inspect summarize $(SAMPLE)
	$(BIN)/nccl-inspect paths --matrix $(SAMPLE)

# Lint, types and the tests that answer within two minutes; test-all runs the others: browser, docs, signals, growth, and
# properties with many examples.
test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint fast # side by side: types take as long as a fifth of the tests

fast: $(READY)
	$(BIN)/pytest -n auto -m 'not slow'

test-all: $(READY)
	$(BIN)/pytest -n auto -m 'slow or hypothesis' --hypothesis-profile=thorough

# Stores what is answered to each recorded input (tests/answers) and prints what changed; ONLY=pages: one file.
answers: $(READY)
	PYTHONPATH=.:tests/helpers $(BIN)/python tests/answers/answers.py $(ONLY)

# Runs the fast tests with exactly the lower bounds that pyproject.toml states for the runtime dependencies.
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
		| sed 's/>=/==/' > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --quiet --editable '.[dev]' --constraint $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pytest -n auto -m 'not slow'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_phrases.py
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/run.py

# What is generated in docs/ and share/ (manual pages, completions), and the site, which is not kept in the repository.
docs: $(BIN)/mkdocs
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/shared_files.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# SECONDS for all targets together; atheris, where it is installed, guides the inputs.
FUZZ_SECONDS ?= 120
fuzz: $(READY)
	$(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

# Known holes in what the package needs: asks a service, so that it is no part of lint.
audit: $(READY)
	$(BIN)/pip install --quiet pip-audit
	$(BIN)/pip-audit --skip-editable || { echo "audit: holes found, or the service cannot be reached" >&2; exit 1; }

release-check: $(READY)
	$(BIN)/python tools/release_check.py

# What a release consists of, checked: wheel, source archive, zipapp, their components (CycloneDX), how they were made
# (in-toto), SHA256SUMS.
dist: $(READY)
	$(BIN)/python tools/release_check.py --keep dist

pyz: $(READY)
	$(BIN)/python tools/pyz.py nccl-inspect.pyz

# buildah, podman or docker, whichever is there; BASE names another image of Python, such as that of a mirror.
IMAGE ?= nccl-inspect
image:
	tools/image.sh $(IMAGE) $(if $(BASE),--build-arg BASE=$(BASE))

# The page that judges logs in the browser, in build/try; the only thing here that needs npm. `make docs` adds it to the
# site where it was built.
try: $(TRY)/.ready
	PYTHONPATH=. $(TRY)/bin/python tools/try_page.py

# Only what the page holds, so that it is there within a minute: neither pandas nor what development needs.
$(TRY)/.ready: pyproject.toml constraints.txt tools/pyz.py
	$(PYTHON) -m venv $(TRY)
	$(PYTHON) tools/pyz.py --needs > $(TRY)/needs.txt
	@$(TRY)/bin/pip install --quiet --requirement $(TRY)/needs.txt --constraint constraints.txt 2> $(TRY)/locked.log || \
		$(TRY)/bin/pip install --quiet --requirement $(TRY)/needs.txt
	@touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(LOCK) build dist site nccl-inspect.pyz tests/data/.fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/mkdocs: $(READY)
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@

# What constraints.txt names is what was tested; where it cannot be had (another index, a Python without such wheels), the
# newest that fits will do.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --editable '.[dev]' --constraint constraints.txt 2> $(VENV)/locked.log || { \
		echo "constraints.txt does not fit here ($(VENV)/locked.log): taking the newest versions" >&2; \
		$(BIN)/pip install --quiet --editable '.[dev]'; }
	@touch $@

# Writes constraints.txt anew: the newest versions of everything that development needs, as pip finds them now.
lock:
	$(PYTHON) -m venv --clear $(LOCK)
	$(LOCK)/bin/pip install --quiet --editable '.[dev]'
	{ echo "# Versions that this was tested with, for 'make'; 'make lock' writes them anew. No part of the package."; \
		$(LOCK)/bin/pip freeze --exclude-editable; } > constraints.txt
	rm -rf $(LOCK)
