# `make run` and `make test` set everything up on a fresh machine; nothing is needed but Python 3.10+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TASK ?= linear_gelu
EVALUATIONS ?= 6

.PHONY: run test test-all test-oldest pytest lint format docs clean

run: $(VENV)/installed
	$(BIN)/mtmc search task=$(TASK) budget.evaluations=$(EVALUATIONS) batch=2

# Types are checked while the tests run: mypy takes a minute of one core, and tests wait for each other now and then.
test: $(VENV)/installed
	$(MAKE) --no-print-directory -j 2 lint pytest

# What `test` leaves out since it takes long (tests/long.txt), and tables of which it goes through a share.
test-all: $(VENV)/installed
	MTMC_WIDE=1 $(MAKE) --no-print-directory test

# Kernels are printed for this Triton and all later ones; installed is the newest.
OLDEST := triton==3.6.0
test-oldest: $(VENV)/oldest
	PYTHONPATH=$(VENV)/oldest $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/rewrite

$(VENV)/oldest: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $@ $(OLDEST)
	touch $@

# Workers in the sandbox cannot leave compiled modules behind, and would compile all that they import each time. Tests are
# compiled too, for the next run, whatever the environment says.
pytest: $(VENV)/installed
	$(BIN)/python -m compileall -q mtmc
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy mtmc

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "built: open site/index.html"

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
