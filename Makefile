# `make demo` and `make test` do all their own set-up. Everything they bring lies in build/ and target/.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: help demo test bench fuzz models venv packages test-packages clean train cross install

BUILD := build
VENV := $(BUILD)/venv
PYTHON := $(VENV)/bin/python
export STEADFAST_TEST_PYTHON := $(abspath $(BUILD)/venv-test/bin/python)
export STEADFAST_MODELS := $(abspath $(BUILD)/models/compact)
export STEADFAST_ONNXRUNTIME := $(abspath $(BUILD)/lib/libonnxruntime.so.1.31.1)

# Debian and Ubuntu names. The second list serves tests alone: peers in other languages, and what they talk to.
PACKAGES := ca-certificates curl dbus gcc libc6-dev make npm pkg-config python3 python3-venv
TEST_PACKAGES := dbus-broker g++ libsdbus-c++-dev libsodium-dev libsystemd-dev iproute2 systemd tesseract-ocr util-linux

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: models release ## Set everything up and watch the guard answer
	@demo/demo.sh

test: models $(BUILD)/venv-test/.stamp test-packages ## Set everything up and run every test
	@step() { printf '\n== %s\n' "$$*"; }
	step "formatting and lints"
	cargo fmt --check
	cargo clippy --locked --all-targets --features __replay -- --deny warnings
	step "tests"
	if command -v cargo-nextest >/dev/null; then
		cargo nextest run --locked --features __replay --no-fail-fast
	else
		cargo test --locked --features __replay --no-fail-fast
	fi

bench: models release ## Print the benchmarks, as ratios in one run
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --requirement models/requirements-training.txt
	cargo bench --locked --features __bench

fuzz: test-packages ## Fuzz everything that reads bytes from outside: make fuzz RUNS=100000
	@fuzz/run.sh $(or $(RUNS),5000)

# The board's system: 2.31 is the C library of JetPack 5. zig brings headers and linker for it.
BOARD := aarch64-unknown-linux-gnu
ZIG := ziglang==0.17.1 cargo-zigbuild==0.24.1

cross: models ## Build for a 64-bit ARM board, without a container
	@command -v rustup >/dev/null || { echo 'make: rustup is needed for the standard library of $(BOARD)' >&2; exit 1; }
	rustup target add $(BOARD)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check $(ZIG)
	PATH="$(abspath $(VENV)/bin):$$PATH" cargo zigbuild --release --locked --bins --target $(BOARD).2.31
	target/debug/steadfast model install --architecture aarch64 --library $(BUILD)/lib-aarch64

# What is installed: TARGET=$(BOARD) takes what `make cross` built. Packagers may name other folders.
TARGET :=
BINARIES := target/$(if $(TARGET),$(TARGET)/)release
LIBRARY := $(BUILD)/lib$(if $(TARGET),-$(firstword $(subst -, ,$(TARGET))))/libonnxruntime.so.1.31.1
MODELS := $(BUILD)/models/compact
DESTDIR :=

install: ## Install what `make models release` or `make cross` built: make install DESTDIR=folder
	@for file in $(BINARIES)/steadfastd $(BINARIES)/steadfast $(LIBRARY) $(MODELS)/judge_trunk.onnx; do
		[[ -e $$file ]] || { echo "make: $$file is not there; run make $(if $(TARGET),cross,models release) first" >&2; exit 1; }
	done
	install -D --target-directory='$(DESTDIR)/usr/bin' $(BINARIES)/steadfastd $(BINARIES)/steadfast
	install -D --mode=644 $(LIBRARY) '$(DESTDIR)/usr/lib/steadfast/libonnxruntime.so'
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/share/steadfast/models/compact' $(MODELS)/*
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/lib/systemd/system' systemd/steadfastd.service
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/share/dbus-1/system.d' systemd/org.steadfast.Guard1.conf
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/share/dbus-1/system-services' systemd/org.steadfast.Guard1.service
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/lib/sysusers.d' systemd/sysusers.d/steadfast.conf
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/lib/tmpfiles.d' systemd/tmpfiles.d/steadfast.conf
	install -D --mode=644 --target-directory='$(DESTDIR)/usr/share/doc/steadfast' docs/*.md KNOWN_LIMITS.md systemd/steadfastd.service.d/gpu.conf
	for file in steadfast.toml constitution.toml calibration.toml; do
		if cmp --silent config/$$file '$(DESTDIR)/etc/steadfast/'$$file; then continue; fi
		if [[ -e '$(DESTDIR)/etc/steadfast/'$$file ]]; then
			install --mode=644 config/$$file '$(DESTDIR)/etc/steadfast/'$$file.new
			echo "kept /etc/steadfast/$$file; the one that comes with this version is $$file.new"
		else
			install -D --mode=644 --target-directory='$(DESTDIR)/etc/steadfast' config/$$file
		fi
	done

release: packages
	@printf '== building the release\n'
	cargo build --release --locked
.PHONY: release

models: packages venv ## Bring the models and the ONNX Runtime library into build/
	@printf '== building the installer\n'
	cargo build --locked --bin steadfast
	printf '== models\n'
	target/debug/steadfast model install

venv: packages $(VENV)/.stamp

$(VENV)/.stamp: models/requirements.txt
	@printf '== Python for converting models\n'
	python3 -m venv $(VENV) || { echo 'make: python3 with venv is needed (Debian: python3-venv)' >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(BUILD)/venv-test/.stamp: tests/requirements.txt | packages
	@printf '== Python peers for tests\n'
	python3 -m venv $(BUILD)/venv-test
	$(BUILD)/venv-test/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# A package is missing when its name is not installed; only then are root's rights asked for.
define install_packages
	missing=()
	for package in $(1); do
		[[ $$(dpkg-query --show --showformat='$${db:Status-Status}' "$$package" 2>/dev/null) == installed ]] || missing+=("$$package")
	done
	for tool in npm; do if command -v $$tool >/dev/null; then missing=("$${missing[@]/$$tool}"); fi; done
	missing=($${missing[@]})
	if (( $${#missing[@]} )); then
		printf '== Debian packages: %s\n' "$${missing[*]}"
		sudo=(); (( EUID )) && sudo=(sudo)
		"$${sudo[@]}" apt-get -qq update && DEBIAN_FRONTEND=noninteractive "$${sudo[@]}" apt-get -qq install --yes --no-install-recommends "$${missing[@]}" >/dev/null ||
			{ echo "make: could not install: $${missing[*]}; install them by hand and run this again" >&2; exit 1; }
	fi
endef

packages:
	@command -v cargo >/dev/null || { echo 'make: cargo is needed; install Rust 1.92 or newer with rustup' >&2; exit 1; }
	$(call install_packages,$(PACKAGES))

test-packages: packages
	@$(call install_packages,$(TEST_PACKAGES))

train: ## Train the verdict head: make train DATA=folder
	@[[ -n "$(DATA)" ]] || { echo 'make: say where the data lie: make train DATA=folder' >&2; exit 1; }
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --requirement models/requirements-training.txt
	$(PYTHON) models/train_head.py --data "$(DATA)" --models $(BUILD)/models/compact --out models/verdict_head.json

clean: ## Remove what was built and brought
	rm -rf $(BUILD) target
