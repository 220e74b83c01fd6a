"""The grids of docs/results/study/protocol.md.

Settings are tuned on held-out images, then fixed and tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduce import choices, read_yaml
from reproduce.experiments import Cell, Entry, Experiment

PLAN: dict[str, Any] = read_yaml("protocol.yaml")
ROWS: dict[str, Any] = PLAN["rows"]
SEEDS: dict[str, tuple[int, ...]] = {name: tuple(seeds) for name, seeds in PLAN["seeds"].items()}
EPOCHS: dict[str, Any] = PLAN["epochs"]
# The settings that tuning has chosen, by row; written by --choose, and committed.
CHOSEN = Path(__file__).with_name("chosen.yaml")

CHOOSING, TESTING, OTHER = "cifar10_choose", "cifar10_test", "tinyimagenet100"
SCALE = "method_kwargs.margins.positive_scale"
HELD = ("method=mocov3_study", "+method_kwargs.hold_gradient_norm=true")

# Grids that use no test images.
HELD_OUT = ("tune", "lower_rates")

# For the budget: seconds of one step, and of start and probe of a run, on one core.
SECONDS_A_STEP, SECONDS_A_RUN = 0.08, 25

Chosen = Mapping[str, Sequence[str]]


def _cell(row: str, data: str, epochs: int, *settings: str) -> Cell:
    """Return the cell of a row; a setting that comes later replaces an earlier one."""
    method, variant = ROWS[row]["recipe"]
    changes = (*PLAN["always"], *ROWS[row].get("changes", ()), *settings, f"max_epochs={epochs}")
    merged = dict(change.split("=", 1) for change in changes)
    return Cell(method, data, variant, tuple(f"{key}={value}" for key, value in merged.items()))


def _title(data: str) -> str:
    return PLAN["data"][data]["title"]


def _tried(row: str) -> list[list[str]]:
    return PLAN["tried"][ROWS[row]["tried"]]


def _tuned_entry(row: str, settings: Sequence[str]) -> Entry:
    names = {"method_kwargs.temperature": "τ", "optimizer.lr": "rate"}
    said = ", ".join(f"{names[k]} = {v}" for k, v in (s.split("=") for s in settings))
    cell = _cell(row, CHOOSING, EPOCHS["tune"], *settings)
    return Entry(f"{row}, {said}", _title(CHOOSING), cell, CHOOSING, seeds=SEEDS["tune"])


def tuning() -> Iterator[Entry]:
    """Yield every row with every setting that is tried for it."""
    for row in ROWS:
        yield from (_tuned_entry(row, settings) for settings in _tried(row))


def _lower_rates() -> Iterator[Entry]:
    """Yield the rows that were best at the smallest rate tried, with smaller ones."""
    for row in PLAN["lower_rates"]["rows"]:
        for temperature in dict.fromkeys(settings[0] for settings in _tried(row)):
            for rate in PLAN["lower_rates"]["rates"]:
                yield _tuned_entry(row, (temperature, f"optimizer.lr={rate}"))


def choose(accuracies: Mapping[Cell, float]) -> dict[str, list[str]]:
    """Return the best settings of every row: those with the highest accuracy, else the first."""
    return {
        row: max(_tried(row), key=lambda tried: accuracies[_tuned_entry(row, tried).cell])
        for row in ROWS
    }


def _main(chosen: Chosen) -> Iterator[Entry]:
    # Both probes of a pretraining are made while its checkpoint is there.
    for data in (TESTING, OTHER):
        column = _title(TESTING) + (f" → {_title(OTHER)}" if data == OTHER else "")
        for row, said in ROWS.items():
            if said.get("only_tuned") or (data == OTHER and not said.get("transfers")):
                continue
            cell = _cell(row, TESTING, EPOCHS["main"], *chosen[row])
            yield Entry(row, column, cell, data, baseline=said.get("baseline"), seeds=SEEDS["main"])


def _optimizers(chosen: Chosen) -> Iterator[Entry]:
    small = f"SGD at rate {PLAN['small_rate']}"
    # Name to row and to what is changed in its settings.
    optimizers: dict[str, tuple[str, tuple[str, ...]]] = {
        "SGD": ("MoCo v3", ()),
        small: ("MoCo v3", (f"optimizer.lr={PLAN['small_rate']}",)),
        "LARS": ("MoCo v3 by LARS", ()),
        "AdamW": ("MoCo v3 by AdamW", ()),
    }
    for name, (row, changes) in optimizers.items():
        baseline = f"{name}, s = {PLAN['scales'][0]}"
        for is_held in (False, True) if row == "MoCo v3" else (False,):
            for scale in PLAN["scales"][is_held:]:
                title = f"{name}{' with its norm held' if is_held else ''}, s = {scale}"
                # In the main grid's order, so that equal runs are made once.
                scaled = [f"{SCALE}={scale}"] if scale != 1 else []
                settings = [*scaled, *chosen[row], *changes, *(HELD if is_held else ())]
                yield Entry(
                    title,
                    _title(TESTING),
                    _cell(row, TESTING, EPOCHS["main"], *settings),
                    TESTING,
                    baseline=None if title == baseline else baseline,
                    x=scale,
                    seeds=SEEDS["few"],
                )


def _temperatures(chosen: Chosen) -> Iterator[Entry]:
    kinds = {
        "MoCo v3": (),
        "MoCo v3 + m₂": ("method_kwargs.margins.subtractive=0.4",),
        "MoCo v3 decoupled": ("method_kwargs.margins.attenuation=1",),
    }
    for kind, changes in kinds.items():
        for value in PLAN["temperatures"]:
            # In the main grid's order, so that equal runs are made once.
            temperature = f"method_kwargs.temperature={value}"
            settings = (*changes, *chosen["MoCo v3"], temperature)
            cell = _cell("MoCo v3", TESTING, EPOCHS["main"], *settings)
            baseline = None if kind == "MoCo v3" else f"MoCo v3, τ = {value}"
            yield Entry(
                f"{kind}, τ = {value}",
                _title(TESTING),
                cell,
                TESTING,
                baseline=baseline,
                x=value,
                seeds=SEEDS["few"],
            )


def _lengths(chosen: Chosen) -> Iterator[Entry]:
    rows = ["MoCo v3", PLAN["primary"], "BYOL", "MoCo v3 decoupled"]
    middle, longest = EPOCHS["long"]
    seeds = {EPOCHS["main"]: SEEDS["main"], middle: SEEDS["few"], longest: SEEDS["two"]}
    for epochs in seeds:
        for row in rows[:3] if epochs == longest else rows:
            steps = epochs * PLAN["data"][TESTING]["steps"]
            yield Entry(
                f"{row}, {steps:,} steps",
                _title(TESTING),
                _cell(row, TESTING, epochs, *chosen[row]),
                TESTING,
                baseline=None if row == "MoCo v3" else f"MoCo v3, {steps:,} steps",
                x=steps,
                seeds=seeds[epochs],
            )


def _controls(chosen: Chosen) -> Iterator[Entry]:
    for row in PLAN["controls"]:
        baseline = ROWS[row]["baseline"]
        same = f"{baseline} at the settings of {row}"
        for title, trained in ((same, baseline), (row, row)):
            yield Entry(
                title,
                _title(TESTING),
                _cell(trained, TESTING, EPOCHS["main"], *chosen[row]),
                TESTING,
                baseline=None if title == same else same,
                seeds=SEEDS["main"],
            )


def _other_data(chosen: Chosen) -> Iterator[Entry]:
    for data in (OTHER, TESTING):
        column = _title(OTHER) + (f" → {_title(TESTING)}" if data == TESTING else "")
        for row, said in ROWS.items():
            if said.get("transfers"):
                # As many steps of warm-up as on CIFAR-10.
                warmup = "scheduler.warmup_epochs=1.125"
                cell = _cell(row, OTHER, EPOCHS[OTHER], *chosen[row], warmup)
                yield Entry(
                    row, column, cell, data, baseline=said.get("baseline"), seeds=SEEDS["few"]
                )


def final_experiments(chosen: Chosen) -> dict[str, Experiment]:
    """Return the grids of rows whose settings are fixed, by name; without settings all are empty.

    They are in the order in which they are run.
    """
    grids = {
        "main": ("The rows at their tuned settings", _main, None, ()),
        "optimizers": (
            "The scale under three optimisers",
            _optimizers,
            "s",
            ("weight_norm", "effective_rate", "turn"),
        ),
        "temperatures": (
            "Attenuation against the temperature",
            _temperatures,
            "τ",
            ("q", "effective_scale", "turn"),
        ),
        "other_data": ("Another data set, and transfer", _other_data, None, ()),
        "lengths": ("The scale against the length of training", _lengths, "steps", ()),
        "controls": ("A row against its baseline at equal settings", _controls, None, ()),
    }
    return {
        name: Experiment(title, tuple(entries(chosen)) if chosen else (), axis, figures=figures)
        for name, (title, entries, axis, figures) in grids.items()
    }


EXPERIMENTS = {
    "tune": Experiment("Six settings for every row", tuple(tuning())),
    "lower_rates": Experiment("Smaller rates than those of the tuning", tuple(_lower_rates())),
    **final_experiments(choices.read(CHOSEN)),
}


def budget() -> list[list[str]]:
    """Return the lines of the table of costs: runs, steps and core-hours of every grid."""
    # Which settings are chosen decides only how many runs the grids share.
    chosen = choices.read(CHOSEN) or {row: _tried(row)[0] for row in ROWS}
    lines, hours = [["grid", "runs", "steps", "core-hours"]], 0.0
    known: set[tuple[Cell, int]] = set()
    held_out = {name: EXPERIMENTS[name] for name in HELD_OUT}
    for name, experiment in {**held_out, **final_experiments(chosen)}.items():
        runs = {(entry.cell, seed) for entry in experiment.entries for seed in entry.seeds} - known
        known |= runs
        steps = sum(_steps(cell) for cell, _ in runs)
        taken = (steps * SECONDS_A_STEP + len(runs) * SECONDS_A_RUN) / 3600
        hours += taken
        lines.append([f"`{name}`", f"{len(runs)}", f"{steps:,}", f"{taken:.1f}"])
    total = sum(_steps(cell) for cell, _ in known)
    return [*lines, ["all", f"{len(known)}", f"{total:,}", f"{hours:.1f}"]]


def _steps(cell: Cell) -> int:
    changes = dict(change.split("=", 1) for change in cell.changes)
    return int(changes["max_epochs"]) * PLAN["data"][cell.data]["steps"]
