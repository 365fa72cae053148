# `make help` lists the targets; benchmarks and slow checks are listed by `scripts/run` and scripts/README.md.
.DEFAULT_GOAL := help
CARGO ?= cargo
BIN := target/release
# What tests, lints and checks build: less optimised, since most of it is the tests' own code. What is measured is built as `release`.
# The programs that tests run have the tests' clock too: without it, everything above tokio would be built twice.
TESTS_FEATURES := --features tierlab-server/stopped-clock
TESTS := --profile tests $(TESTS_FEATURES)
TESTS_BIN := target/tests

# cargo-nextest runs the tests where it is installed; cargo's own runner does the same job otherwise.
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)
# Most of a test is waiting, for a window to end or a server to start: three times as many as there are cores keep the cores busy.
ifeq ($(NEXTEST),yes)
RUN_TESTS := $(CARGO) nextest run --cargo-profile tests $(TESTS_FEATURES) --workspace --no-fail-fast --test-threads $$((3 * $$(nproc)))
else
RUN_TESTS := $(CARGO) test $(TESTS) --workspace --no-fail-fast --lib --bins --tests
endif

.PHONY: help lab lab-full test check setup build lint doc unit package check-package fuzz selfcheck deny

help: ## list the targets
	@awk -F' ## ' '/^[a-z-]+:.* ## / { name = $$1; sub(/:.*/, "", name); printf "%-15s%s\n", name, $$2 }' $(MAKEFILE_LIST)
	@echo "Benchmarks and slow checks: scripts/run lists them."

# What `make lab` runs, without the tiers and the spans that its plan does not use: 25 crates fewer. Where everything has been
# built before, that is used: the two would build the same members again and again.
LAB_PROGRAMS := -p tierlab-server -p tierlab-loadgen -p tierlab-models -p tierlab-origins
lab: ## one question to ten variants, ten minutes of measuring: an answer and results/<run>/report.html
	@if test -x $(BIN)/tierlab-storage-bench; then $(MAKE) build; else \
		scripts/setup onnxruntime && $(CARGO) build --release --no-default-features $(LAB_PROGRAMS) --bins --locked; fi
	$(BIN)/tierlab-loadgen lab configs/labs/quick.toml

lab-full: build ## the same question with an hour, a larger table and model
	$(BIN)/tierlab-loadgen lab configs/labs/full.toml

test: ## everything that must pass: lints, docs, every test, manifests, dashboards, pages, commands of the documentation
	@# Downloads beside compiling.
	@$(MAKE) --no-print-directory -j 2 setup lint
	@$(MAKE) --no-print-directory doc unit
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; else \
	    echo "Skipped: make deny, without cargo-deny (cargo install --locked cargo-deny)"; fi
	scripts/run check-tools

check: ## the quick tier: formatting, words, clippy, and unit tests of the crates changed since main
	$(CARGO) fmt --all --check
	scripts/check-words
	$(CARGO) clippy $(TESTS) --workspace --all-targets --locked -- -D warnings
	scripts/check-changed

setup: ## fetch ONNX Runtime and the tests' tools into .runtime/
	scripts/setup test

build: ## the release binaries, and ONNX Runtime to run them with
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --exclude tierlab-dev --bins --locked

lint: ## structure, words, formatting and clippy
	python3 -m unittest discover -q -s scripts/tests
	scripts/check-structure
	scripts/check-words
	$(CARGO) fmt --all --check
	$(CARGO) tree --manifest-path fuzz/Cargo.toml --locked --depth 0 >/dev/null
	$(CARGO) clippy $(TESTS) --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy $(TESTS) --no-default-features $(LAB_PROGRAMS) --locked -- -D warnings

doc: ## the crates' documentation without warnings, and docs/reference/ held against the code
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(TESTS) --workspace --no-deps --locked
	$(CARGO) build $(TESTS) --workspace --bins --locked
	scripts/reference --check --bin $(TESTS_BIN)

unit: ## the tests alone (they run real processes, so the binaries come first)
	$(CARGO) build $(TESTS) --workspace --bins --locked
	$(RUN_TESTS) --locked
	@echo "Skipped as ignored: the processes that tests in their own file start, kill or run without rights; those tests ran above."

package: ## tarball, Debian package, wheel, list of parts and checksums in target/package, of programs that say their commit
	scripts/setup onnxruntime
	TIERLAB_BUILD_COMMIT="$$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain)" || echo -dirty)" $(CARGO) build --release --workspace --exclude tierlab-dev --bins --locked
	scripts/package --bin $(BIN)
	scripts/check-package

check-package: package ## each package installed as a user who is not root, up to a first valid point
	scripts/check-package --install

fuzz: ## every decoder of bytes from outside, FUZZ_SECONDS (60) each, on stable Rust
	scripts/fuzz

selfcheck: build ## prove the load generator: stall injection, pacing, histogram precision
	$(BIN)/tierlab-loadgen selfcheck

deny: ## licences, duplicate and banned crates, sources; not advisories (needs: cargo install --locked cargo-deny)
	$(CARGO) deny --locked check bans licenses sources
	$(CARGO) deny --locked --manifest-path fuzz/Cargo.toml --all-features --config deny.toml check bans licenses sources
