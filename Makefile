# Every target sets up what it needs: a virtual environment in .venv with the versions the tests pass with.
# An environment that has it all, elsewhere: make VENV=/path/to/bin ...

PYTHON ?= python3
VENV := .venv/bin
PAGES = --no-config --line-width 110 $(shell find nmt_cli -name '*.js' -o -name '*.css')
# What Python compiles is kept, whatever the environment says: tests start hundreds of processes.
TESTS = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(VENV)/pytest -n auto --dist loadfile --no-loadscope-reorder

PORTABLE = avx2 one-core no-home c-locale umask

# A processor with AVX2 and without AVX-512. A name alone would leave Numba the instructions of this one.
AVX2 = ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=haswell NUMBA_CPU_FEATURES=+avx,+avx2,+bmi,+bmi2,+cmov,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+pclmul,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave

.PHONY: install demo quick test older-processor portable test-gpu kernels torture torture-short check release-check format site bench bench-gpu gpu-report

install: $(if $(filter .venv/bin,$(VENV)),.venv/installed)

# Without editable_mode=compat, type checkers find no nmt_cli: they do not follow import hooks.
.venv/installed: pyproject.toml .tested-versions.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nmt needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(VENV)/pip install --quiet --constraint .tested-versions.txt --config-settings editable_mode=compat --editable '.[dev]'
	touch $@

demo: install  ## the quickstart recipe, end to end
	PATH="$(abspath $(VENV)):$$PATH" recipes/quickstart/run.sh

quick: install  ## the tests that need no patience: under 90 s on two cores, for while you write
	$(TESTS) -m "not slow" --hypothesis-profile quick

test: install
	$(TESTS)

older-processor: install  ## the tests of compiled products, as on a processor with AVX2 only
	$(AVX2) $(TESTS) tests/engine tests/runtime/kernels tests/data/preprocessing/test_aligner.py

portable: install  ## all tests in each environment of PORTABLE
	for environment in $(PORTABLE); do \
		case $$environment in \
			avx2) $(AVX2) $(TESTS) ;; \
			one-core) taskset -c 0 $(TESTS) ;; \
			no-home) HOME=/nonexistent $(TESTS) ;; \
			c-locale) LC_ALL=C TZ=Asia/Kathmandu $(TESTS) ;; \
			umask) (umask 077; $(TESTS)) ;; \
			*) echo "unknown environment: $$environment"; false ;; \
		esac || exit; \
	done

test-gpu: install  ## the tests that need a CUDA device
	$(VENV)/python3 -m pytest -m gpu

kernels: install  ## all kernels for all GPUs, compiled without one: three minutes
	$(VENV)/python3 -m pytest -n 0 -m release

torture torture-short: install  ## faults for twenty minutes, or for two; TORTURE="--seed 2" for others
	$(VENV)/python3 -m recipes.torture.training $(if $(SHORT),--only 1,--minutes 10) $(TORTURE)
	$(VENV)/python3 -m recipes.torture.files --mutations $(if $(SHORT),20,3000) $(TORTURE)
	$(VENV)/python3 -m recipes.torture.foreign --mutations $(if $(SHORT),2,200) $(TORTURE)
	$(VENV)/python3 -m recipes.torture.caches $(if $(SHORT),--mutations 1) $(TORTURE)
	$(VENV)/python3 -m recipes.torture.pipe $(if $(SHORT),--lines 500 --trickle 20,--lines 20000) $(TORTURE)
	$(if $(WITHOUT_BROWSER),,$(VENV)/python3 -m recipes.torture.pages --rounds $(if $(SHORT),1,5) $(TORTURE))
	$(VENV)/python3 -m recipes.torture.connections $(if $(SHORT),--rounds 1 --kind "not HTTP",--rounds 4) $(TORTURE)
	$(VENV)/python3 -m recipes.torture.fuzz $(if $(SHORT),npz sgm --seconds 2,--seconds 10) $(TORTURE)
	cat tests/golden/corpus/*.en | $(VENV)/python3 -m recipes.torture.alone $(if $(SHORT),--lines 20)

torture-short: SHORT = 1

check: install  ## all that CI runs
	$(VENV)/ruff format --check .
	$(VENV)/deno fmt --check $(PAGES)
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(TESTS)

release-check:  ## wheel and sdist, each in a clean environment, and nmt demo there; make kernels
	PYTHON=$(PYTHON) .ci/release-check

format: install
	$(VENV)/ruff format .
	$(VENV)/deno fmt $(PAGES)
	$(VENV)/ruff check --fix .

site: install  ## the documentation as a static site, in build/site
	$(VENV)/pip install --quiet --config-settings editable_mode=compat --editable '.[site]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --quiet --strict --config-file .github/mkdocs.yml

bench: install  ## needs NMT_DATA; see recipes/benchmarks/README.md
	$(VENV)/python -m recipes.benchmarks.preprocess
	$(VENV)/python -m recipes.benchmarks.attention
	$(VENV)/python -m recipes.benchmarks.loss speed
	$(VENV)/python -m recipes.benchmarks.batching
	$(VENV)/python -m recipes.benchmarks.score speed
	$(VENV)/python -m recipes.benchmarks.layers
	$(VENV)/python -m recipes.benchmarks.train

bench-gpu: install  ## NMT_DATA is welcome; prints the tables to keep in recipes/benchmarks/results.md
	$(VENV)/python3 -m recipes.benchmarks.attention
	$(VENV)/python3 -m recipes.benchmarks.loss

GPU_RESULTS = $(CURDIR)/recipes/benchmarks/gpu/$(shell date +%F)

gpu-report:  ## 13 minutes on a GPU, with the python3 that is there: predictions, measurements, verdicts
	for call in 1 2; do RESULTS=$(GPU_RESULTS) recipes/benchmarks/gpu/nine_minutes.sh $$call || exit; done
