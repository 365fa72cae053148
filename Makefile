# Each target is a line or two over cargo or one of the binaries. `make help` lists them.
.DEFAULT_GOAL := help
CARGO ?= cargo
BIN := target/release
# What tests, lints and checks build: less optimised, since most of it is the tests' own code. What is measured is built as `release`.
# The programs that tests run have the tests' clock too: without it, everything above tokio would be built twice.
TESTS_FEATURES := --features tierlab-server/stopped-clock
TESTS := --profile tests $(TESTS_FEATURES)
TESTS_BIN := target/tests
# Benchmarks build in the whole workspace too: alone, a member has other features, and half of the dependencies would be
# compiled again.
BENCH_OUT ?= results/bench-storage

# cargo-nextest runs the tests where it is installed; cargo's own runner does the same job otherwise.
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)
# Most of a test is waiting, for a window to end or a server to start: twice as many as there are cores keep the cores busy.
ifeq ($(NEXTEST),yes)
RUN_TESTS := $(CARGO) nextest run --cargo-profile tests $(TESTS_FEATURES) --workspace --no-fail-fast --test-threads $$((2 * $$(nproc)))
else
RUN_TESTS := $(CARGO) test $(TESTS) --workspace --no-fail-fast --lib --bins --tests
endif

.PHONY: check-docs check-page help lab lab-programs dist lab-full test setup build lint doc unit check-dashboards bench-storage bench-storage-nfs bench-storage-s3 bench-storage-flight bench-calibrate bench-offline bench-server bench-overload bench-instances soak bench-loadgen bench-compare bench-disturbed bench-perf-analyzer check-peers fuzz selfcheck deny deny-where-installed advisories clean-data simulate-lab simulate-agents check-agents package check-package image check-deploy check-slurm check-spark

help: ## list the targets
	@sed -n 's/^\([A-Za-z0-9_.][A-Za-z0-9_.-]*\):\([^=].*\)\{0,1\}$$/\1:\2/p' $(MAKEFILE_LIST) | grep -v '^[.]' | awk -F: '{ what = $$0; if (!sub(/^.*## /, "", what)) what = ""; printf "%-22s%s\n", $$1, what }'

lab: lab-programs ## one question to nine variants, ten minutes of measuring: an answer and results/<run>/report.html
	$(BIN)/tierlab-loadgen lab configs/labs/quick.toml

lab-full: build ## the same question with an hour, a larger table and model
	$(BIN)/tierlab-loadgen lab configs/labs/full.toml

test: setup lint deny-where-installed doc unit check-deploy check-dashboards check-page check-docs ## structure, lints, docs, every test, the manifests, every query of the dashboards, the server's page and every command of the documentation

setup: ## fetch ONNX Runtime and the tests' tools into .runtime/
	scripts/setup test

build: ## the release binaries, and ONNX Runtime to run them with
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bins --locked

# What `make lab` runs, without the tiers and the spans that its plan does not use: 25 crates fewer. Where everything has been
# built before, that is used: the two would build the same members again and again.
LAB_PROGRAMS := -p tierlab-server -p tierlab-loadgen -p tierlab-models -p tierlab-origins
lab-programs: ## the programs that `make lab` needs, and no more
	@if test -x $(BIN)/tierlab-storage-bench; then $(MAKE) build; else \
		scripts/setup onnxruntime && $(CARGO) build --release --no-default-features $(LAB_PROGRAMS) --bins --locked; fi

dist: build ## the programs without debug information, which lies beside each of them, in target/dist
	rm -rf target/dist && mkdir -p target/dist
	for program in server loadgen models origin storage-bench; do \
		objcopy --only-keep-debug $(BIN)/tierlab-$$program target/dist/tierlab-$$program.debug && \
		objcopy --strip-debug --strip-unneeded $(BIN)/tierlab-$$program target/dist/tierlab-$$program && \
		(cd target/dist && objcopy --add-gnu-debuglink=tierlab-$$program.debug tierlab-$$program) || exit 1; done
	ls -lh target/dist

package: ## tarball, Debian package, wheel, list of parts and checksums in target/package, of programs that say their commit
	scripts/setup onnxruntime
	TIERLAB_BUILD_COMMIT="$$(git rev-parse HEAD)$$(test -z "$$(git status --porcelain)" || echo -dirty)" $(CARGO) build --release --workspace --bins --locked
	scripts/package --bin $(BIN)
	scripts/check-package

check-package: ## the wheel into an empty virtual environment, to a first valid point, timed
	scripts/check-package --install

image: ## a container image of Debian's packages and our own, started, probed and stopped (as root; mmdebstrap, buildah)
	scripts/image

check-deploy: ## the manifests of deploy/ against the schemas of their kinds
	scripts/setup deploy
	scripts/check-deploy

check-slurm: ## a real Slurm of three nodes on this host runs a sweep by agents (as root; Debian's slurmctld, slurmd, munge)
	$(CARGO) build --release --workspace --bins --locked
	scripts/check-slurm --bin $(BIN)

check-spark: ## a real Spark job makes a feature table's rows, two processes import them, a server looks them up
	scripts/setup onnxruntime python spark
	$(CARGO) build --release --workspace --bins --locked
	scripts/check-spark --bin $(BIN)

lint: ## structure, formatting and clippy
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

check-dashboards: ## every query of dashboards, rules and alerts on a real Prometheus; promtool's unit tests of them
	scripts/setup onnxruntime prometheus
	$(CARGO) build $(TESTS) --workspace --bins --locked
	scripts/check-dashboards --bin $(TESTS_BIN)

check-page: ## the server's own page and a report in a real Chromium: figures, tokens, screens, keyboard; a minute
	scripts/setup onnxruntime chromium
	$(CARGO) build $(TESTS) --workspace --bins --locked
	scripts/check-page --bin $(TESTS_BIN)

check-docs: ## every command of README and docs, run against embedded storage with short plans; two minutes
	scripts/setup onnxruntime python prometheus
	$(CARGO) build $(TESTS) --workspace --bins --locked
	scripts/check-docs --bin $(TESTS_BIN)

bench-storage: ## each tier beside the peer a storage engineer would trust; results go to BENCH_OUT
	scripts/setup fio
	$(CARGO) build --release --workspace --bin tierlab-storage-bench --locked
	scripts/bench/storage --out $(BENCH_OUT)
	test ! -x scripts/bench/nfs || $(MAKE) bench-storage-nfs BENCH_OUT=$(BENCH_OUT)
	test ! -x scripts/bench/s3 || $(MAKE) bench-storage-s3 BENCH_OUT=$(BENCH_OUT)
	test ! -x scripts/bench/flight || $(MAKE) bench-storage-flight BENCH_OUT=$(BENCH_OUT)

bench-storage-nfs: ## the NFS tier beside libnfs on nfs-ganesha; results go to BENCH_OUT
	$(CARGO) build --release --workspace --bin tierlab-storage-bench --locked
	scripts/bench/nfs $(BENCH_OUT)

bench-storage-s3: ## the S3 tier beside object_store's get and the AWS CRT; results go to BENCH_OUT
	scripts/setup awscrt
	$(CARGO) build --release --workspace --bin tierlab-origin --example s3_reader --locked
	scripts/bench/s3 $(BENCH_OUT)

bench-storage-flight: ## the Flight tier beside pyarrow's client; results go to BENCH_OUT
	scripts/setup python
	$(CARGO) build --release --workspace --bins --locked
	scripts/bench/flight $(BENCH_OUT)

bench-calibrate: ## how close replays of recorded tiers come to them, 40 minutes; results go to BENCH_OUT
	$(CARGO) build --release --workspace --bin tierlab-storage-bench --locked
	scripts/bench/calibrate --out $(BENCH_OUT)

bench-offline: ## the offline mode beside PyTorch's DataLoader with webdataset, on the same shards; results go to BENCH_OUT
	scripts/setup onnxruntime dataloader
	$(CARGO) build --release --workspace --bin tierlab-storage-bench --bin tierlab-models --locked
	scripts/bench/offline --out $(BENCH_OUT)

bench-server: ## the server's overhead beside other servers, requests per CPU second; results go to results/server-<date>
	scripts/setup onnxruntime wrk peers triton
	$(CARGO) build --release --workspace --bin tierlab-models --bin tierlab-server --example peers --example open_loop --locked
	scripts/bench/server

bench-overload: ## three times the saturated rate for a minute, then what dynamic batching brings; results go to BENCH_OUT
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bin tierlab-models --bin tierlab-server --example open_loop --locked
	scripts/bench/overload $(BENCH_OUT)
	scripts/bench/overload $(BENCH_OUT) --batching

bench-instances: ## sessions and threads that fit the cores, beside the best in process; results go to results/instances-<date>
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bin tierlab-server --example layouts --locked
	scripts/bench/instances

soak: ## every known attack at once for two minutes while honest clients ask: right answers, memory within its bound, nobody locked out
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bins --example soak --locked
	target/release/examples/soak

bench-loadgen: ## the load generator and seven others against a server whose latencies are known; results go to results/loadgen-<date>
	scripts/setup load-peers
	$(CARGO) build --release --workspace --bin tierlab-loadgen --example scripted --locked
	scripts/bench/loadgen

bench-compare: ## how often `compare` finds +10 % in live runs, and calls nothing worse; results go to BENCH_OUT
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bins --locked
	scripts/bench/compare --out $(BENCH_OUT)

bench-disturbed: ## ten labs whose answer is known by construction, beside a process that takes a core now and then; results go to BENCH_OUT
	scripts/setup onnxruntime
	$(CARGO) build --release --workspace --bins --locked
	scripts/bench/disturbed-labs --out $(BENCH_OUT)

bench-perf-analyzer: ## our sweep beside perf_analyzer on the same Triton, rate and inputs; results go to BENCH_OUT
	scripts/setup onnxruntime triton perf_analyzer
	$(CARGO) build --release --workspace --bins --locked
	scripts/bench/perf-analyzer --out $(BENCH_OUT)

check-peers: ## sweeps Triton, MLServer, KServe, FastAPI, and this server behind nginx, as their users run them
	scripts/setup onnxruntime triton mlserver kserve peers nginx
	$(CARGO) build --release --workspace --bins --locked
	scripts/check-peers --bin $(BIN)

simulate-lab: ## how often a lab's answer is right, by simulation; the table goes to results/decisions
	$(CARGO) build --release --workspace --bin tierlab-loadgen --locked
	$(BIN)/tierlab-loadgen simulate-lab --out results/decisions

simulate-agents: ## a step by up to ten thousand agents, by simulation; the table goes to results/agents
	$(CARGO) build --release --workspace --bin tierlab-loadgen --locked
	$(BIN)/tierlab-loadgen simulate-agents

check-agents: ## a sweep by four agents in network namespaces: delays, wrong clocks, one slow, one killed (root)
	$(CARGO) build $(TESTS) --workspace --bins --locked
	scripts/check-agents --bin $(TESTS_BIN)

fuzz: ## every decoder of bytes from outside, FUZZ_SECONDS (60) each, on stable Rust
	scripts/fuzz

selfcheck: build ## prove the load generator: stall injection, pacing, histogram precision
	$(BIN)/tierlab-loadgen selfcheck

deny: ## licences, duplicate and banned crates, sources; not advisories (needs: cargo install --locked cargo-deny)
	$(CARGO) deny --locked check bans licenses sources
	$(CARGO) deny --locked --manifest-path fuzz/Cargo.toml --all-features --config deny.toml check bans licenses sources

deny-where-installed: ## the same, where cargo-deny is installed
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(MAKE) --no-print-directory deny; else \
	    echo "Skipped: make deny, without cargo-deny (cargo install --locked cargo-deny)"; fi

advisories: ## known vulnerabilities and yanked crates; fetches RustSec's database from GitHub (needs cargo-deny too)
	$(CARGO) deny --locked check advisories

clean-data: ## remove generated models, tables and what was published from them
	rm -rf models/repository models/features data
