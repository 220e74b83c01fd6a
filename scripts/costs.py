"""Print what a step costs on 8, 64 and 1,024 GPUs, and estimates of the recipes' GPU hours.

Nothing is timed and no GPU is needed: networks are built without weights (device "meta"), their
operations and activations are counted, and formulas do the rest. tests/scripts/test_costs.py
compares the formulas with what 1, 2 and 4 processes count.

    python scripts/costs.py
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.flop_counter import FlopCounterMode

import solo_margins
from solo_margins.backbones import build_backbone
from solo_margins.losses.engine.geometry import row_tiles
from solo_margins.resolvers import composed

BATCHES = (4096, 16384, 65536)
GPUS = (8, 64, 1024)
PART = 32
"""Images of a part, with simulated ranks."""

A100_BF16 = 312e12
"""Floating-point operations a second that the data sheet of an A100 names for bfloat16."""
SUSTAINED = (0.3, 0.1)
"""Assumed shares of it that training sustains: large networks well fed, small ones or float32."""

IMAGES = {
    "digits": 1_433,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "stl10": 105_000,
    "tinyimagenet": 100_000,
    "imagenet100": 127_000,  # about: 100 classes of 1,300 images or a few less
    "imagenet": 1_281_167,
    "folder": 100_000,  # of a user; an example
}
WITH_TEACHER = ("mocov2plus_margin", "nnbyol_curv")
ONE_DIRECTION = ("mocov3_margin", "byol_curv")
"""Methods with a teacher that have the setting ``method_kwargs.symmetric``."""

FLOAT = 4  # bytes; losses compute in float32


# ------------------------------------------------------------------------------- one loss call


@dataclass(frozen=True)
class LossCost:
    """What a loss costs each of n processes in a step, forward and backward."""

    received: int  # bytes of embeddings from other processes, forward
    received_backward: int  # bytes of their gradients
    flops: int  # of its matrix products
    matrix: int  # bytes of the similarity matrix, which a plain loss holds
    kept: int  # bytes that ours keeps for backward
    tile: int  # bytes of the part of the matrix that ours holds at a time, on a GPU


def loss_cost(
    rows: int, columns: int, width: int, processes: int, keys_have_gradient: bool
) -> LossCost:
    """Return the cost of comparing a process's rows with the columns of all processes.

    Columns are gathered; where they have a gradient, it is summed and scattered in backward. The
    product of rows and columns is needed once forward and once backward for each that has one.
    """
    gathered = columns * width * FLOAT
    from_others = gathered * (processes - 1) // processes
    products = 3 if keys_have_gradient else 2
    # The rows as they came in, at length one, and their gradient; the inverse of their lengths.
    kept = rows * (3 * width + 1) * FLOAT
    if not keys_have_gradient:
        kept += gathered
    elif processes > 1:
        kept += 2 * gathered
    return LossCost(
        received=from_others,
        received_backward=from_others if keys_have_gradient else 0,
        flops=products * 2 * rows * columns * width,
        matrix=rows * columns * FLOAT,
        kept=kept,
        tile=row_tiles(rows, columns, None, torch.device("cuda"))[0].stop * columns * FLOAT,
    )


def simclr_cost(batch: int, processes: int, width: int = 128) -> LossCost:
    """Return the cost of SimCLR's loss: both views of a process against those of all."""
    return loss_cost(2 * batch // processes, 2 * batch, width, processes, keys_have_gradient=True)


def mocov3_cost(batch: int, processes: int, width: int = 256) -> LossCost:
    """Return the cost of one direction of MoCo v3's loss: queries against the keys of all."""
    return loss_cost(batch // processes, batch, width, processes, keys_have_gradient=False)


# --------------------------------------------------------------------------------- the network


def forward_flops(network: nn.Module, images: Tensor) -> int:
    """Return the floating-point operations of a forward pass, a multiply-add as two."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(images)
    return counter.get_total_flops()


def saved_bytes(network: nn.Module, images: Tensor) -> int:
    """Return the bytes that a forward pass keeps for backward, without weights and images."""
    known = {StorageWeakRef(x.untyped_storage()) for x in (*network.parameters(), images)}
    saved: dict[StorageWeakRef, int] = {}
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        key = StorageWeakRef(storage)
        if key not in known:  # in-place activations share the storage of what they change
            saved[key] = storage.nbytes()
            kept.append(tensor)
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        return tensor

    with saved_tensors_hooks(pack, unpack):
        output = network(images)
    del output
    return sum(saved.values())


def activation_bytes(
    per_image: float, image_bytes: int, images: int, views: int, parts: int = 1
) -> float:
    """Return the activations that one process holds at most.

    Args:
        per_image: what a pass keeps for an image.
        image_bytes: of one image of one view.
        images: of this process.
        views: that the student sees.
        parts: ``method_kwargs.simulated_ranks``. A part keeps its images alone, until backward
            encodes it once more: then one part of one view has its activations.
    """
    if parts == 1:
        return per_image * images * views
    return per_image * images / parts + image_bytes * images * views


def passes(method: str, symmetric: bool) -> tuple[int, int]:
    """Return how often student and teacher see each image in an epoch."""
    if method in WITH_TEACHER:
        return 2, 2
    if method in ONE_DIRECTION:
        return (2, 2) if symmetric else (1, 1)
    return 2, 0


def step_flops(forward: int, images: int, student: int, teacher: int) -> int:
    """Return the operations of networks in a step: backward takes twice those of forward."""
    return forward * images * (3 * student + teacher)


def gpu_hours(flops: float, sustained: float) -> float:
    """Return hours of an A100 that sustains a share of its bfloat16 rate."""
    return flops / (A100_BF16 * sustained) / 3600


# ---------------------------------------------------------------------------------- the tables


def configured(method: str, *overrides: str) -> Any:
    """Return the configuration of a recipe, its backbone without weights, and an image."""
    cfg = composed(method, ["data.train_path=/images", "variant=baseline", *overrides])
    kwargs = cfg.backbone.kwargs
    cfg.backbone.kwargs = {name: value for name, value in kwargs.items() if value is not None}
    with torch.device("meta"):
        network = build_backbone(cfg)
        return cfg, network, torch.empty(1, 3, cfg.image.size, cfg.image.size)


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def size(number: float) -> str:
    """Return bytes in decimal units."""
    if number == 0:
        return "0"
    units = ("B", "kB", "MB", "GB", "TB")
    thousands = min(int(math.log(number, 1000)), len(units) - 1)
    return f"{rounded(number / 1000**thousands, 3)} {units[thousands]}"


def rounded(number: float, digits: int) -> str:
    """Return a number with so many digits, or more if its whole part has more."""
    if number >= 10 ** (digits - 1):
        return f"{number:,.0f}"
    return f"{number:.{digits}g}"


def loss_table(method: str) -> str:
    """Return what a loss costs one GPU in a step, by batch and number of GPUs."""
    cfg, network, image = configured(method, "data=imagenet")
    forward = forward_flops(network, image)
    student, teacher = passes(method, symmetric=True)
    cost_of, directions = (mocov3_cost, 2) if teacher else (simclr_cost, 1)
    rows = []
    for batch in BATCHES:
        for gpus in GPUS:
            cost = cost_of(batch, gpus, cfg.method_kwargs.proj_output_dim)
            flops = cost.flops * directions
            share = flops / (flops + step_flops(forward, batch // gpus, student, teacher))
            memory = cost.kept * directions + cost.tile
            cells = [f"{batch:,}", f"{gpus:,}", size(cost.received * directions)]
            cells += [size(cost.received_backward * directions), rounded(flops / 1e9, 3)]
            cells += [f"{share:.2%}", size(cost.matrix * directions), size(memory)]
            rows.append(cells)
    head = ("batch", "GPUs", "received forward", "received backward", "GFLOP", "of the step's")
    return as_table((*head, "matrices of a plain loss", "ours holds"), rows)


def activation_table() -> str:
    """Return the activations of a ResNet-50 on one GPU, without and with simulated ranks."""
    _, network, image = configured("mocov3_margin", "data=imagenet")
    per_image = saved_bytes(network, image.expand(2, -1, -1, -1)) / 2
    image_bytes = image.numel() * FLOAT
    rows = []
    for batch in BATCHES:
        for gpus in GPUS:
            images = batch // gpus
            parts = max(1, images // PART)
            whole, in_parts = (
                size(activation_bytes(per_image, image_bytes, images, 2, n)) for n in (1, parts)
            )
            rows.append((f"{batch:,}", f"{gpus:,}", f"{images:,}", whole, str(parts), in_parts))
    head = ("batch", "GPUs", "images of a GPU", "activations", "`simulated_ranks`", "with it")
    return as_table(head, rows)


def gradient_traffic() -> str:
    """Return how much data parallel training itself moves, for comparison."""
    _, network, _ = configured("mocov3_margin", "data=imagenet")
    weights = sum(parameter.numel() for parameter in network.parameters())
    return (
        f"ResNet-50 has {weights / 1e6:.1f} million weights: averaging their gradients brings every"
        f" GPU about {size(2 * weights * FLOAT)} a step, whatever the batch."
    )


def hours(flops: float) -> str:
    """Return GPU hours at both assumed rates."""
    if gpu_hours(flops, min(SUSTAINED)) < 0.01:
        return "under 0.01"
    estimates = [rounded(gpu_hours(flops, share), 2) for share in SUSTAINED]
    return " to ".join(estimates)


def hours_table() -> str:
    """Return estimated GPU hours of the recipes."""
    recipes: list[tuple[str, str, list[str]]] = [("mocov3_margin", data, []) for data in IMAGES]
    # SimCLR's ViT has the operations of MoCo v3's, which only one form of solo-learn builds.
    recipes.append(("simclr_margin", "imagenet", ["backbone=vit_small"]))
    rows = []
    for method, data, more in recipes:
        cfg, network, image = configured(method, f"data={data}", *more)
        forward = forward_flops(network, image)
        name = " ".join([f"`data={data}`", *(f"`{word}`" for word in more)])
        cells = [name, f"{cfg.backbone.name}, {cfg.image.size} px", rounded(forward / 1e9, 3)]
        cells += [f"{IMAGES[data]:,} × {cfg.max_epochs}"]
        for of in (ONE_DIRECTION[0], WITH_TEACHER[0], "simclr_margin"):
            seen = passes(of, cfg.protocol.symmetric)
            cells.append(hours(step_flops(forward, IMAGES[data] * cfg.max_epochs, *seen)))
        rows.append(cells)
    head = ("recipe", "backbone", "GFLOP an image", "images × epochs")
    methods = ("`mocov3_margin`, `byol_curv`", "`mocov2plus_margin`, `nnbyol_curv`", "all others")
    return as_table((*head, *methods), rows)


def tables() -> list[str]:
    """Return everything that is printed."""
    solo_margins.register()
    losses = [loss_table("simclr_margin"), loss_table("mocov3_margin")]
    return [*losses, gradient_traffic(), activation_table(), hours_table()]


if __name__ == "__main__":
    print("\n\n".join(tables()))
