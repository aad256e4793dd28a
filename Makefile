# Every target does its own set-up; `make setup` only does it ahead of time.
PYTHON ?= python3
UV_VERSION := 0.13.7
LOCKS := deploy/requirements
BIN := .venv/bin

.PHONY: help install setup demo test lint format docs docs-site pictures e2e e2e-full image image-pipeline bench bench-performance bench-pipeline fuzz soak profile dist lock audit clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' Makefile

install: .venv/.core ## Make .venv with the sidecar and its commands only, in seconds

setup: .venv/.all .venv/.site .venv/.spark ## Make .venv with the package, its extras and the tools

demo: .venv/.core ## Run the product on this machine: simulated brokers, the proxy, a client
	$(BIN)/pulsar-ingress-proxy demo $(ARGS)

test: .venv/.dev .venv/.site .venv/.spark ## Run the tests, or some: ARGS=tests/binary
	$(BIN)/python $(if $(ARGS),-m pytest $(ARGS),tests/halves.py tests tests/pipeline tests/binary)

lint: .venv/.dev ## Lint, format check, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.dev ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev ## Regenerate what is derived from code: references, dashboards and rules, the chart's values
	$(BIN)/python -m pulsar_ingress_proxy.config.reference docs/configuration.md
	$(BIN)/python -m pulsar_ingress_proxy.tools.command_reference docs/commands.md pulsar_ingress_proxy.cli pulsar_ingress_pipeline.cli
	$(BIN)/python -m pulsar_ingress_pipeline.tables.reference > docs/.tables.md
	mv docs/.tables.md docs/tables.md
	$(BIN)/python -m pulsar_ingress_proxy.observability.reference docs/metrics.md docs/events.md
	$(BIN)/python -m dashboards
	$(BIN)/python helm/chart_values.py

docs-site: .venv/.site ## Build the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: .venv/.e2e ## Take the pictures of the console and the report in docs/ again
	sh tests/e2e/console/chromium.sh
	$(BIN)/python tests/e2e/console/screenshots.py $(ARGS)
	$(BIN)/python tests/pipeline/report_picture.py

e2e: .venv/.e2e ## With real processes: Envoy, Pulsar, a Kubernetes API (needs Go 1.26, Java 17, Maven and root)
	sh bench/setup.sh
	$(BIN)/python tests/e2e/go_modules.py
	$(BIN)/python tests/e2e/pulsar_cluster/artifacts.py
	$(BIN)/python tests/e2e/prometheus/prometheus_programs.py
	sh tests/e2e/console/chromium.sh
	sh deploy/programs.sh fish zsh
	sh deploy/image/setup.sh
	$(BIN)/python tests/halves.py tests/e2e tests/e2e/pulsar_cluster tests/e2e/pipeline -- -m "not full" $(ARGS)

e2e-full: .venv/.e2e ## All of e2e for every Pulsar version, load manager and rival, and the tables in docs/
	sh bench/setup.sh
	$(BIN)/python tests/e2e/go_modules.py full
	$(BIN)/python tests/e2e/rust_program.py
	$(BIN)/python tests/e2e/pulsar_cluster/artifacts.py 4.0 4.2 5.0 kafka
	$(BIN)/python tests/e2e/pipeline/s3a_jars.py
	$(BIN)/python tests/e2e/pipeline/delta_spark_jars.py
	$(BIN)/python tests/e2e/prometheus/prometheus_programs.py
	sh tests/e2e/console/chromium.sh
	sh deploy/programs.sh fish zsh faketime
	sh deploy/image/setup.sh
	$(BIN)/python -m pytest tests/e2e $(ARGS); tested=$$?; \
		$(BIN)/python tests/e2e/pulsar_cluster/compatibility.py && \
		$(BIN)/python tests/e2e/pulsar_cluster/comparison.py && \
		$(BIN)/python tests/e2e/pulsar_cluster/client_matrix.py && \
		$(BIN)/python tests/e2e/fuzz/framing_page.py && exit $$tested

dist: .venv/bin/uv ## Build the wheel and the source distribution; the same commit gives the same bytes
	$(BIN)/uv build -q --build-constraint deploy/image/tools.txt --require-hashes -o $(or $(OUT),dist) $(ARGS)

image: .venv/.core ## Build the image, run it, do one lookup through it (Docker, or buildah and root)
	sh deploy/image/setup.sh
	$(BIN)/python -m deploy.image.build $(ARGS)

image-pipeline: .venv/.core ## Build the pipeline's image, and take events into tables with it
	sh deploy/image/setup.sh
	$(BIN)/python -m deploy.image.pipeline $(ARGS)

bench: .venv/.e2e ## CPU time per lookup beside nginx, HAProxy and Envoy, and of the binary protocol, in ten minutes
	sh bench/setup.sh
	$(BIN)/python -m bench.lookups $(ARGS)
	$(BIN)/python -m bench.binary

bench-performance: .venv/.e2e ## What docs/performance.md says, in twelve minutes; ARGS=--write writes its tables and plots
	sh bench/setup.sh
	$(BIN)/python -m bench.performance $(ARGS)

bench-pipeline: .venv/.dev .venv/.spark ## CPU time per event, and all tables beside DuckDB; 10 million events, or ARGS="--millions 1 3"
	$(BIN)/python -m bench.pipeline $(ARGS)

fuzz: .venv/.e2e .venv/.spark ## Let libFuzzer choose the examples of property tests, SECONDS=60 for each; or some: ARGS=http-stream
	$(BIN)/python tests/e2e/fuzz/fuzzing.py --seconds $(or $(SECONDS),60) $(ARGS)

soak: .venv/.dev ## Mixed load on a sidecar for MINUTES=5 while all around it changes: do counts add up, does memory stay level
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),5) $(ARGS)

profile: .venv/.dev ## The functions that a lookup spends its time in
	sh bench/setup.sh
	$(BIN)/python -m bench.hotspots $(ARGS)

lock: .venv/bin/uv ## Resolve the dependencies again, with hashes
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o $(LOCKS)/core.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/core.txt --extra dev --extra connect --extra kafka --extra kubernetes --extra otel --extra pipeline pyproject.toml -o $(LOCKS)/dev.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt --extra kubernetes pyproject.toml -o $(LOCKS)/image.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt $(LOCKS)/pipeline.in -o $(LOCKS)/pipeline.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt deploy/image/tools.in -o deploy/image/tools.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt --all-extras pyproject.toml -o $(LOCKS)/all.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt $(LOCKS)/e2e.in -o $(LOCKS)/e2e.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header -c $(LOCKS)/dev.txt $(LOCKS)/site.in -o $(LOCKS)/site.txt $(ARGS)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header $(LOCKS)/java.in -o $(LOCKS)/java.txt $(ARGS)

audit: .venv/bin/uv ## Look all locked versions up among the published vulnerabilities
	@failed=; for locked in $(LOCKS)/*.txt deploy/image/tools.txt; do echo "$$locked"; \
		$(BIN)/uv tool run -q pip-audit@2.10.1 --strict --require-hashes --disable-pip -r "$$locked" $(ARGS) || failed=1; \
		done; [ -z "$$failed" ]

clean: ## Remove what the other targets made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache dist site

# uv from the machine if it is there, else from the package index into the environment.
.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION)

# Compiled here once: where Python may not write its bytecode, every process would compile all it imports.
.venv/.%: $(LOCKS)/%.txt pyproject.toml .venv/bin/uv
	$(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes -r $<
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -e .
	@$(BIN)/python -m compileall -q proxy pipeline
	@touch $@

.venv/.e2e: .venv/.dev .venv/.site

# Spark needs Java 17 or newer: the machine's, else one from the package index.
.venv/.spark: $(LOCKS)/java.txt | .venv/bin/uv
	@PYTHONPATH=pipeline $(PYTHON) -c 'from pulsar_ingress_pipeline.java import find; find()' 2>/dev/null \
		|| $(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r $<
	@touch $@
