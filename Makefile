# Sluicegate. `make help` lists the targets.
#
# Everything that takes more than one command lives in scripts/; every script
# finds its tools through scripts/env.sh.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Seconds that each fuzz target runs.
TIME ?= 60
# Where runs leave their results.
OUT ?= out

RUN := . scripts/env.sh;
TARGET := $(or $(CARGO_TARGET_DIR),target)
SLUICEGATE := $(TARGET)/release/sluicegate
# What `make kernel-test` boots.
KERNEL ?= 6.12
# What `make bare-root` runs, and what setup.sh has installed there before: demo, test or none.
CMD ?= make test
AFTER ?= none
# The delays with which `make agreement` simulates.
CALIBRATION ?= calibrations/two-cpu-vm-busy.toml

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort | \
		awk -F'\t' '{ printf "  %-14s %s\n", $$1, $$2 }'

.PHONY: setup
setup: ## install what is missing for everything below (apt, as root)
	@scripts/setup.sh test

.PHONY: build
build: ## build target/release/sluicegate
	@scripts/setup.sh build
	@$(RUN) cargo build --release --locked -p sluicegate

.PHONY: dist
dist: ## build target/dist/sluicegate with link-time optimisation and a profile, for installing (8 minutes)
	@scripts/setup.sh build
	@scripts/pgo.sh dist

.PHONY: deb
deb: ## build the Debian package out/deb/sluicegate_*.deb
	@scripts/setup.sh deb
	@scripts/pgo.sh dist
	@scripts/deb.sh target/dist/sluicegate "$(OUT)/deb"

.PHONY: demo
demo: ## simulate two scenarios, rehearse them on this kernel (root), compare
	@scripts/demo.sh "$(OUT)/demo"

.PHONY: test
test: ## everything that CI runs (root)
	@scripts/test.sh

.PHONY: check
check: ## build, unit tests and lint of what has changed since BASE (minutes; no root)
	@scripts/check.sh

.PHONY: bare-root
bare-root: ## run CMD (default: make test) in a Debian with make and git alone (root)
	@scripts/bare-root.sh "$(AFTER)" "$(CMD)"

.PHONY: kernel-test
kernel-test: ## the tests of kernel programs on Debian's Linux 6.12, emulated (KERNEL=6.1: that it is refused)
	@scripts/setup.sh test
	@scripts/kernel-test.sh "$(KERNEL)" $(TESTS)

.PHONY: experiments
experiments: ## every scenario and sweep in full (hours), simulated and (root) in the lab, compared
	@scripts/experiments.sh "$(OUT)/experiments"

.PHONY: seeds
seeds: ## every scenario in short form, simulated with SEEDS=5 seeds that it draws (5 minutes), FILES="PATHS" or all
	@$(RUN) cargo build --release --locked -p sluicegate
	@scripts/seeds.sh "$(OUT)/seeds" $(FILES)

.PHONY: parameters
parameters: ## half and double of each parameter, every scenario in short form; writes docs/parameters.md (30 minutes)
	@scripts/parameters.sh "$(OUT)/parameters"

.PHONY: published
published: ## published figures beside ours, seeds 1 to 3, to 6 where these do not decide; writes docs/verdicts.md (40 minutes, RESULTS="DIRS" of sweeps)
	@$(RUN) cargo build --release --locked -p sluicegate
	@scripts/published.sh "$(OUT)/published" $(RESULTS)
	@cp "$(OUT)/published/published.md" docs/verdicts.md

.PHONY: agreement
agreement: ## lab and simulator side by side, every scenario in short form; writes docs/agreement.md (root, half an hour)
	@scripts/agreement.sh "$(OUT)/agreement" "$(CALIBRATION)" $(FILES)

.PHONY: suites
suites: ## packetdrill suites of others below SG_SUITES=DIR, understood and passed (seconds; make test has it too)
	@scripts/suites.sh

.PHONY: bench
bench: bench-enforce bench-sim bench-switch ## all benchmarks

.PHONY: bench-sim
bench-sim: ## packet-hops per second of the simulator, one line per case
	@scripts/pgo.sh bench $(CASES)

.PHONY: bench-enforce
bench-enforce: ## cost of enforcement on an unshaped path (root)
	@bench/run.sh enforce "$(OUT)/bench-enforce"

.PHONY: bench-switch
bench-switch: ## the userspace switch beside others, ARMS="NAMES" or all; what hostile guests cost others (root)
	@bench/run.sh switch "$(OUT)/bench-switch" $(if $(ARMS),--arms "$(ARMS)")
	@bench/run.sh switch-hostile "$(OUT)/bench-switch-hostile"

.PHONY: bench-scale
bench-scale: ## many flows: what they cost, what they leave, a flood of SYNs (root)
	@bench/run.sh scale "$(OUT)/bench-scale"

.PHONY: bench-hostile
bench-hostile: ## what hostile tenants earn beside honest ones, ATTACKS="NAMES" or all (root)
	@bench/run.sh hostile "$(OUT)/bench-hostile" $(if $(ATTACKS),--attacks "$(ATTACKS)")

.PHONY: docs
docs: ## build the documentation site out/docs (search, diagrams)
	@scripts/setup.sh docs
	@scripts/docs.sh "$(OUT)/docs"

.PHONY: lint
lint: ## formatting, clippy, C warnings natively and for BPF, links and lines of the documents
	@scripts/setup.sh test
	@scripts/lint.sh

.PHONY: fuzz
fuzz: ## fuzz core, readers of files and the switch for TIME seconds per target
	@scripts/setup.sh test
	@fuzz/run.sh "$(TIME)"

.PHONY: lab-clean
lab-clean: build ## remove whatever a crashed run left (root)
	@$(SLUICEGATE) lab clean

.PHONY: clean
clean: ## remove everything that was built or measured here
	@$(RUN) cargo clean
	@rm -rf -- out fuzz/corpus fuzz/artifacts
