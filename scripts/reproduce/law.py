"""The grids of docs/results/law/protocol.md: which scale of positives is best, and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduce import choices, read_yaml
from reproduce.experiments import Cell, Entry, Experiment
from reproduce.protocol import CHOOSING, HELD, OTHER, PLAN, SCALE, TESTING

LAW: dict[str, Any] = read_yaml("law.yaml")
METHODS: dict[str, Any] = LAW["methods"]
EPOCHS: dict[str, int] = LAW["epochs"]
SEEDS: dict[str, tuple[int, ...]] = {name: tuple(seeds) for name, seeds in LAW["seeds"].items()}
MOCO, SIMCLR = METHODS
# What the tuning and the map have chosen; written by --choose, and committed.
CHOSEN = Path(__file__).with_name("law_chosen.yaml")

RATE = "learning rate of 256 images"
TEMPERATURE = "method_kwargs.temperature"

# For the budget: seconds of one step, and of start and probe of a run, on one core.
SECONDS_A_STEP, SECONDS_A_RUN = 0.055, 15
WIDE_SECONDS_A_STEP = 0.14

Accuracies = Mapping[Cell, float]


def rate_name(method: str, temperature: float, length: str) -> str:
    """Return the name by which a chosen rate is stored."""
    return f"{method}, τ = {temperature:g}, {length}"


def _cell(
    method: str,
    data: str,
    epochs: int,
    scale: float,
    temperature: float,
    rate: float,
    settings: Sequence[str] = (),
) -> Cell:
    changes = [
        *LAW["always"],
        f"{SCALE}={scale:g}",
        f"{TEMPERATURE}={temperature:g}",
        f"optimizer.lr={rate:g}",
        f"max_epochs={epochs}",
        *settings,
    ]
    return Cell(method, data, "baseline", tuple(changes))


def steps_of_length(length: str) -> int:
    """Return how many steps on CIFAR-10 a length has, by its name in law.yaml."""
    return EPOCHS[length] * PLAN["data"][CHOOSING]["steps"]


def _steps_title(length: str) -> str:
    return f"{steps_of_length(length):,} steps"


def _curve(method: str, temperature: float, *more: str) -> str:
    return ", ".join([METHODS[method]["title"], f"τ = {temperature:g}", *more])


def _row(method: str, scale: float, temperature: float, *more: str) -> str:
    return f"{_curve(method, temperature, *more)}, s = {scale:g}"


def _title(data: str) -> str:
    return PLAN["data"][data]["title"]


def _all_temperatures(method: str) -> list[float]:
    of_map, of_control = METHODS[method]["map"], METHODS[method]["control"]
    return sorted({*of_map["temperatures"], *of_control["temperatures"]})


def _tuned(
    method: str, length: str, temperature: float, scale: float, rate: float, seeds: tuple[int, ...]
) -> Entry:
    cell = _cell(method, CHOOSING, EPOCHS[length], scale, temperature, rate)
    steps = _steps_title(length)
    at_rate = (f"rate = {rate:g}", steps)
    return Entry(
        _row(method, scale, temperature, *at_rate),
        _title(CHOOSING),
        cell,
        CHOOSING,
        baseline=None if scale == 1 else _row(method, 1, temperature, *at_rate),
        x=rate,
        seeds=seeds,
        curve=_row(method, scale, temperature, steps),
    )


def tried_rates(name: str) -> list[float]:
    """Return the rates that are tried for s = 1, smallest first, by the name of the chosen one."""
    return sorted([*LAW["rates"], *LAW["more_rates"].get(name, ())])


def rate_entries() -> dict[str, list[Entry]]:
    """Return the runs by which each rate of s = 1 is chosen, by its name."""
    places = [
        (method, "short", temperature, SEEDS["tune"])
        for method in METHODS
        for temperature in _all_temperatures(method)
    ]
    for method in METHODS:
        of_map = METHODS[method]["map"]
        for length in of_map["lengths"][1:]:
            for temperature in of_map["temperatures"]:
                places.append((method, length, temperature, SEEDS["tune_longer"]))
    return {
        (name := rate_name(method, temperature, length)): [
            _tuned(method, length, temperature, 1, rate, seeds) for rate in tried_rates(name)
        ]
        for method, length, temperature, seeds in places
    }


def _sides(choice: Mapping[str, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return scale and temperature of both sides of a primary comparison, s = 1 first."""
    return (1, choice["baseline_temperature"]), (choice["scale"], choice["temperature"])


def test_rate_entries(primary: Mapping[str, Any]) -> dict[float, list[Entry]]:
    """Return the runs by which MoCo v3 is tuned at the length of the test, by their scale."""
    return {
        scale: [
            _tuned(MOCO, "test", temperature, scale, rate, SEEDS["tune"])
            for rate in LAW["test_rates"]
        ]
        for scale, temperature in _sides(primary[MOCO])
    }


def at_an_end(chosen: Mapping[str, Any]) -> list[str]:
    """Return the names whose chosen rate is the smallest or the largest that was tried."""
    tried = [(name, rate, tried_rates(name)) for name, rate in chosen["rates"].items()]
    for scale, rate in chosen.get("test_rates", {}).items():
        tried.append((f"s = {scale:g} in law_rates_test", rate, sorted(LAW["test_rates"])))
    return [name for name, rate, rates in tried if rate in (rates[0], rates[-1])]


def _rates_of_smaller_scales() -> Iterator[Entry]:
    """Yield s = 1 and a smaller scale at all rates: does the rate of s = 1 suit both?"""
    for method in METHODS:
        for temperature in METHODS[method]["map"]["temperatures"]:
            for scale in LAW["tuned_scales"]:
                for rate in tried_rates(rate_name(method, temperature, "short")):
                    yield _tuned(method, "short", temperature, scale, rate, SEEDS["tune"])


def map_seeds(length: str) -> tuple[int, ...]:
    """Return the seeds of the runs of a length in the maps and the schedules."""
    return SEEDS["map_long" if length == "long" else "map"]


def _mapped(
    method: str, rates: Mapping[str, float], length: str, scale: float, temperature: float
) -> Entry:
    rate = rates[rate_name(method, temperature, length)]
    steps = _steps_title(length)
    return Entry(
        _row(method, scale, temperature, steps),
        _title(CHOOSING),
        _cell(method, CHOOSING, EPOCHS[length], scale, temperature, rate),
        CHOOSING,
        baseline=None if scale == 1 else _row(method, 1, temperature, steps),
        x=scale,
        seeds=map_seeds(length),
        curve=_curve(method, temperature, steps),
    )


def map_entries(rates: Mapping[str, float], method: str, lengths: Sequence[str]) -> Iterator[Entry]:
    """Yield a method at every scale and temperature of its map, for some lengths."""
    of_map = METHODS[method]["map"]
    for length in lengths:
        for temperature in of_map["temperatures"]:
            for scale in of_map["scales"]:
                yield _mapped(method, rates, length, scale, temperature)


def _controls(rates: Mapping[str, float]) -> Iterator[Entry]:
    """Yield every scale at every temperature: is the scale a temperature in disguise?"""
    for method in METHODS:
        of_control = METHODS[method]["control"]
        for temperature in of_control["temperatures"]:
            rate = rates[rate_name(method, temperature, "short")]
            for scale in of_control["scales"]:
                yield Entry(
                    _row(method, scale, temperature),
                    _title(CHOOSING),
                    _cell(method, CHOOSING, EPOCHS["test"], scale, temperature, rate),
                    CHOOSING,
                    baseline=None if scale == 1 else _row(method, 1, temperature),
                    x=temperature,
                    y=scale,
                    seeds=SEEDS["control"],
                    curve=METHODS[method]["title"],
                )


def _held(rates: Mapping[str, float]) -> Iterator[Entry]:
    """Yield MoCo v3 with the gradient's norm held: is the scale a step in disguise?"""
    [temperature] = METHODS[MOCO]["map"]["temperatures"]
    rate = rates[rate_name(MOCO, temperature, "short")]
    baseline = _row(MOCO, 1, temperature)
    for is_held in (False, True):
        for scale in LAW["held_scales"] if is_held else [1, *LAW["held_scales"]]:
            row = _row(MOCO, scale, temperature, *(["norm held"] if is_held else []))
            settings = HELD if is_held else ()
            yield Entry(
                row,
                _title(CHOOSING),
                _cell(MOCO, CHOOSING, EPOCHS["test"], scale, temperature, rate, settings),
                CHOOSING,
                baseline=None if row == baseline else baseline,
                x=scale,
                seeds=SEEDS["map"],
                curve="norm held" if is_held else "free",
            )


def _wide(rates: Mapping[str, float]) -> Iterator[Entry]:
    [temperature] = METHODS[MOCO]["map"]["temperatures"]
    for length in LAW["width"]["lengths"]:
        rate = rates[rate_name(MOCO, temperature, length)]
        steps = f"{_steps_title(length)}, twice as wide"
        for scale in LAW["width"]["scales"]:
            settings = LAW["width"]["settings"]
            yield Entry(
                _row(MOCO, scale, temperature, steps),
                _title(CHOOSING),
                _cell(MOCO, CHOOSING, EPOCHS[length], scale, temperature, rate, settings),
                CHOOSING,
                baseline=None if scale == 1 else _row(MOCO, 1, temperature, steps),
                x=scale,
                seeds=SEEDS["map"],
                curve=steps,
            )


def _scheduled(rates: Mapping[str, float], best: Mapping[str, float]) -> Iterator[Entry]:
    """Yield MoCo v3 with a scale that rises or falls, and with the best constant one."""
    [temperature] = METHODS[MOCO]["map"]["temperatures"]
    key = "method_kwargs.schedules.positive_scale"
    for length, scale in best.items():
        rate = rates[rate_name(MOCO, temperature, length)]
        run = _curve(MOCO, temperature, _steps_title(length))
        baseline = None
        for title, ramp in LAW["schedules"].items():
            if length not in ramp["lengths"]:
                continue
            settings = []
            if "kind" in ramp:
                start = ramp["from"] * scale
                settings = [f"{key}.kind={ramp['kind']}", f"{key}.from={start:g}"]
            end = ramp["to"] * scale
            row = f"{run}, {title}"
            yield Entry(
                row,
                _title(CHOOSING),
                _cell(MOCO, CHOOSING, EPOCHS[length], end, temperature, rate, settings),
                CHOOSING,
                baseline=baseline,
                seeds=map_seeds(length),
            )
            baseline = baseline or row


def _compared(
    chosen: Mapping[str, Any],
    name: str,
    data: str,
    epochs: int,
    seeds: tuple[int, ...],
    probed_on: Sequence[str],
    settings: Sequence[str] = (),
) -> Iterator[Entry]:
    """Yield the scale and the temperatures that were chosen under a name, and s = 1.

    They are probed on each of some data, with the data of the pretraining first.
    """
    for target in sorted(probed_on, key=lambda target: target != data):
        transfer = "" if target == data else f" → {_title(target)}"
        for method, choice in chosen[name].items():
            baseline = None
            for scale, temperature in _sides(choice):
                rate = chosen["rates"][rate_name(method, temperature, "short")]
                row = _row(method, scale, temperature)
                yield Entry(
                    row,
                    _title(data) + transfer,
                    _cell(method, data, epochs, scale, temperature, rate, settings),
                    target,
                    baseline=baseline,
                    seeds=seeds,
                )
                baseline = row


def _test(chosen: Mapping[str, Any]) -> Iterator[Entry]:
    both = (TESTING, OTHER)
    yield from _compared(chosen, "primary", TESTING, EPOCHS["test"], SEEDS["test"], both)


def _test_tuned(chosen: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield each side at its own best setting: of MoCo v3 the rate, of SimCLR the temperature."""
    rows = [
        (MOCO, scale, temperature, chosen["test_rates"][scale])
        for scale, temperature in _sides(chosen["primary"][MOCO])
    ]
    (_, compared), side = _sides(chosen["primary"][SIMCLR])
    others = [t for t in METHODS[SIMCLR]["map"]["temperatures"] if t != compared]
    for scale, temperature in (*((1, other) for other in others), side):
        rate = chosen["rates"][rate_name(SIMCLR, temperature, "short")]
        rows.append((SIMCLR, scale, temperature, rate))
    baseline: dict[str, str] = {}
    for method, scale, temperature, rate in rows:
        row = _row(method, scale, temperature, f"rate = {rate:g}")
        yield Entry(
            row,
            _title(TESTING),
            _cell(method, TESTING, EPOCHS["test"], scale, temperature, rate),
            TESTING,
            baseline=baseline.get(method),
            seeds=SEEDS["test"],
        )
        baseline.setdefault(method, row)


def _test_temperatures(chosen: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield each side at its own best temperature."""
    yield from _compared(
        chosen, "best_temperatures", TESTING, EPOCHS["test"], SEEDS["test"], [TESTING]
    )


def _rates_of_test(chosen: Mapping[str, Any]) -> Iterator[Entry]:
    for entries in test_rate_entries(chosen["primary"]).values():
        yield from entries


def _other_data(chosen: Mapping[str, Any]) -> Iterator[Entry]:
    # As many steps of warm-up as on CIFAR-10.
    warmup = ["scheduler.warmup_epochs=1.125"]
    both = (TESTING, OTHER)
    yield from _compared(chosen, "primary", OTHER, LAW["other_epochs"], SEEDS["few"], both, warmup)


def experiments(chosen: Mapping[str, Any]) -> dict[str, Experiment]:
    """Return the grids by name, in the order in which they are run.

    Those whose settings are not chosen yet are empty.
    """
    of_rates = [entry for entries in rate_entries().values() for entry in entries]
    rates, primary = chosen.get("rates"), chosen.get("primary")
    best = chosen.get("best_scales")
    shorter = [length for length in METHODS[MOCO]["map"]["lengths"] if length != "long"]

    def after_rates(entries: Any, *arguments: Any) -> tuple[Entry, ...]:
        return tuple(entries(rates, *arguments)) if rates else ()

    def after_map(entries: Any) -> tuple[Entry, ...]:
        return tuple(entries(chosen)) if primary else ()

    ends = ("alignment", "uniformity", "pull", "push", "effective_rank", "positive_angle", "q")
    return {
        "law_rates": Experiment("The rate of s = 1", tuple(of_rates), RATE),
        "law_rates_smaller": Experiment(
            "A smaller scale at all rates", tuple(_rates_of_smaller_scales()), RATE
        ),
        "law_map": Experiment(
            "MoCo v3: accuracy against the scale",
            after_rates(map_entries, MOCO, shorter),
            "s",
            figures=ends,
        ),
        "law_map_simclr": Experiment(
            "SimCLR: accuracy against the scale",
            after_rates(map_entries, SIMCLR, METHODS[SIMCLR]["map"]["lengths"]),
            "s",
            figures=ends,
        ),
        "law_test": Experiment("The chosen scale on test images", after_map(_test)),
        "law_rates_test": Experiment(
            "MoCo v3: rates at the length of the test",
            after_map(_rates_of_test),
            RATE,
        ),
        "law_test_tuned": Experiment(
            "Each side at its own best setting, on test images",
            tuple(_test_tuned(chosen)) if primary and "test_rates" in chosen else (),
        ),
        "law_temperatures": Experiment(
            "Scale and temperature together", after_rates(_controls), "τ", "s", ends
        ),
        "law_test_temperatures": Experiment(
            "Each side at its own best temperature, on test images",
            tuple(_test_temperatures(chosen)) if rates and "best_temperatures" in chosen else (),
        ),
        "law_held": Experiment(
            "The scale with the gradient's norm held",
            after_rates(_held),
            "s",
            figures=("turn", *ends),
        ),
        "law_other_data": Experiment("Another data set, and transfer", after_map(_other_data)),
        "law_map_long": Experiment(
            "MoCo v3, longest runs: accuracy against the scale",
            after_rates(map_entries, MOCO, ["long"]),
            "s",
            figures=ends,
        ),
        "law_schedule": Experiment(
            "MoCo v3: a scale that changes during training",
            tuple(_scheduled(rates, best)) if rates and best else (),
            figures=ends,
        ),
        "law_wide": Experiment(
            "MoCo v3, twice as wide: accuracy against the scale",
            after_rates(_wide),
            "s",
            figures=ends,
        ),
    }


def lengths_of_schedules() -> list[str]:
    """Return the lengths at which a schedule is compared with the best constant scale."""
    return list(dict.fromkeys(name for row in LAW["schedules"].values() for name in row["lengths"]))


# Grids that use test images.
TESTED = ("law_test", "law_test_tuned", "law_test_temperatures", "law_other_data")
# Grids whose settings are fixed, and committed, before their first run.
FIXED_BEFORE = (*TESTED, "law_schedule")
EXPERIMENTS = experiments(choices.read(CHOSEN))


def choose(tuned: Accuracies, mapped: Accuracies, controlled: Accuracies) -> dict[str, Any]:
    """Return what the runs so far decide: rates, then scale and temperature for the tests.

    The highest mean accuracy on held-out images decides; of equal ones the first.

    Args:
        tuned: of the runs by which rates are chosen.
        mapped: of those of the maps. A cell of both has other seeds there.
        controlled: of those with every scale at every temperature.
    """
    rates: dict[str, float] = {}
    for name, entries in rate_entries().items():
        if not all(entry.cell in tuned for entry in entries):
            return {}
        best = max(entries, key=lambda entry: tuned[entry.cell])
        assert best.x is not None  # the rate
        rates[name] = best.x
    primary = {}
    for method in METHODS:
        places = {
            (scale, temperature): _mapped(method, rates, "short", scale, temperature).cell
            for temperature in METHODS[method]["map"]["temperatures"]
            for scale in METHODS[method]["map"]["scales"]
        }
        if not all(cell in mapped for cell in places.values()):
            return {"rates": rates}
        primary[method] = _best_sides(places, mapped)
    chosen = {"rates": rates, "primary": primary}
    controls = list(_controls(rates))
    if all(entry.cell in controlled for entry in controls):
        chosen["best_temperatures"] = {
            method: _best_sides(
                {(e.y or 0, e.x or 0): e.cell for e in controls if e.cell.method == method},
                controlled,
            )
            for method in METHODS
        }
    of_test = test_rate_entries(primary)
    if all(entry.cell in tuned for entries in of_test.values() for entry in entries):
        best_of = {s: max(entries, key=lambda e: tuned[e.cell]) for s, entries in of_test.items()}
        chosen["test_rates"] = {scale: entry.x for scale, entry in best_of.items()}
    return chosen


def _best_sides(
    places: Mapping[tuple[float, float], Cell], accuracies: Accuracies
) -> dict[str, float]:
    """Return the best scale but 1 with its temperature, and the best temperature of s = 1.

    Args:
        places: scales and temperatures to cells.
        accuracies: of the cells.
    """
    ordered = sorted(places, key=lambda place: -accuracies[places[place]])
    scale, temperature = next(place for place in ordered if place[0] != 1)
    baseline = next(place[1] for place in ordered if place[0] == 1)
    return {"scale": scale, "temperature": temperature, "baseline_temperature": baseline}


def planned(chosen: Mapping[str, Any]) -> dict[str, Experiment]:
    """Return all grids, with any settings where none are chosen yet."""
    names = rate_entries()
    rates = dict.fromkeys(names, LAW["rates"][1]) | chosen.get("rates", {})
    any_choice = {
        method: {"scale": 0.5, "temperature": 0.1, "baseline_temperature": 0.1}
        for method in METHODS
    }
    any_temperatures = {
        method: {"scale": 0.5, "temperature": 0.05, "baseline_temperature": 0.05}
        for method in METHODS
    }
    primary = any_choice | chosen.get("primary", {})
    any_rates = dict.fromkeys((1, primary[MOCO]["scale"]), LAW["rates"][1])
    any_best = dict.fromkeys(lengths_of_schedules(), 0.6)
    return experiments(
        {
            "rates": rates,
            "primary": primary,
            "test_rates": any_rates | chosen.get("test_rates", {}),
            "best_temperatures": any_temperatures | chosen.get("best_temperatures", {}),
            "best_scales": any_best | chosen.get("best_scales", {}),
        }
    )


def budget() -> list[list[str]]:
    """Return the lines of the table of costs: runs, steps and core-hours of every grid.

    What is chosen later may be a run that another grid has, which saves it.
    """
    lines, hours, all_steps = [["grid", "runs", "steps", "core-hours"]], 0.0, 0
    known: set[tuple[Cell, int]] = set()
    for name, experiment in planned({}).items():
        runs = {(entry.cell, seed) for entry in experiment.entries for seed in entry.seeds} - known
        known |= runs
        steps = sum(steps_of(cell) for cell, _ in runs)
        a_step = WIDE_SECONDS_A_STEP if name == "law_wide" else SECONDS_A_STEP
        taken = (steps * a_step + len(runs) * SECONDS_A_RUN) / 3600
        hours, all_steps = hours + taken, all_steps + steps
        lines.append([f"`{name}`", f"{len(runs)}", f"{steps:,}", f"{taken:.1f}"])
    return [*lines, ["all", f"{len(known)}", f"{all_steps:,}", f"{hours:.1f}"]]


def value_of(cell: Cell, key: str) -> str:
    """Return the value that a cell sets a key to."""
    return next(c for c in cell.changes if c.startswith(f"{key}=")).partition("=")[2]


def steps_of(cell: Cell) -> int:
    """Return how many steps a cell is trained for."""
    return int(value_of(cell, "max_epochs")) * PLAN["data"][cell.data]["steps"]
