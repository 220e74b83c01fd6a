"""The law of the scale at the margins paper's size, for a GPU: does s = 20 win after 200 epochs?

MoCo v3 with a ResNet-18 on CIFAR-10 and CIFAR-100, s = 1, 5 and 20, 50 and 200 epochs, at the
paper's rate and at the rate that is best for s = 1. That rate is chosen on held-out images:

    python scripts/reproduce law --preset paper --plan     # what it costs, in GPU hours
    python scripts/reproduce/hold_out.py <cifar10> <split10> --per-class 500
    python scripts/reproduce/hold_out.py <cifar100> <split100> --per-class 50
    python scripts/reproduce law_tuning --preset paper \
        --images cifar10_choose=<split10>/choose cifar100_choose=<split100>/choose
    python scripts/reproduce law_tuning --preset paper --choose
    python scripts/reproduce law --preset paper --images cifar10=<cifar10> cifar100=<cifar100>

Without the chosen rates the last command runs the paper's rate alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reproduce import choices
from reproduce.experiments import Cell, Entry, Experiment
from reproduce.papers import TITLES

METHOD = "mocov3_margin"
DATA = ("cifar10", "cifar100")
SCALES = (1, 5, 20)
EPOCHS = (50, 200)
PAPER_RATE = 0.06
# Each is twice the one before; the study's small networks did best at 0.96.
RATES = (PAPER_RATE, 0.12, 0.24, 0.48, 0.96)
SEEDS, TUNING_SEEDS = (1, 2, 3), (0,)
PROBE_EPOCHS = 100  # of configs/linear.yaml
CHOSEN = Path(__file__).with_name("law_paper_chosen.yaml")


def rate_name(data: str, epochs: int) -> str:
    """Return the name by which a chosen rate is stored."""
    return f"{data}, {epochs} epochs"


def _cell(data: str, epochs: int, scale: float, rate: float) -> Cell:
    changes = (
        f"method_kwargs.margins.positive_scale={scale:g}",
        f"optimizer.lr={rate:g}",
        f"max_epochs={epochs}",
    )
    return Cell(METHOD, data, "baseline", changes)


def _row(epochs: int, scale: float, rate: float) -> str:
    return f"MoCo v3, {epochs} epochs, rate = {rate:g}, s = {scale:g}"


def tuning(data: str, epochs: int) -> list[Entry]:
    """Return s = 1 at every rate, on held-out images."""
    held_out = f"{data}_choose"
    return [
        Entry(
            _row(epochs, 1, rate),
            f"{TITLES[data]}, held-out images",
            _cell(held_out, epochs, 1, rate),
            held_out,
            x=rate,
            seeds=TUNING_SEEDS,
        )
        for rate in RATES
    ]


def _compared(rates: Mapping[str, float]) -> Iterator[Entry]:
    """Yield every scale at the paper's rate and at the chosen one, if that is another."""
    for data in DATA:
        for epochs in EPOCHS:
            tuned = rates.get(rate_name(data, epochs), PAPER_RATE)
            for rate in sorted({PAPER_RATE, tuned}):
                for scale in SCALES:
                    yield Entry(
                        _row(epochs, scale, rate),
                        TITLES[data],
                        _cell(data, epochs, scale, rate),
                        data,
                        baseline=None if scale == 1 else _row(epochs, 1, rate),
                        seeds=SEEDS,
                    )


def _tuned() -> Iterator[Entry]:
    for data in DATA:
        for epochs in EPOCHS:
            yield from tuning(data, epochs)


def experiments(rates: Mapping[str, float]) -> dict[str, Experiment]:
    """Return both grids by name, in the order in which they are run."""
    return {
        "law_tuning": Experiment("The rate of s = 1 at the paper's size", tuple(_tuned())),
        "law": Experiment("The scale at the paper's size", tuple(_compared(rates))),
    }


EXPERIMENTS = experiments(choices.read(CHOSEN))


def choose(accuracies: Mapping[Cell, float]) -> dict[str, float]:
    """Return the rate with the highest accuracy for every data set and length.

    Raises:
        ValueError: a run is missing.
    """
    rates: dict[str, float] = {}
    for data in DATA:
        for epochs in EPOCHS:
            entries = tuning(data, epochs)
            missing = [entry.row for entry in entries if entry.cell not in accuracies]
            if missing:
                raise ValueError(
                    f"{len(missing)} runs of law_tuning are missing, such as {missing[0]!r} "
                    f"on {entries[0].column}"
                )
            best = max(entries, key=lambda entry: accuracies[entry.cell])
            rates[rate_name(data, epochs)] = best.x or PAPER_RATE
    return rates


def budget() -> list[list[str]]:
    """Return the lines of the table of costs: runs, epochs and estimated hours of an A100."""
    # Counts operations of networks; it needs torch and solo-learn, the rest of this file does not.
    import costs

    import solo_margins

    solo_margins.register()
    flops_of = {data: _flops_by_data(costs, data) for data in DATA}
    lines = [["grid", "runs", "epochs", "GPU hours (estimate)"]]
    # Any rate but the paper's: as many runs as there can be.
    names = [rate_name(data, epochs) for data in DATA for epochs in EPOCHS]
    planned = experiments(dict.fromkeys(names, RATES[-1]) | choices.read(CHOSEN))
    all_runs, all_epochs, all_flops = 0, 0, 0.0
    for name, experiment in planned.items():
        runs = [entry.cell for entry in experiment.entries for _ in entry.seeds]
        epochs, flops = 0, 0.0
        for cell in runs:
            an_epoch, a_probe = flops_of[cell.data.removesuffix("_choose")]
            length = int(dict(change.split("=", 1) for change in cell.changes)["max_epochs"])
            epochs += length
            flops += an_epoch * length + a_probe
        lines.append([f"`{name}`", f"{len(runs)}", f"{epochs:,}", costs.hours(flops)])
        all_runs, all_epochs, all_flops = (
            all_runs + len(runs),
            all_epochs + epochs,
            all_flops + flops,
        )
    return [*lines, ["all", f"{all_runs}", f"{all_epochs:,}", costs.hours(all_flops)]]


def _flops_by_data(costs: Any, data: str) -> tuple[float, float]:
    """Return the operations of an epoch, and of a probe, which freezes the network."""
    cfg, network, image = costs.configured(METHOD, f"data={data}")
    forward = costs.forward_flops(network, image)
    student, teacher = costs.passes(METHOD, cfg.protocol.symmetric)
    epoch = costs.step_flops(forward, costs.IMAGES[data], student, teacher)
    return epoch, forward * costs.IMAGES[data] * PROBE_EPOCHS
