# Every target sets up what it needs; the environment lives in .venv of this checkout.
PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0  # a CPU build where the machine offers one, so its hash cannot be stated
EXTRAS := tune report export serve sql docs test lint  # all but scale, whose packages are large

unexport PYTHONDONTWRITEBYTECODE  # packages are installed uncompiled: keep what is compiled when first imported

.PHONY: setup constraints demo test test-slow lint docs bench attack reproduce clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --no-compile --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

constraints:  # exact versions with hashes; needs uv, and WHEELS=folder with the CPU build of torch
	uv pip compile pyproject.toml .ci/constraints.in $(EXTRAS:%=--extra %) --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-emit-package torch --custom-compile-command 'make constraints' \
	  --find-links $(WHEELS) --output-file constraints.txt --quiet $(ARGS)

demo: setup
	$(BIN)/unexposed demo

test: setup  # two processes; ARGS=-k=name chooses
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal $(ARGS)

test-slow: setup  # what needs a server, a browser, a GPU, a small file system or much time
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: setup  # every page, and a reference made from the code, as a site in build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup  # needs idle cores; the card's part says so where there is none; ARGS=--recbole-python=…
	$(BIN)/python benchmarks/engine_cpu.py $(ARGS)
	$(BIN)/python benchmarks/epoch_share.py
	$(BIN)/python benchmarks/engine_cuda.py

attack: setup  # an hour of hostile logs and folders, kills and full disks; ARGS=--minutes=5
	$(BIN)/python benchmarks/attack.py $(ARGS)

reproduce: setup  # runs what is not finished yet; ARGS=--fresh runs everything again
	$(BIN)/python experiments/lib run experiments/*/*.toml $(ARGS)
	test -e experiments/variance/results/variance.json || $(BIN)/python experiments/lib/variance.py
	$(BIN)/python experiments/lib/pages.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
