# make quickstart   set up and run the study params/quickstart.yaml; a second call continues or ends at once
# make test         set up and run the tests (without the slow ones; SLOW=1 runs those too)
# make test-browser run the notebooks in JupyterLab in headless Chromium, which has to be installed
# make docs         build the documentation into site/
# make test-engines set up .venv-engines (vLLM for the CPU, verl's trainer) and run the tests against them
# make lab          open JupyterLab on notebooks/
# make lint         ruff and pyright
# make clean        remove the environment and caches; outputs/ and data/ stay
#
# The environment is .venv in this folder; setup.sh makes it, once. PYTHON=/path/to/python3.11 chooses another one.

SHELL := /bin/sh
BIN := .venv/bin
READY := .venv/.ready

.PHONY: quickstart test test-browser test-engines docs lab lint clean
.DEFAULT_GOAL := quickstart

$(READY): setup.sh pyproject.toml constraints-cpu.txt
	@sh setup.sh
	@touch $@

quickstart: $(READY)
	@$(BIN)/rlkit study params/quickstart.yaml

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(if $(SLOW),--slow)

test-browser: $(READY)
	@$(BIN)/python -m pytest tests/browser -m browser

docs: $(READY)
	@$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

.venv-engines/.ready: $(READY) setup-engines.sh
	@sh setup-engines.sh
	@touch $@

test-engines: .venv-engines/.ready
	@.venv-engines/bin/python -m pytest -n 2 --dist loadfile --slow tests/test_engine_vllm.py tests/test_engine_verl.py

lab: $(READY)
	@$(BIN)/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/notebooks/train.ipynb \
		$$([ "$$(id -u)" = 0 ] && echo --allow-root) # a container's only user

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/pyright

clean:
	rm -rf .venv .venv-engines *.egg-info build dist .pytest_cache .ruff_cache
	find rlkit tests -name __pycache__ -type d -prune -exec rm -rf {} +
