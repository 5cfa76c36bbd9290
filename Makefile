# `make demo` and `make test` do everything on a fresh machine with Python (3.11 or newer) and make.

PYTHON ?= python3
VENV   ?= .venv
# What pip is given to install PyTorch. Another build, for example a CPU-only one:
#   make demo TORCH="torch torchvision --index-url ADDRESS-OF-THAT-BUILD"
# Both must come from one place: a CPU-only torch beside another torchvision does not import.
TORCH  ?= -c constraints.txt torch torchvision

# How many processes share the tests: one a core, each with one thread.
JOBS   ?= auto

export OMP_WAIT_POLICY ?= passive

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: docs demo web test test-all lint check-types benchmark release format clean help

help:
	@echo "make demo         install, then train three small networks and compare them at many resolutions"
	@echo "make test         install, then lint, check types and run every test"
	@echo "make test-all     the same, large models included"
	@echo "make docs         build the documentation site in site/, to be opened without a server"
	@echo "make web          make a page that runs the shipped network in the browser, and serve it on this machine"
	@echo "make release      build wheels and source archives in dist/, install them afresh and try every extra"
	@echo "make benchmark    measure training, inference and kernels on this machine, beside their floors"
	@echo "make format       rewrite the code in the house format"
	@echo "make clean        remove the virtual environment and what tools left behind"

demo: $(VENV)/.installed
	$(BIN)/arrn demo

web: $(VENV)/.installed
	$(BIN)/arrn web weights/arrn_mini --out out/site --serve

test: lint check-types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-all: lint check-types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m ''

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the documentation: site/index.html"

benchmark: $(VENV)/.installed
	$(BIN)/arrn benchmark

# Of arrn, and of arrn-runtime. TRIAL="--only train timm" tries less; docs/support.md lists the extras.
release: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --outdir dist runtime
	$(BIN)/python tools/try_release.py dist --torch="$(TORCH)" $(TRIAL)

format: $(VENV)/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# torch first and apart, so that another build of it stays: its pins are left out of the second step.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(TORCH)
	grep -v '^torch' constraints.txt > $(VENV)/constraints.txt
	$(PIP) install --quiet -c $(VENV)/constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
