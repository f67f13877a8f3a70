# The steps themselves are in scripts/test.
.DEFAULT_GOAL := help
.PHONY: help test quick demo fmt lint doc book e2e bench load fuzz mutants nights

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## everything, on DynamoDB Local too (needs Java 17 and npm)
	@scripts/test full

quick: ## the same without DynamoDB Local and the end-to-end tests (needs neither Java nor npm)
	@scripts/test quick

demo: ## a real duplicate through the real layers, with nothing to install
	cargo run --example quickstart

fmt: ## format
	cargo fmt --all

lint: ## clippy, as strict as in `make test`
	cargo clippy --workspace --all-targets --all-features -- -D warnings

doc: ## the documentation, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

book: ## the book of docs/, in target/book/html
	@scripts/book build

SEEDS ?= 1000000
FROM ?= 0
nights: ## simulated nights: SEEDS=10000000 of them, the first of them FROM=0; may be stopped at any time
	cargo run --profile checked --locked -p protocol-simulation -- --seeds $(SEEDS) --from $(FROM)

bench: ## beside its peers, instruction counts, cold start; writes benches/RESULTS.md (needs Java 17, Node with npm, valgrind)
	@scripts/bench

load: ## ten minutes of requests, some of them sent twice, on a server and a function; writes benches/LOAD.md
	@scripts/bench load

fuzz: ## libFuzzer on the properties of hostile input, ten minutes for each (needs a C++ compiler)
	scripts/fuzz run 600

e2e: ## the functions as processes, then the template deployed and driven through its endpoint and queues (as `make test`)
	scripts/dynamodb-local run scripts/schemathesis run scripts/cargo-lambda run scripts/version-before run cargo test --test suite --test chaos -- end_to_end chaos
	scripts/deployment lint
	scripts/dynamodb-local run scripts/deployment test

mutants: ## changes the library on purpose, 250 times at random, and looks whether a test notices
	scripts/mutants run
