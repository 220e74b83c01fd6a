#!/usr/bin/env bash
# Set up what is missing, then pretrain on the embedded digits with and without margins, probe both
# and show what came out. A few minutes on two cores once .venv is there.
#
#   bash scripts/demo.sh [--output <folder>] [--epochs <number>] [--seeds <number> ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$project"
python scripts/demo.py "$@"
