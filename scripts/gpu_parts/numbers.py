"""Parts about numbers: the losses on a device, compiled, in several ranks, and methods."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gpu_parts import (
    ROOT,
    SUPPORT,
    Findings,
    Machine,
    Skipped,
    badness,
    checkpoint_in,
    command,
    largest_difference,
    weights_of,
)

sys.path.append(str(SUPPORT))
import loss_calls
from processes import free_ports, run_processes

from solo_margins import training
from solo_margins.losses import Margins
from solo_margins.registry import OUR_METHODS
from solo_margins.resolvers import composed

WIDTH = 128
ALL_MARGINS = Margins(0.3, 0.2, 5.0, 1.5, 0.5)
# Losses at a size where a GPU, too, works tile by tile.
IN_TILES = ("simclr", "mocov3", "hard", "polarization")
VALUE_BAR, GRADIENT_BAR = 2e-5, 2e-4
# Weights after four steps: float32 on a CPU, and on GPUs, whose kernels depend on the batch. Where
# each rank sees its own negatives only, the weights differ by 6e-4.
WEIGHTS_BAR = {"cpu": 1e-5, "cuda": 1e-4}
# Its clusters are drawn on the device of the method, and follow small differences of features.
WITH_CLUSTERS = ("deepclusterv2_margin",)
LOSS_BAR = {"32-true": 0.02, "bf16-mixed": 0.1, "16-mixed": 0.1}


# losses


def _settings(rows: int, device: str, dtype: torch.dtype) -> loss_calls.Settings:
    numbers = torch.arange(rows, device=device)
    others = loss_calls.vectors(2 * rows, 2, WIDTH).to(dtype).to(device)
    return loss_calls.Settings(
        margins=ALL_MARGINS, ids=numbers, assignments=numbers.flip(0), others=others
    )


def _call(name: str, form: str, settings: loss_calls.Settings, autocast: str = "") -> Any:
    """Return a loss of two batches, under autocast if a device is named."""
    if not loss_calls.takes(name, settings.margins):
        settings = replace(settings, margins=replace(settings.margins, attenuation=0.0))

    def loss(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        with torch.autocast(autocast, torch.bfloat16) if autocast else nullcontext():
            return loss_calls.FORMS[form][name](first, second, settings)

    return loss


def _differences(received: list[Any], exact: list[Any]) -> tuple[float, float]:
    """Return how far value and gradients are off, relative to their size."""
    value = (received[0].cpu().double() - exact[0]).abs() / exact[0].abs().clamp_min(1.0)
    worst = 0.0
    for gradient, expected in zip(received[1:], exact[1:], strict=True):
        if expected is None:
            continue
        info = torch.finfo(gradient.dtype)
        # What is smaller than the smallest number of its dtype is rounded to nothing.
        error = (gradient.cpu().double() - expected).abs().max() - info.tiny * info.eps
        worst = max(worst, badness(float(error / expected.abs().max())))
    return badness(float(value)), worst


def losses(machine: Machine) -> Findings:
    """Compare every loss and its gradients with those of float64 on the CPU."""
    findings = Findings(note="Differences relative to the largest entry; the worst loss is named.")
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    for size in (9, 300, 5000) if machine.has_gpu else (9, 40):
        names = IN_TILES if size == 5000 else tuple(loss_calls.PUBLIC)
        for title, dtype in {**dtypes, "float32, autocast": torch.float32}.items():
            inputs = [loss_calls.vectors(size, seed, WIDTH).to(dtype) for seed in (0, 1)]
            worst: dict[str, dict[str, tuple[float, str]]] = {"engine": {}, "plain": {}}
            for name in names:
                print(f"{size} rows, {title}: {name}", flush=True)
                exact_settings = _settings(size, "cpu", dtype)
                exact_settings = replace(exact_settings, others=exact_settings.others.double())
                exact = loss_calls.value_and_gradients(
                    _call(name, "engine", exact_settings), *(x.double() for x in inputs)
                )
                for form, found in worst.items():
                    if form == "plain" and size == 5000:
                        continue
                    autocast = machine.device if "autocast" in title else ""
                    settings = _settings(size, machine.device, dtype)
                    received = loss_calls.value_and_gradients(
                        _call(name, form, settings, autocast),
                        *(x.to(machine.device) for x in inputs),
                    )
                    for kind, off in zip(
                        ("value", "gradient"), _differences(received, exact), strict=True
                    ):
                        found[kind] = max(found.get(kind, (0.0, name)), (off, name))
            allowed = {"value": VALUE_BAR, "gradient": GRADIENT_BAR + torch.finfo(dtype).eps}
            for form, found in worst.items():
                for kind, (off, name) in found.items():
                    what = f"{form}, {size} rows, {title}, {kind}"
                    # Not the other way round: a NaN is wrong, too.
                    findings.require(off <= allowed[kind], f"{what}: {name} is off by {off:.2g}.")
                if found:
                    shown = {k: f"{off:.1e} ({name})" for k, (off, name) in found.items()}
                    findings.rows.append({"form": form, "rows": size, "dtype": title, **shown})
    return findings


def compiled(machine: Machine) -> Findings:
    """Compare losses inside ``torch.compile`` with the same ones outside."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise Skipped("torch.compile needs a C compiler, and there is none")
    findings = Findings(note="Best of 20 calls, forward and backward, compiled without a break.")
    rows = 2048 if machine.has_gpu else 16
    for name in ("mocov3", "simclr", "hard", "byol") if machine.has_gpu else ("mocov3",):
        settings = _settings(rows, machine.device, torch.float32)
        eager = _call(name, "engine", settings)
        loss = torch.compile(eager, fullgraph=True)
        inputs = [
            loss_calls.vectors(rows, seed, WIDTH).float().to(machine.device) for seed in (0, 1)
        ]
        began = time.perf_counter()
        received = loss_calls.value_and_gradients(loss, *inputs)
        seconds = time.perf_counter() - began
        exact = loss_calls.value_and_gradients(eager, *inputs)
        value, gradient = _differences(
            received, [None if x is None else x.cpu().double() for x in exact]
        )
        findings.rows.append(
            {
                "loss": name,
                "rows": rows,
                "value": f"{value:.1e}",
                "gradient": f"{gradient:.1e}",
                "compiling, s": round(seconds, 1),
                "compiled, ms": _milliseconds(loss, inputs),
                "engine, ms": _milliseconds(eager, inputs),
            }
        )
        findings.require(value <= VALUE_BAR, f"{name}: the value is off by {value:.2g}.")
        findings.require(gradient <= GRADIENT_BAR, f"{name}: a gradient is off by {gradient:.2g}.")
    return findings


def _milliseconds(loss: Any, inputs: list[Any]) -> float:
    times = []
    for _ in range(20):
        began = time.perf_counter()
        loss_calls.value_and_gradients(loss, *inputs)
        if inputs[0].is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return round(1e3 * min(times), 2)


# ranks


def ranks(machine: Machine) -> Findings:
    """Compare two ranks with one process: losses in float64, and weights after four steps."""
    if machine.gpus == 1:
        raise Skipped("two ranks over NCCL need two GPUs, and there is one")
    import distributed_losses

    backend = "nccl" if machine.has_gpu else "gloo"
    findings = Findings(note=f"Two ranks over {backend} against one process.")
    for shares in ((7, 5), (6, 6)) if machine.has_gpu else ((7, 5),):
        whole, count = distributed_losses.everything_of_one_rank(0, (sum(shares),))
        parts = run_processes(
            2,
            distributed_losses.everything_of_one_rank,
            shares,
            machine.device,
            backend=backend,
        )
        differences = {
            case: max(
                badness(abs((one + other) / 2 - number) / max(1.0, abs(number)))
                for one, other, number in zip(
                    parts[0][0][case], parts[1][0][case], of_all, strict=True
                )
            )
            for case, of_all in whole.items()
        }
        worst = max(differences, key=lambda case: differences[case])
        what = f"{len(whole)} losses of {shares[0]} + {shares[1]} rows, derivatives"
        _add(findings, what, differences[worst], 1e-9, worst[1])
        findings.require(
            parts[0][1] + parts[1][1] == count, f"{what}: pairs in a band are counted differently."
        )
    trained = ("simclr_margin", "mocov3_margin", "byol_curv")
    for name in trained if machine.has_gpu else trained[:1]:
        alone, together = (_train_in_ranks(machine, name, number) for number in (1, 2))
        off, where = largest_difference(alone, together)
        _add(findings, f"weights of {name}", off, WEIGHTS_BAR[machine.device], where)
    return findings


def _add(findings: Findings, what: str, off: float, bar: float, where: str) -> None:
    row = {"what": what, "largest difference": f"{off:.1e}", "where": where, "allowed": f"{bar:g}"}
    findings.rows.append(row)
    findings.require(off <= bar, f"{what}: {where} is off by {off:.2g}, allowed is {bar:g}.")


def _train_in_ranks(machine: Machine, name: str, number: int) -> Path:
    """Train four steps without batch normalisation, in processes that the suite uses, too."""
    folder = machine.scratch / "ranks" / f"{name}-{number}"
    cfg = composed(
        name,
        [
            *machine.run_settings(f"ranks/{name}-{number}/runs"),
            *(f"devices={number}", f"strategy={'ddp' if number > 1 else 'auto'}"),
            *(f"optimizer.batch_size={32 // number}", "max_steps=4", "run_id=run"),
        ],
    )
    from omegaconf import OmegaConf

    (folder / "settings").mkdir(parents=True)
    OmegaConf.save(cfg, folder / "settings" / "run.yaml", resolve=True)
    [port] = free_ports(1)
    processes = []
    for rank in range(number):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "SOLO_MARGINS_RUN_ID": "run"}
        if number > 1:
            environment["LOCAL_RANK"] = str(rank)
        program = [str(SUPPORT / "trained_together.py"), str(folder / "settings"), str(port)]
        processes.append(
            subprocess.Popen([sys.executable, "-W", "ignore", *program], env=environment, cwd=ROOT)
        )
    while any(process.poll() is None for process in processes):
        time.sleep(0.1)
        if any(process.returncode for process in processes):
            # The other rank may wait for this one for ever.
            break
    if any(process.poll() != 0 for process in processes):
        raise RuntimeError(f"{name} with {number} ranks has failed.")
    return checkpoint_in(folder)


def sync_batchnorm(machine: Machine) -> Findings:
    """Compare ranks that share batch statistics with one process that has the whole batch."""
    program = ("main_pretrain.py", "--config-name", "mocov3_margin.yaml", "max_steps=4")

    def train(name: str, number: int, *changes: str) -> Path:
        settings = machine.run_settings(f"sync_batchnorm/{name}")
        command(*program, *settings, f"optimizer.batch_size={32 // number}", *changes)
        return checkpoint_in(machine.scratch / "sync_batchnorm" / name)

    shared = ("sync_batchnorm=true", "strategy=ddp")
    if not machine.has_gpu:
        settings = machine.run_settings("sync_batchnorm/refused")
        said = command(*program, *settings, *shared, "devices=2", codes=(1,))
        findings = Findings(note="CPUs cannot share statistics: the run is refused in a sentence.")
        findings.require("sync_batchnorm=true needs GPUs" in said, "There is no such sentence.")
        return findings
    number = min(2, machine.gpus)
    findings = Findings(note=f"{number} rank(s) over NCCL against a run without a process group.")
    one = train("alone", 1)
    other = train("shared", number, *shared, f"devices={number}")
    off, where = largest_difference(one, other)
    _add(findings, f"weights, {number} rank(s)", off, WEIGHTS_BAR["cuda"], where)
    return findings


# methods


def _train(machine: Machine, method: str, precision: str) -> tuple[dict[str, float], Path]:
    """Train a method for two epochs; return the means of its losses and the checkpoint."""
    name = f"methods/{machine.device}-{precision}-{method}"
    sizes = ("max_epochs=2", "limit_train_batches=2", f"precision={precision}")
    result = training.pretrain(composed(method, [*machine.run_settings(name), *sizes]))
    metrics = {
        key: value
        for key, value in result.metrics.items()
        if key.startswith("train_") and "acc" not in key and not key.endswith(("_step", "_epoch"))
    }
    assert result.checkpoint is not None
    return metrics, result.checkpoint


def methods(machine: Machine, precision: str = "32-true") -> Findings:
    """Train every method for some steps; compare its losses with those of another run.

    That is one in float32: on the CPU for float32, on the same device for half precision.
    """
    if precision == "16-mixed" and not machine.has_gpu:
        raise Skipped("precision=16-mixed needs a GPU")
    is_full = precision == "32-true"
    beside = replace(machine, device="cpu") if is_full else machine
    findings = Findings(note=f"Against float32 on {'the CPU' if is_full else 'the same device'}.")
    for method in OUR_METHODS:
        try:
            METHODS[method]
        except NotImplementedError as reason:
            findings.note += f" Without {method}: {reason}"
            continue
        print(f"{method}, {precision}", flush=True)
        means, checkpoint = _train(machine, method, precision)
        expected = means
        if beside != machine or not is_full:
            expected, _ = _train(beside, method, "32-true")
        off = {key: abs(means[key] - expected[key]) / max(1.0, abs(expected[key])) for key in means}
        worst = max(off, key=lambda key: badness(off[key]))
        row = {"method": method, "loss": worst, "here": round(means[worst], 4)}
        findings.rows.append({**row, "float32": round(expected[worst], 4)})
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if precision == "16-mixed":
            findings.rows[-1]["scale"] = content.get("MixedPrecision", {}).get("scale")
        is_finite = all(bool(value.isfinite().all()) for value in weights_of(checkpoint).values())
        findings.require(is_finite, f"{method}: weights are not finite.")
        if method not in WITH_CLUSTERS:
            bar = LOSS_BAR[precision]
            findings.require(off[worst] <= bar, f"{method}: {worst} is off by {off[worst]:.2g}.")
    return findings
