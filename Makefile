# Every target sets up .venv by itself, and again only if pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
SOAK_SECONDS ?= 7200

.DEFAULT_GOAL := help
.PHONY: help demo test coverage soak mutants wheel audit lint format docs screenshots results clean

help:  ## Show what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The package and what it needs to run; tests and documentation need more.
$(VENV)/.package: pyproject.toml constraints.txt
	@echo "Installing PyTorch and the package into $(VENV); this takes about a minute."
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.package
	$(PIP) -e '.[dev,docs]'
	@touch $@

demo: $(VENV)/.package  ## Train on bundled real data and write a page of figures
	$(BIN)/vepm train digits --output runs/demo --overwrite --baselines gcn,label-propagation
	$(BIN)/vepm communities KarateClub -c 4 -k 4 --output runs/demo-karate --overwrite
	@echo "Open runs/demo/report.html and runs/demo-karate/report.html in a browser."

test: $(VENV)/.installed  ## Run all tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

coverage: $(VENV)/.installed  ## Run all tests and refuse to have less than 92 % of lines run
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --cov --cov-report=term

soak: $(VENV)/.installed  ## Damaged files, killed runs and two hours of training (SOAK_SECONDS=7200)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m tools.soak.fuzz --inputs 100000 --output results/soak/fuzz.json
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m tools.soak.kills --kills 50 --output results/soak/kills.json
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m tools.soak.repeat --seconds $(SOAK_SECONDS) --output results/soak/repeat.json

mutants: $(VENV)/.installed  ## Change the code a little and see whether tests notice
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutants --sample 10 --output results/soak/mutants.json

wheel: $(VENV)/.installed  ## Build sdist and wheel, and try the wheel in an empty environment
	$(BIN)/python -m tools.wheel

audit: $(VENV)/.installed  ## Look for unsafe code and for packages with known vulnerabilities
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src
	$(BIN)/python .ci/audit.py

lint: $(VENV)/.installed  ## Check style, types and the order of the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed  ## Format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.installed  ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

screenshots: $(VENV)/.installed  ## Take pictures of three pages for the documentation; needs Chromium
	$(BIN)/python docs/screenshots.py

results: $(VENV)/.installed  ## Put the headline results into the README
	$(BIN)/python docs/tools/readme.py
	$(BIN)/python docs/tools/soak.py

clean:  ## Remove what the other targets made
	rm -rf $(VENV) runs site dist
