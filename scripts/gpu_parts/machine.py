"""The part about the machine."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from solo_margins.host.detect import versions

from gpu_parts import ROOT, Findings, Machine

PACKAGES = ("torchvision", "torchmetrics", "timm", "kornia", "numpy", "triton")
DALI = ("nvidia-dali-cuda130", "nvidia-dali-cuda120")


def _said(*words: str) -> str:
    """Return what a program prints, nothing where it is not there."""
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def environment(machine: Machine) -> Findings:
    """Describe the machine and the versions of what runs on it."""
    found: dict[str, Any] = {}
    for number in range(machine.gpus):
        gpu = torch.cuda.get_device_properties(number)
        found[f"GPU {number}"] = (
            f"{gpu.name}, {gpu.total_memory / 1e9:.1f} GB, capability {gpu.major}.{gpu.minor}"
        )
    if machine.has_gpu:
        query = ("nvidia-smi", "--query-gpu=driver_version,memory.used", "--format=csv,noheader")
        found["driver, memory in use"] = _said(*query).replace("\n", "; ")
        found["bfloat16"] = torch.cuda.is_bf16_supported(including_emulation=False)
        found["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    if machine.gpus > 1:
        found["GPU 0 reads GPU 1"] = torch.cuda.can_device_access_peer(0, 1)
    found |= {"CUDA of torch": torch.version.cuda, "cuDNN": torch.backends.cudnn.version()}
    found |= versions()
    for package in (*PACKAGES, *DALI):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            if package not in DALI:
                found[package] = "not installed"
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found["CPU"] = f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores"
    found["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB"
    found["system"] = platform.platform()
    changed = " with changes" if _said("git", "status", "--porcelain") else ""
    found["commit"] = (_said("git", "rev-parse", "HEAD") or "unknown") + changed
    return Findings([{"what": name, "value": str(value)} for name, value in found.items()])
