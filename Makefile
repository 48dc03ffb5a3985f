# The entry points of kvindex's development. `make` lists them.
#
# Variables: ONCE=1 (demo: end after one round), FUZZTIME=10s (per fuzz target), SCALE=1 (bench: millions of blocks),
# BENCH=regexp (microbench: which benchmarks), FAULT=3,7 SEED=n FORMAT=json (faults: which, as in which run, printed
# how), SECONDS=60 (soak), RATE=100000 (bench-replicas: block events a second).

.DEFAULT_GOAL := help
.NOTPARALLEL:

# An older Go fetches the toolchain that go.mod names, whatever the environment says about it.
export GOTOOLCHAIN := auto

FUZZTIME ?= 10s
SCALE    ?= 1
BENCH    ?= .
FAULT    ?= all
SECONDS  ?= 60
RATE     ?= 100000

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Build tags: gin's msgpack binding is not used and takes a gigabyte to compile with the race detector; without the
# library that `make setup` builds, local Hugging Face tokenizers are left out.
HFLIB = build/lib/libtokenizers.a
TAGS  = nomsgpack$(if $(shell test -s $(HFLIB) && echo there),,$(comma)nohf)
comma := ,
# The version comes from the linker flag below, so that a tree without git builds too. Tests that build the binary
# inherit all this.
export GOFLAGS = -buildvcs=false -tags=$(TAGS)

# The packages whose tests run with the race detector: those with state that goroutines share.
CONCURRENT = /kvindex/((indexer|events|api)(/|$$)|tokenizer$$|tokenizer/(remote|hub)$$)

LINTER = build/bin/golangci-lint

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## install what the build and the tests need; quick when it is all there
	@scripts/setup.sh

.PHONY: build
build: ## compile build/kvindex
	@test -s $(HFLIB) || echo 'build: no $(HFLIB): leaving out local Hugging Face tokenizers; make setup builds it'
	go build -ldflags '-X main.version=$(VERSION)' -o build/kvindex ./cmd/kvindex

.PHONY: demo
demo: setup build ## show kvindex at work on this machine; ONCE=1 ends after one round
	build/kvindex demo

.PHONY: check
check: ## formatting, go vet, golangci-lint, the import rule
	@files=$$("$$(go env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "check: gofmt would change:"; echo "$$files"; exit 1; fi
	go vet ./...
	@if [ -x $(LINTER) ]; then echo '$(LINTER) run'; $(LINTER) run ./...; \
	else echo 'check: no $(LINTER): going on without it; make setup installs it'; fi
	go test -run 'ImportRule|EmbeddablePackages' ./cmd/kvindex

# What a change must pass. Each phase is a target of its own, to be run alone while working on what it found.
PHASES = setup check unit nohf race e2e

.PHONY: test
test: ## everything a change must pass, about 10 minutes: setup, check, unit, nohf, race, e2e
	@times=; \
	for phase in $(PHASES); do \
		printf '\n== %s\n' "$$phase"; \
		start=$$(date +%s); \
		$(MAKE) --no-print-directory $$phase || { printf '\n== %s FAILED after %s s\n' "$$phase" "$$(($$(date +%s) - start))"; exit 1; }; \
		times="$$times, $$phase $$(($$(date +%s) - start)) s"; \
	done; \
	printf '\n== all passed: %s\n' "$${times#, }"

# The race detector changes what allocates, so tests of allocations (those with Alloc in their names) run without it,
# also in the packages whose other tests run with it.
.PHONY: unit
unit: ## tests of the packages that race leaves out, and the allocation tests of all
	@pkgs=$$(go list ./...) || exit 1; \
	go test -timeout 15m -skip E2E $$(echo "$$pkgs" | grep -v -E '$(CONCURRENT)') || exit 1; \
	dirs=$$(grep -r -s -l -E --include='*_test.go' '^func Test[A-Za-z0-9_]*Alloc' indexer events api | sed 's|/[^/]*$$||; s|^|./|' | sort -u); \
	if [ -n "$$dirs" ]; then go test -timeout 15m -run Alloc $$dirs; fi

.PHONY: nohf
nohf: ## build and test without the tokenizer library (no Rust on the machine)
	go build -tags nomsgpack,nohf -o build/kvindex-nohf ./cmd/kvindex
	go test -tags nomsgpack,nohf ./tokenizer/hf ./tokenizer/bpe ./tokenizer

.PHONY: race
race: ## tests of what goroutines share, with the race detector
	@pkgs=$$(go list ./...) || exit 1; \
	go test -race -timeout 20m $$(echo "$$pkgs" | grep -E '$(CONCURRENT)') || exit 1; \
	go test -race -timeout 20m -run CacheShared ./cmd/kvindex

.PHONY: e2e
e2e: ## tests of the whole binary with engines, routers, Redis and NATS on this machine
	go test -count=1 -timeout 15m -run E2E ./cmd/kvindex

# In the package's directory, go test prints what the test prints as it comes.
.PHONY: faults
faults: ## all faults that must be survived, about 3 minutes; FAULT=3,7 SEED=n does some again, FORMAT=json
	cd cmd/kvindex && KVINDEX_FAULTS=$(FAULT) KVINDEX_SEED=$(SEED) KVINDEX_FAULTS_FORMAT=$(FORMAT) \
		go test -count=1 -timeout 30m -run '^TestE2EFaults$$'

.PHONY: soak
soak: ## random faults, and kvindex killed at random moments, for SECONDS=60; SEED=n
	cd cmd/kvindex && KVINDEX_SOAK=$(SECONDS) KVINDEX_SEED=$(SEED) \
		go test -count=1 -timeout $$(($(SECONDS) + 600))s -run '^TestE2ESoak$$'

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME=10s
	@targets=$$(go test -list '^Fuzz' ./...) || { echo "$$targets"; exit 1; }; \
	echo "$$targets" | awk '/^Fuzz/ { name[n++] = $$1 } $$1 == "ok" { for (i = 0; i < n; i++) print $$2, name[i]; n = 0 }' | \
	while read -r pkg name; do \
		echo "== $$name ($$pkg)"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null || exit 1; \
	done

.PHONY: bench
bench: ## the index beside other designs, with targets, about 5 minutes; SCALE=10 for 10 million blocks
	go run ./scripts/bench-index -scale $(SCALE)

.PHONY: microbench
microbench: ## benchmarks of the packages; BENCH=regexp chooses
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: bench-tokenizer
bench-tokenizer: setup ## cold speed, later turns of chats, and the path that kvindex replaces; about 3 minutes
	go run ./scripts/bench-tokenizer

.PHONY: bench-http
bench-http: setup build ## queries a second and latencies over HTTP, with and without ingest; about 2 minutes
	@scripts/test-tokenizers.sh
	go run ./scripts/bench-http --kvindex build/kvindex

.PHONY: bench-recovery
bench-recovery: ## snapshots and restarts, with targets, about 4 minutes; SCALE=10 for 10 million blocks
	go run ./scripts/bench-recovery -scale $(SCALE)

.PHONY: bench-replicas
bench-replicas: setup build ## two replicas over NATS, one killed under load, with targets, about 2 minutes; RATE=20000
	go run ./scripts/bench-replicas --kvindex build/kvindex --rate $(RATE)

.PHONY: clean
clean: ## remove build/; the cached library and linter stay
	rm -rf build
