#!/usr/bin/env bash
# Set up what is missing, then check style and types and run the tests.
#
#   bash scripts/test.sh                the suite, under ten minutes on two cores
#   bash scripts/test.sh --full         everything
#   bash scripts/test.sh -k distributed any other option goes to pytest
#   SOLO_LEARN_SRC=<checkout> bash scripts/test.sh   against a checkout of solo-learn's repository
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$project"

ruff check .
ruff format --check .
mypy

# One thread in each of two workers keeps both cores busy and results the same.
export OMP_NUM_THREADS=1
python -m pytest --numprocesses 2 --dist worksteal "$@"
