"""Folders of runs as the lens and the runner leave them, without training."""

import json
import math
from dataclasses import asdict

import torch

from solo_margins.lens import records
from solo_margins.lens.records import Histogram, Observation

SETTINGS = {
    "name": "mocov3_margin-digits-pos_curv",
    "seed": 1,
    "method": "mocov3_margin",
    "variant": "pos_curv",
    "data": {"name": "digits", "train_path": "/data/digits"},
    "optimizer": {"lr": 0.15, "batch_size": 128},
    "method_kwargs": {
        "temperature": 0.2,
        "margins": {"positive_scale": 2.0, "curvature": 1.0},
        "polarization": {"weight": 0.0, "lower": 0.2, "upper": 0.4},
    },
}
HEADER = {
    "method": "MoCoV3Margin",
    "settings": SETTINGS,
    "versions": {"torch": "2.14.1", "solo-margins": "0.1.0"},
    "every": 50,
}


def observation(step, progress, speed=1.0, margins=None, **scalars):
    """What a run shows that pulls positives together and uses more directions as it goes."""
    torch.manual_seed(step)
    done = 1 - math.exp(-3 * speed * progress)
    positive = (1.25 - 0.75 * done + 0.22 * torch.randn(1500)).clamp(0, math.pi)
    negative = (1.3 + 0.27 * done + (0.3 - 0.12 * done) * torch.randn(6000)).clamp(0, math.pi)
    q = torch.sigmoid(4 * done - 2.5 + torch.randn(1500))
    distance = (1 - negative.cos()) / 2
    return Observation(
        step=step,
        epoch=step / 50,
        scalars={
            "loss": 4.2 - 2.2 * done,
            "chance_loss": math.log(128),
            "loss_positive": -1.0 - 3.0 * done,
            "loss_negative": 5.2 + 0.8 * done,
            "positive_angle": positive.mean().item(),
            "negative_angle": negative.mean().item(),
            "angle_separation": 0.55 + 0.42 * done,
            "q": q.mean().item(),
            "pull": 0.9 - 0.5 * done,
            "push": 0.1 + 0.2 * done * speed,
            "effective_scale": 1.2 + 0.5 * done,
            "effective_scale_negatives": 1.0,
            "silenced_positives": 0.02 + 0.1 * done,
            "alignment": 1.4 - 1.1 * done,
            "uniformity": -1.0 - 2.2 * done,
            "rankme": 12 + 60 * done,
            "rankme_rows": 512.0,
            "alpha_req": 1.8 - 0.7 * done,
            "feature_width": 128.0,
            **scalars,
        },
        histograms={
            "positive_angle": Histogram.of(positive, 0.0, math.pi, 60),
            "negative_angle": Histogram.of(negative, 0.0, math.pi, 60),
            "q": Histogram.of(q, 0.0, 1.0, 50),
            "distance": Histogram.of(distance, 0.0, 1.0, 50),
        },
        margins=margins or {},
    )


def metrics(path, accuracies, knn=None):
    """Write the log of a run: epochs to accuracies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["epoch,step,train_acc1_step,val_acc1,val_knn_acc1"]
    for epoch, value in accuracies.items():
        neighbours = "" if knn is None else knn[epoch]
        lines.append(f"{epoch},{50 * epoch + 40},12.5,,")
        lines.append(f"{epoch},{50 * epoch + 49},,{value},{neighbours}")
    path.write_text("\n".join(lines) + "\n")


def write_lens(folder, observations, **header):
    """Write the file of the lens alone, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / records.FILE
    records.begin(path, {**HEADER, **header}, first_step=0)
    for seen in observations:
        records.add(path, "observation", asdict(seen))
    return path


def write_run(folder, looks=12, steps=1000, speed=1.0, scalars=None, margins=None, **settings):
    """Write a whole run and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    margins = SETTINGS["method_kwargs"]["margins"] if margins is None else margins
    settings = {**SETTINGS, **settings}
    settings["method_kwargs"] = {**settings["method_kwargs"], "margins": margins}
    (folder / "args.json").write_text(json.dumps(settings))
    epochs = range(20)
    metrics(
        folder / "logs" / "version_0" / "metrics.csv",
        {epoch: 95 - 70 * math.exp(-speed * (epoch + 1) / 5) for epoch in epochs},
        {epoch: 96 - 50 * math.exp(-speed * (epoch + 1) / 4) for epoch in epochs},
    )
    progress = [place / max(1, looks - 1) for place in range(looks)]
    seen = [observation(round(p * steps), p, speed, margins, **(scalars or {})) for p in progress]
    path = write_lens(folder, seen)
    text = "11 % of the positives get no gradient."
    warning = {"step": steps // 2, "name": "silenced_positives", "text": text}
    records.add(path, "warning", warning)
    cost = {"observations": looks, "seconds": 0.05 * looks, "training_seconds": 0.1 * steps}
    records.add(path, "cost", cost)
    return folder
