.DEFAULT_GOAL := help
.PHONY: help demo test verify doc book nights bench load fuzz mutants

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## real duplicates through the real layers, with nothing to install
	cargo run --example quickstart

test: ## what must hold before a change is merged; what CI runs (12 minutes on two cores)
	@scripts/test test

verify: ## everything else, before a release (an hour)
	@scripts/test verify

doc: ## the documentation, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features

book: ## the book of docs/, in target/book/html
	@scripts/book build

SEEDS ?= 1000000
FROM ?= 0
nights: ## simulated nights: SEEDS=10000000 of them, the first of them FROM=0; may be stopped at any time
	cargo run --profile checked --locked -p protocol-simulation -- --seeds $(SEEDS) --from $(FROM)

bench: ## beside its peers, instruction counts, cold start; writes benches/RESULTS.md
	@benches/run

load: ## ten minutes of requests, some of them sent twice, on a server and a function; writes benches/LOAD.md
	@benches/run load

fuzz: ## libFuzzer on the properties of hostile input, ten minutes for each
	@scripts/fuzz run 600

mutants: ## changes the library on purpose, at random, and looks whether a test notices
	@tests/mutants/run run
