# Two commands, each enough by itself on a fresh machine with Python 3.12 or newer:
#   make train   set up, train a first bot on this machine (about 10 minutes on 2 cores, 6 of them training), score it
#   make test    set up, run the test suite
# On a machine with an NVIDIA GPU, make gpu-check tests and times what only a GPU can show (under five minutes).
# A second call installs nothing.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?= configs/first_bot.yaml
RUN_NAME = $(basename $(notdir $(CONFIG)))

.PHONY: train test test-all lint gpu-check setup clean

train: setup
	$(BIN)/royale-lightning fit --config $(CONFIG)
	$(BIN)/royale-lightning test --ckpt_path "$$(ls -dt runs/$(RUN_NAME)-*/ | head -n 1)checkpoints/last.ckpt"

test: setup
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check royale_lightning tests
	$(BIN)/mypy

gpu-check: setup
	$(BIN)/python -m royale_lightning.tools.gpu_check

setup: $(STAMP)

$(STAMP): pyproject.toml
	@python=""; \
	for p in $(PYTHON) python3 python3.13 python3.12 python; do \
	  if $$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then python=$$p; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Royale Lightning needs Python 3.12 or newer; $$(python3 --version 2>&1) is the newest found here (set PYTHON=/path/to/python3.12)" >&2; exit 1; \
	fi; \
	[ -x $(BIN)/python ] || $$python -m venv $(VENV)
	@# uv unpacks several packages at once, a quarter of pip's time; where it cannot be had, pip does.
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv >/dev/null 2>&1; then \
	  $(BIN)/python -m uv pip install --quiet --python $(BIN)/python -e ".[dev]"; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"; fi
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
