"""Parts with figures: reading images, resuming, the loss, an epoch, evaluation."""

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import bench_data
import bench_losses
import bench_step
import torch

from gpu_parts import Findings, Machine, Skipped, badness, checkpoint_in, command, weights_of
from solo_margins import host, training
from solo_margins.data.dali import require_dali
from solo_margins.evaluation.knn import knn
from solo_margins.evaluation.probe import probe
from solo_margins.export import export
from solo_margins.files import complete_folder
from solo_margins.resolvers import composed

CONTENDERS = (bench_losses.OURS, "solo-learn", bench_losses.OFF, "floor")
CIFAR_TRAIN, CIFAR_TEST = 50_000, 10_000
# Mean and deviation of two batches of 64 images with their own augmentations differ by 0.05.
VIEWS_BAR = 0.3


# reading images


def data(machine: Machine, reader: str) -> Findings:
    """Read images, compare the first batch with PIL's, and train four steps on them."""
    if reader == "dali":
        try:
            require_dali()
        except ImportError as missing:
            raise Skipped(str(missing)) from None
    stored, size, batch, batches = (400, 224, 64, 24) if machine.has_gpu else (40, 32, 64, 4)
    options = argparse.Namespace(size=size, batch=batch, batches=batches)
    options.workers = min(8, os.cpu_count() or 1)
    options.device = "gpu" if machine.has_gpu else "cpu"
    photographs = machine.scratch / "photographs"
    if not photographs.exists():
        with complete_folder(photographs) as unfinished:
            bench_data.made_up_photographs(unfinished, batch * batches, stored)
    rate, taker = bench_data.take_batches(reader, photographs, options)
    findings = Findings(
        note=f"JPEG files of {stored} pixels, two views of {size}, batches of {batch}, "
        f"{options.workers} workers or threads."
    )
    indexes, views, _ = taker.first
    expected, by_pil, _ = _first_batch("image_folder", photographs, options)
    row: dict[str, Any] = {"reader": reader, "images/s": round(rate)}
    for name, of_views in (("mean", torch.Tensor.mean), ("deviation", torch.Tensor.std)):
        here, there = (of_views(torch.stack([*some]).float().cpu()) for some in (views, by_pil))
        row |= {name: round(float(here), 3), f"{name}, PIL": round(float(there), 3)}
        findings.require(
            abs(float(here - there)) <= VIEWS_BAR, f"The {name} of views is far from that by PIL."
        )
    findings.require(
        all(view.device.type == machine.device for view in views),
        f"Views are not on {machine.device}.",
    )
    findings.require(
        torch.equal(indexes.cpu(), expected), "The first batch has other images than PIL's."
    )
    if reader == "tensors":
        _, on_cpu, _ = _first_batch(reader, photographs, options)
        pairs = zip(views, on_cpu, strict=True)
        off = max(badness(float((a.cpu() - b).abs().mean())) for a, b in pairs)
        row["mean difference from the CPU's views"] = f"{off:.1e}"
        findings.require(off <= 0.01, f"Views differ from those made on the CPU by {off:.2g}.")
    settings = (
        *machine.run_settings(f"data/{reader}"),
        *("data=folder", f"data.train_path='{photographs}'", f"data.format={reader}"),
        *(f"dali.device={options.device}", f"image.size={size}", "backbone=narrow_resnet10"),
        *(f"optimizer.batch_size={batch}", "max_steps=4", f"data.num_workers={options.workers}"),
    )
    checkpoint = training.pretrain(composed("mocov3_margin", settings)).checkpoint
    assert checkpoint is not None
    finite = all(bool(value.isfinite().all()) for value in weights_of(checkpoint).values())
    findings.require(finite, "Weights are not finite after four steps.")
    findings.rows.append(row)
    return findings


def _first_batch(reader: str, images: Path, options: argparse.Namespace) -> Any:
    """Return the first batch of a run, made on the CPU."""
    return next(iter(bench_data.run_data(reader, images, options).train_dataloader()))


# resume


def resume(machine: Machine) -> Findings:
    """Stop a run at random points, continue it, and compare its weights with those of a whole run.

    Bit for bit, on GPUs with deterministic kernels; without them the difference is only shown.
    """
    findings = Findings(note="Digits; the first two must not differ at all.")
    device = "accelerator=gpu" if machine.has_gpu else "accelerator=cpu"
    fixed = [device, "+deterministic=true"]
    trials = [("KILL", fixed), ("TERM", fixed)]
    if machine.has_gpu:
        trials.append(("KILL", [device]))
    for number, (signal, settings) in enumerate(trials):
        kills = 3 if machine.has_gpu else 1
        options = ("--kills", kills, "--signal", signal, "--workers", 1)
        said = command("scripts/stress_resume.py", *options, *settings, codes=(0, 1))
        table = [line.strip("| ").split(" | ") for line in said.splitlines() if line[:1] == "|"]
        if len(table) < 3:
            raise RuntimeError("scripts/stress_resume.py has printed no table.")
        row = dict(zip(table[0], table[-1], strict=True))
        findings.rows.append({"signal": signal, "deterministic": settings is fixed, **row})
        same = row["tensors that differ"].startswith("0 of")
        findings.require(number == 2 or same, f"SIG{signal}: weights differ after resuming.")
    return findings


# speed


def benchmark(machine: Machine) -> Findings:
    """Measure time and memory of the SimCLR loss, forward and backward."""
    findings = Findings(note=f"float32, D = {bench_losses.DIMENSIONS}, memory above the start.")
    for pairs in (4096, 16_384, 65_536) if machine.has_gpu else (256,):
        print(f"{pairs} pairs", flush=True)
        best = bench_losses.measure(
            *(pairs, 3.0 if machine.has_gpu else 0.2, False, machine.device),
            CONTENDERS if machine.has_gpu else CONTENDERS[:2],
        )
        for name, seconds in best.items():
            memory = math.inf
            if math.isfinite(seconds):
                memory = (
                    bench_losses.peak_gpu_memory(name, pairs)
                    if machine.has_gpu
                    else bench_losses.peak_memory(name, pairs)[0]
                )
            row = {"pairs": pairs, "loss": name, "ms": round(1e3 * seconds, 3)}
            row |= {"GB": round(memory / 1024, 3)}
            if not math.isfinite(memory):
                row |= {"ms": "out of memory", "GB": ""}
                findings.require("ours" not in name, f"{name} runs out of memory at {pairs} pairs.")
            findings.rows.append(row)
    return findings


def epoch(machine: Machine) -> Findings:
    """Train one epoch of the recipe for CIFAR-10, in every precision."""
    images, note = machine.cifar10, "CIFAR-10."
    sizes = ["max_epochs=1"]
    if not machine.has_gpu:
        sizes += [*bench_step.SMALL_NETWORK, "optimizer.batch_size=32"]
    if images is None:
        note = "Images made on the spot, of CIFAR-10's number and size: accuracies mean nothing."
        images = machine.scratch / "cifar10"
        with complete_folder(images) as unfinished:
            for split, number in (("train", CIFAR_TRAIN), ("test", CIFAR_TEST)):
                number = number if machine.has_gpu else number // 150
                bench_data.made_up_photographs(unfinished / split, number, 32, classes=10)
    if not machine.has_gpu:
        sizes.append("limit_train_batches=6")
        note += " The form for CPUs: a small network, and few images."
    findings = Findings(note=f"mocov3_margin, data=cifar10. {note}")
    for precision in ("32-true", "16-mixed", "bf16-mixed") if machine.has_gpu else ("32-true",):
        print(f"epoch, {precision}", flush=True)
        if machine.has_gpu:
            torch.cuda.reset_peak_memory_stats()
        run, ends = bench_step.timed_run(
            *(*machine.run_settings(f"epoch/{precision}"), f"precision={precision}"),
            *("data=cifar10", f"data.train_path='{images}'", "data.format=tensors", *sizes),
        )
        assert run.checkpoint is not None
        batch = json.loads((run.checkpoint.parent / "args.json").read_text())["optimizer"][
            "batch_size"
        ]
        seconds = ends[-1] - ends[0]
        findings.rows.append(
            {
                "precision": precision,
                "steps": len(ends),
                "batch": batch,
                "images/s": round((len(ends) - 1) * batch / seconds),
                "ms a step": round(1e3 * bench_step.seconds_between(ends), 2),
                "GB": round(torch.cuda.max_memory_allocated() / 1e9, 2) if machine.has_gpu else "",
                "loss": round(run.metrics["train_contrastive_loss"], 3),
            }
        )
        finite = all(bool(v.isfinite().all()) for v in weights_of(run.checkpoint).values())
        findings.require(finite, f"{precision}: weights are not finite.")
    return findings


# what is done with a checkpoint


def evaluation(machine: Machine) -> Findings:
    """Export a checkpoint, and evaluate it by kNN and linear probes."""
    findings = Findings(note="The checkpoint of one epoch in float32.")
    if (machine.scratch / "epoch" / "32-true").exists():
        checkpoint = checkpoint_in(machine.scratch / "epoch" / "32-true")
    else:
        findings.note = "A run of four steps on the digits, because part epoch left no checkpoint."
        settings = [*machine.run_settings("evaluation"), "max_steps=4"]
        found = training.pretrain(composed("mocov3_margin", settings)).checkpoint
        assert found is not None
        checkpoint = found
    named = f"pretrained_feature_extractor={checkpoint}"

    def add(what: str, run: Any) -> float:
        began = time.perf_counter()
        accuracy = float(run())
        seconds = round(time.perf_counter() - began, 1)
        findings.rows.append({"what": what, "accuracy, %": f"{accuracy:.2f}", "seconds": seconds})
        return accuracy

    few = [named, "label_fraction=0.2"]
    pair = [
        add(f"kNN, {device}", lambda d=device: knn([*few, f"device={d}"], False)["acc1"])
        for device in (machine.device, "cpu")
    ]
    findings.require(abs(pair[0] - pair[1]) <= 1.0, "kNN differs from that on the CPU.")
    short = [named, "passes=1", "max_epochs=5"]
    add(f"fast probe, {machine.device}", lambda: probe([*short, f"device={machine.device}"]).acc1)
    host.load()
    exported = export(checkpoint, "safetensors", machine.scratch / "exported")
    findings.require(any(exported.glob("*.safetensors")), "The export has written no weights.")
    settings = machine.run_settings("linear")
    limits = ("max_epochs=1", "limit_train_batches=4")
    said = command("main_linear.py", "--config-name", "linear.yaml", named, *settings, *limits)
    findings.require("Validation accuracy" in said, "main_linear.py prints no accuracy.")
    return findings
