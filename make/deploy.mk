# Building, trying and deploying the stack. `sam` lives in a virtual environment of its own, because it pins what we
# use in other versions. That environment runs on the function's Python, so on its PATH `sam build` finds both.

SAM_VERSION := 1.170.0
# The template is the one place that names the Python version.
RUNTIME := $(shell sed -n 's/^ *Python: *\(python3[.0-9]*\)$$/\1/p' template.yaml)
HOST_ARCH := $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,x86_64)
REGION ?= $(or $(AWS_REGION),$(AWS_DEFAULT_REGION),us-east-1)
BUILD ?= .aws-sam/build
EVENT ?= events/chat.json

AGAIN = $(MAKE) --no-print-directory -f $(firstword $(MAKEFILE_LIST))
SAM := PATH="$(CURDIR)/.venv-sam/bin:$$PATH" SAM_CLI_TELEMETRY=0 sam
SAM_VENV := .venv-sam/$(RUNTIME)-sam-$(SAM_VERSION)
SOURCES := $(shell find functions layers -type f -not -path '*/__pycache__/*') template.yaml samconfig.toml

# What a person has who has that Python at all: on the PATH, by pyenv (whose stand-in on the PATH may refuse), by uv.
define FIND_PYTHON
for python in $(RUNTIME) "$$(pyenv prefix $(RUNTIME:python%=%) 2>/dev/null)/bin/$(RUNTIME)" \
  "$$(uv python find --no-project $(RUNTIME:python%=%) 2>/dev/null)"; do \
  if "$$python" -c 'import venv' >/dev/null 2>&1; then echo "$$python"; break; fi; done
endef

.PHONY: sam sam-if-possible validate build invoke deploy logs delete lock

$(SAM_VENV):
	@python=$$($(FIND_PYTHON)); if [ -z "$$python" ]; then echo "The function runs on $(RUNTIME), and building it takes" \
	  "the same version here, which was not found: install $(RUNTIME) and put it on the PATH." >&2; exit 1; fi; \
	rm -rf .venv-sam && "$$python" -m venv .venv-sam
	.venv-sam/bin/pip install --quiet --disable-pip-version-check aws-sam-cli==$(SAM_VERSION)
	@touch $@

sam: $(SAM_VENV)

# For `make test`: without the function's Python the tests of the build say so and are skipped, but in CI they fail.
sam-if-possible:
	@$(AGAIN) sam || echo "The tests of the deployment will be skipped." >&2

validate: $(SAM_VENV)	## check template.yaml as SAM and cfn-lint see it
	$(SAM) validate --lint --region $(REGION)

build: $(SAM_VENV)	## build function and layers without Docker; ARCH=x86_64 to try another processor than samconfig.toml's
	$(SAM) build --build-dir $(BUILD) --cache-dir $(dir $(BUILD))cache $(if $(ARCH),--parameter-overrides Architecture=$(ARCH))
	.venv-sam/bin/python -m local.built $(BUILD)

# A build of its own, for this machine's processor, so that what is going to be deployed stays untouched. In a folder
# of its own as well, because SAM notes beside a build what it can use again.
.aws-sam/invoke/build/template.yaml: $(SOURCES) | $(SAM_VENV)
	@$(AGAIN) build ARCH=$(HOST_ARCH) BUILD=.aws-sam/invoke/build
	@touch $@

# Where Docker is, the same files work with `sam local invoke`, which prints the answer in one piece:
#   python -m local.table --port 8001 --data .local/sam.jsonl & python -m local.demo_model --port 8002 &
#   make build && sam local invoke Agent --event events/chat.json --env-vars events/env.json
# On Linux add: --docker-network host --add-host host.docker.internal:127.0.0.1
invoke: .aws-sam/invoke/build/template.yaml $(PYTHON_READY)	## run EVENT through the built layers and AWS's emulator
	$(PYTHON) -m local.invoke $(EVENT)

deploy: $(if $(ARCH),arch-is-a-setting) build	## create or update the stack with your AWS credentials; shows the changes and asks first
	$(SAM) deploy

.PHONY: arch-is-a-setting
arch-is-a-setting:
	@echo "To deploy for $(ARCH), write Architecture=$(ARCH) into samconfig.toml: later deploys must know it too." >&2; exit 1

logs:	## follow the function's log
	$(SAM) logs --name Agent --tail

delete:	## delete the stack; the table with the threads stays
	$(SAM) delete

lock: $(SAM_VENV)	## choose the newest versions that layers/dependencies/requirements.txt allows
	@for architecture in arm64 x86_64; do folder=layers/dependencies/$(RUNTIME)-$$architecture; \
	  mkdir -p $$folder && PATH="$(CURDIR)/.venv-sam/bin:$$PATH" $(MAKE) --no-print-directory -C $$folder -f ../Makefile lock \
	  || exit 1; done
