# What a developer does, and what CI does: the same commands. `make` alone lists them.
SHELL := bash
.NOTPARALLEL:
.DEFAULT_GOAL := help
CARGO ?= cargo
WITH_BROKERS := tests/lab/with-brokers.sh
# Compiled Python beside the tests would be files left behind.
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20
	@echo '  make run UPSTREAM=amqp://user:pass@host:5672   the same in front of your own broker'
	@echo '  LISTEN=, ADMIN= (host:port) and PROFILE=release go with run and demo.'

# === use it

.PHONY: run demo
run: ## a private RabbitMQ, the proxy in front of it, messages that fail, and the page to look at them; until Ctrl-C
	@deploy/run.sh run
demo: ## the same, and exit: 0 if no message was lost
	@deploy/run.sh demo

.PHONY: deb release release-check
deb: ## the Debian package, in target/debian
	$(CARGO) build --profile dist --locked
	deploy/debian/build.sh $(or $(CARGO_TARGET_DIR),target)/dist/dlx-proxy target/debian

# With little left to others: it takes a processor for a quarter of an hour.
release: setup ## what is published, in dist/, tested: static programs, Debian packages, image, chart, bill of materials, checksums; TARGETS= fewer
	nice -n 15 deploy/release/build.sh dist
	$(WITH_BROKERS) python -m pytest tests/release
release-check: ## build it again in another folder: are dist/ and that the same bytes?
	nice -n 15 deploy/release/check.sh dist

# === test it

.PHONY: check test soak setup fmt fmt-check lint doc quick unit fuzz simulate broker differential generated faults faults-once cluster cluster-once clients languages coverage bench bench-fleet bench-once pairs deploy-check container-test kubernetes-test monitoring-test audit screenshots readability
check: fmt lint quick ## the inner loop, in two minutes: format, lints, all tests that need no broker
test: ## everything that CI checks
	@tests/lab/test.sh
soak: MINUTES ?= 60
soak: LONG = FIRST_SEED=$$(date +%s)000 SEEDS=1000000 SECONDS=$$(($(MINUTES) * 60))
soak: ## look for what is rare, with new seeds: fuzzing (needs cargo-fuzz), simulation, generated scripts, faults, a cluster, MINUTES=N each
	@tests/lab/test.sh "fuzz SECONDS=$$(($(MINUTES) * 60 / $(words $(wildcard fuzz/targets/*))))" \
	  "simulate $(LONG)" "generated $(LONG)" "faults ROUNDS=100000 SECONDS=$$(($(MINUTES) * 60))" "cluster ROUNDS=$$(($(MINUTES) * 5))"
setup: ## fetch what the tests need (RabbitMQ 3.10, 4.0 and the newest of Debian, haproxy, Prometheus, Helm, client libraries of five languages) into .lab/
	@tests/lab/setup.sh
fmt: ## format the code
	$(CARGO) fmt --all
fmt-check:
	$(CARGO) fmt --all --check
lint: ## clippy, no warning allowed
	$(CARGO) clippy --workspace --all-targets -- -D warnings
doc: ## the documentation, with private items, no warning allowed
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items
quick:
	$(CARGO) test --workspace --no-fail-fast --lib --bins --test offline --test corpus
unit: quick ## tests that need no broker
	$(CARGO) test --workspace --no-fail-fast --doc
	$(CARGO) test --test differential -- instrument
fuzz: ## look for inputs that break a promise: SECONDS=60 each, TARGET="stream ..." or all; needs cargo-fuzz
	fuzz/run.sh $(or $(SECONDS),60) $(TARGET)
simulate: SEEDS ?= 2000
simulate: FIRST_SEED ?= 1
simulate: SECONDS ?= 7200
# Optimized code takes a fifteenth of the time, and five minutes to compile: worth it from some hundreds of seeds on.
simulate: PROFILE ?= simulate
simulate: ## the proxy's machines against a model of the broker, everything drawn from seeds: SEEDS=N, from FIRST_SEED on, SECONDS=N at most; PROFILE=test for a few
	DLX_TEST_SEEDS=$(SEEDS) DLX_TEST_FIRST_SEED=$(FIRST_SEED) DLX_TEST_SECONDS=$(SECONDS) $(CARGO) test --profile $(PROFILE) --test simulation
broker: setup ## what needs a real broker, and frames as they are told or speed
	$(CARGO) test --no-run --test broker
	$(WITH_BROKERS) tests/lab/each-broker.sh $(CARGO) test --no-fail-fast --test broker
differential: setup ## the same scripts with and without the proxy: do clients see the same? SEEDS=N adds N random ones per broker
	$(WITH_BROKERS) --middle --plugins rabbitmq_management env DLX_TEST_SEEDS=$(SEEDS) $(CARGO) test --test differential
generated: SEEDS ?= 600
generated: SECONDS ?= 400
generated: FIRST_SEED ?= 1
# The model keeps no time: a message that expires in a few milliseconds may overtake another there (SKIP= runs it too).
generated: SKIP ?= --skip generated::model
generated: setup ## random scripts only, on the oldest and the newest broker: SEEDS=N per broker, from FIRST_SEED on, SECONDS=N at most
	$(WITH_BROKERS) --plugins rabbitmq_management env DLX_TEST_SEEDS=$(SEEDS) DLX_TEST_FIRST_SEED=$(FIRST_SEED) DLX_TEST_SECONDS=$(SECONDS) \
	  $(CARGO) test --test differential -- --nocapture generated:: $(SKIP)
faults: setup ## break proxy, broker, network, … under load, and count: ROUNDS=N, FAULT=NAME,…, SEED=N, BROKER=4.3.6, FLOODS=per cent, SECONDS=N at most
	LIMIT=$(SECONDS) tests/lab/faults.sh
faults-once: setup ## each fault once, on one of two brokers, with short pauses
	SHORT=1 SEED=1 tests/lab/faults.sh
cluster: setup ## three nodes in a cluster, two versions: nodes and proxies end under load; BROKER=4.3.6, ROUNDS=N of random faults, too
	$(CARGO) build
	BROKER=$(BROKER) ROUNDS=$(ROUNDS) tests/lab/clusters.sh -rP
cluster-once: setup ## the same, but each test on one of the versions, in turn, unless the version matters to it
	$(CARGO) build
	tests/lab/clusters.sh -rP --once
clients: setup ## tests with pika: dead letters in every shape, faults, bad input
	$(CARGO) build
	$(WITH_BROKERS) --middle --plugins rabbitmq_management tests/lab/clients.sh
# One of two parts of them, as in `make test`: what hardly depends on the version runs on one broker.
clients-%: setup
	$(CARGO) build
	$(WITH_BROKERS) --middle --plugins rabbitmq_management env PART=$* tests/lab/clients.sh --once
languages: setup ## one script by client libraries of five languages, direct and through the proxy; AMQP 1.0
	$(CARGO) build --bins --example with_lapin
	$(WITH_BROKERS) --middle python -m pytest -p no:cacheprovider tests/languages
coverage: setup ## which lines of the sessions and the dead-letter rules no test runs; fails below 90 %
	tests/lab/coverage.sh
bench: setup ## what the proxy costs, beside direct use, haproxy and a bare relay, on the oldest and the newest broker: 20 minutes; UPDATE=1 writes docs/performance.md
	DLX_TEST_SCHEDULERS=$$(nproc) BENCH_PAGE=$(if $(UPDATE),$(CURDIR)/docs/performance.md) $(WITH_BROKERS) $(CARGO) bench --bench load
bench-fleet: setup ## up to 200 proxies in front of one broker with its management API: the figures of docs/sizing.md; and a queue that is altered in use
	BENCH_BROKER=newest $(WITH_BROKERS) --plugins rabbitmq_management $(CARGO) bench --bench load
pairs: setup ## the proxy of another revision beside this one, in turns: OLD=REV, ROUNDS=10, SCENES="throughput nack"
	OLD=$(OLD) ROUNDS=$(ROUNDS) SCENES="$(SCENES)" tests/lab/pairs.sh
bench-once: setup ## every scene once, small and unoptimised, so that none rots; no figure is judged
	BENCH_SMALL=1 BENCH_BROKER=newest $(WITH_BROKERS) --plugins rabbitmq_management $(CARGO) bench --profile dev --bench '*'
kubernetes-test: setup ## chart and manifests, rendered and validated; their Pods run by hand, where namespaces can be made. UPDATE=1 writes deploy/kubernetes
	$(CARGO) build
	$(WITH_BROKERS) python -m pytest tests/kubernetes
monitoring-test: setup ## alert rules and dashboard with a real Prometheus: each fault is made, each panel has data
	$(CARGO) build
	$(WITH_BROKERS) --plugins rabbitmq_management python -m pytest tests/monitoring
deploy-check: setup ## container and systemd files, alert rules: do they parse, does the proxy know their settings, do the rules fire?
	$(CARGO) build
	tests/lab/check-deploy.sh
container-test: PROFILE ?= dist
container-test: setup ## image, Compose file and Debian package run in a Docker engine of their own; skipped without root. T="-k kill" chooses; PROFILE=quick compiles faster
	PROFILE=$(PROFILE) tests/lab/container-test.sh $(T)
readability: setup ## is what users read first easy to read? By textstat
	.lab/venv/bin/python tests/lab/readability.py
screenshots: setup ## the pictures of README.md, from a real run
	$(CARGO) build
	$(WITH_BROKERS) --plugins rabbitmq_management python tests/lab/screenshots.py
audit: ## known flaws of the dependencies, by cargo-audit if it is installed; its database is on github.com
	@if command -v cargo-audit; then $(CARGO) audit && $(CARGO) audit --file fuzz/Cargo.lock; else echo 'skipped: cargo install cargo-audit'; fi

.PHONY: clean
clean: ## remove all that was built, downloaded or unpacked here
	$(CARGO) clean
	rm -rf .lab
