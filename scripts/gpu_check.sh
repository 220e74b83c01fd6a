#!/usr/bin/env bash
# Set up what is missing, then run everything that needs GPUs and leave a page that can be sent back.
#
#   bash scripts/gpu_check.sh                           all parts, on every GPU that there is
#   bash scripts/gpu_check.sh --cifar10 <folder>        an epoch on the real images
#   bash scripts/gpu_check.sh --parts losses ranks      some parts
#   bash scripts/gpu_check.sh --cpu                     the smallest form of each part, without a GPU
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$project"
exec python scripts/gpu_check.py "$@"
