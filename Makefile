# `make demo` and `make test` do all set-up on a fresh Debian or Ubuntu machine.
# YES=1 installs missing system packages without asking.

VENV ?= .venv
PY := $(VENV)/bin/python
export VENV

.PHONY: help demo test test-all unit images test-long test-images test-osworld test-trainers certify lint image image-small snapshot preview setup setup-vm setup-test constraints openapi site man dist fuzz fuzz-grammars chaos bench-report updates clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup:           ## system packages and a virtual environment for running
	@scripts/setup.sh run

setup-vm:        ## the same, with what virtual machines need
	@scripts/setup.sh vm

setup-test:      ## the same, with what the tests need
	@scripts/setup.sh test

demo: setup      ## real desktops: bake, serve, run every task, show the result
	@$(VENV)/bin/osgym demo $(ARGS)

image: setup     ## bake the full golden image
	@$(VENV)/bin/osgym image build --flavor full

image-small: setup  ## bake the small one
	@$(VENV)/bin/osgym image build --flavor small

snapshot: setup-vm ## a virtual machine of the full image, booted once and frozen: what `runtime: qemu` clones
	@$(VENV)/bin/osgym image build --flavor full
	@$(VENV)/bin/osgym image build --flavor full --format disk
	@$(VENV)/bin/osgym image snapshot full

preview: setup   ## what a fleet would create and cost, without an account (needs the pulumi CLI; CONFIG=…)
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e 'infra[fleet]'
	@$(PY) -m osgym_infra.preview.run --refusals tests.support.cloud_requests $(CONFIG)

lint: setup-test ## ruff, mypy, import rules
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

test: setup-test ## that everything works, on the real thing: lint, unit tests, bakes, desktops, the API, tasks (ARGS=… runs pytest with these alone)
	@if [ -n "$(ARGS)" ]; then scripts/test.sh $(ARGS); else scripts/test.sh first && scripts/test.sh core; fi

test-all: test   ## the same, and all that it leaves out: virtual machines, fleets, bakes, applications, attacks
	@scripts/test.sh slow && scripts/test.sh rest

unit: setup-test ## most unit tests; no desktop
	@scripts/test.sh unit

images: setup-test
	@$(VENV)/bin/osgym image build --flavor small
	@$(VENV)/bin/osgym image build --flavor full

test-images: setup-test
	@$(VENV)/bin/osgym image build --flavor small
	@$(VENV)/bin/osgym image build --flavor small --format qcow2
	@$(VENV)/bin/osgym image snapshot small --accel tcg

test-long: test-images ## what takes minutes each: disks that start by themselves, an idle machine, policies that break virtual machines, packer, a real Prometheus, 20 episodes at once, warm applications, remedies
	@$(PY) -m pytest tests/long --durations=10 $(ARGS)

test-osworld: setup-test ## OSWorld's published tasks on its image: nothing earns nothing, oracles earn all; metrics over documents made by chance (TASKS=OSWorld/evaluation_examples/examples)
	@$(VENV)/bin/osgym image build --flavor osworld
	@OSGYM_OSWORLD_TASKS=$(TASKS) $(PY) -m pytest tests/osworld --durations=10 $(ARGS)

test-trainers: setup ## trainers of others, each in an environment of its own: gigabytes, and minutes (ONLY="trl verifiers")
	@$(VENV)/bin/osgym image build --flavor small
	@scripts/test_trainers.sh $(ONLY)

certify: setup   ## certify the shipped tasks and an instance of each family anew, on `osgym host serve --set image=full` (ARGS="--at-once 4")
	@scripts/certify.sh $(ARGS)

fuzz: setup-test ## parsers of what strangers send, with inputs made of their corpora (SECONDS=120 SEED=…)
	@$(PY) -m tests.fuzz --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz-grammars: setup-test ## action grammars with hostile outputs of models, a million each (CASES=1000000 SEED=1)
	@$(PY) -m tests.support.grammar_fuzz --cases $(or $(CASES),1000000) $(if $(SEED),--seed $(SEED)) $(ARGS)

updates: setup-test ## two own machines updated under load by the real bootstrap; minutes, as root
	@$(VENV)/bin/osgym image build --flavor small
	@$(PY) -m pytest tests/updates $(ARGS)

chaos: setup     ## faults, one every 5 s, under real work; 1 when something happened that may not (SECONDS=600 SEED=… RUNTIME=local)
	@$(PY) -m benchmarks.chaos --seconds $(or $(SECONDS),600) --runtime $(or $(RUNTIME),local) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench-report: setup-test ## docs/benchmarks.md, its pictures and the tables of benchmarks/README.md, from the result files
	@$(PY) -m benchmarks.report $(ARGS)

openapi: setup   ## write the committed OpenAPI description anew
	@$(PY) -m osgym_host openapi > host_agent/openapi.json

site: setup-test ## the site of documents in build/site/html, every link checked
	@$(PY) docs/site/build.py

man: setup-test  ## pages for `man`, one for each command, in build/man
	@$(PY) docs/site/commands.py

constraints: setup-test  ## pin what this environment holds, for development and CI
	@{ echo '# Versions for development and CI, written by `make constraints`.'; \
	   $(PY) -m pip freeze --exclude-editable | grep -v ' @ '; } > constraints.tmp && mv constraints.tmp constraints.txt

dist: setup      ## the wheels of all distributions in dist/; the same source gives the same bytes
	@$(PY) scripts/dist.py dist

clean:           ## remove what this tree built (not the images)
	@rm -rf $(VENV) out dist build */build */*.egg-info
