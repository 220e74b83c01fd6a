"""Run a table or figure of the papers, or continue it, and write it beside the paper's values.

    python scripts/reproduce table3 --images cifar10=/data/cifar10 --data cifar10 --seeds 1 2 3
    python scripts/reproduce tune --preset mini --images cifar10_choose=/data/split/choose
    python scripts/reproduce tune --preset mini --choose   # fixes the settings of the study
    python scripts/reproduce main --preset mini --table    # from the results alone

Every finished cell is a line of <output>/results.jsonl; the same command skips those and goes on
with a run that was interrupted. <output>/<name>.md, .csv and .png are made from that file alone.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from reproduce import choices, experiments, grid, law, law_paper, optimum, plots, protocol, tables
from reproduce.experiments import Cell, Entry
from reproduce.study import PRESETS, Study

EXPERIMENTS = {
    **experiments.EXPERIMENTS,
    **protocol.EXPERIMENTS,
    **law.EXPERIMENTS,
    **law_paper.EXPERIMENTS,
}
# Grids of small networks, and those of them that use test images: settings are fixed before.
STUDIES = {**protocol.EXPERIMENTS, **law.EXPERIMENTS}


def parsed() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python scripts/reproduce",
        description=(__doc__ or "").splitlines()[0],
        epilog="; ".join(f"{name}: {e.title}" for name, e in EXPERIMENTS.items()),
    )
    add = parser.add_argument
    add("names", nargs="+", choices=EXPERIMENTS, metavar="name", help=", ".join(EXPERIMENTS))
    add("--preset", choices=PRESETS, default="paper", help="how large the runs are")
    add("--seeds", type=int, nargs="+", help="run these seeds (default: those of the grid, or 1)")
    add("--data", nargs="+", help="run only cells that are pretrained on these")
    add("--rows", nargs="+", help="run only rows whose title begins like one of these")
    add("--images", nargs="+", default=[], metavar="DATA=FOLDER", help="where data sets are")
    add("--set", nargs="+", default=[], metavar="KEY=VALUE", help="in every pretraining")
    add("--output", type=Path, default=Path("outputs/reproduction"))
    add("--work", type=Path, help="where checkpoints are (default: <output>/work)")
    add("--keep-checkpoints", action="store_true")
    add("--processes", type=int, default=1, help="cells at a time, a thread each")
    add("--table", action="store_true", help="run nothing, write tables and plots")
    add("--optimum", action="store_true", help="run nothing, fit the best scale of each length")
    add("--choose", action="store_true", help="run nothing, fix the settings that `tune` found")
    add("--plan", action="store_true", help="run nothing, say what the study's grids cost")
    arguments = parser.parse_args()
    for pair in arguments.images:
        _, _, folder = pair.partition("=")
        if not folder or not Path(folder).is_dir():
            parser.error(f"--images takes DATA=FOLDER with an existing folder, got {pair!r}")
    return arguments


def main() -> None:
    """Run what is missing, then write tables and plots."""
    arguments = parsed()
    if arguments.plan:
        print(tables.markdown_of(_budget(arguments.names), texts=1), end="")
        return
    preset = PRESETS[arguments.preset]
    images = (pair.split("=", 1) for pair in arguments.images)
    study = Study(
        replace(preset, settings=(*preset.settings, *arguments.set)),
        (arguments.output / "results.jsonl").absolute(),
        (arguments.work or arguments.output / "work").absolute(),
        tuple((data, str(Path(folder).absolute())) for data, folder in images),
        arguments.keep_checkpoints,
    )
    if arguments.optimum:
        _write_optimum(study, arguments.output / "law_optimum")
        return
    chosen = {
        name: entries
        for name in arguments.names
        if (entries := _chosen(name, arguments.data, arguments.rows))
    }
    if not chosen:
        sys.exit("Error: no cell of these experiments is left by --data and --rows.")
    if arguments.choose:
        _choose(arguments, study)
        return
    failed = [] if arguments.table else _run(chosen, arguments, study)
    if not failed and not study.file.exists():
        sys.exit(f"Error: there are no results at {study.file}.")
    for name, entries in chosen.items() if study.file.exists() else ():
        print(f"\n{_written(name, entries, arguments, study)}")
    if failed:
        sys.exit(f"Error: failed cells: {'; '.join(failed)}.")


def _budget(names: list[str]) -> list[list[str]]:
    """Return the costs of all grids that belong together with those that were named."""
    for module in (law_paper, law):
        if all(name in module.EXPERIMENTS for name in names):
            return module.budget()
    return protocol.budget()


def _write_optimum(study: Study, base: Path) -> None:
    try:
        print(optimum.write(study, base))
    except ValueError as error:
        sys.exit(f"Error: {error}")


def _run(chosen: dict[str, list[Entry]], arguments: argparse.Namespace, study: Study) -> list[str]:
    """Run what is missing and return the cells that have failed."""
    if set(chosen) & STUDIES.keys() and arguments.preset != "mini":
        sys.exit("Error: the study has the preset mini: add --preset mini.")
    if set(chosen) & law_paper.EXPERIMENTS.keys() and arguments.preset != "paper":
        sys.exit("Error: law and law_tuning have the paper's size: leave out --preset.")
    tested = protocol.EXPERIMENTS.keys() - {*protocol.HELD_OUT}
    for names, module in ((tested, protocol), (set(law.FIXED_BEFORE), law)):
        if set(chosen) & names and not choices.is_committed(module.CHOSEN):
            sys.exit(
                f"Error: {module.CHOSEN} is not committed as it is: the settings of "
                f"{', '.join(sorted(set(chosen) & names))} are fixed before their first run."
            )
    # A cell is probed on all that is wanted while its checkpoint is there; grids keep their order.
    targets = grid.targets_of(entry for entries in chosen.values() for entry in entries)
    groups: dict[tuple[str, tuple[int, ...]], dict[Cell, list[str]]] = {}
    known = set()
    for name, entries in chosen.items():
        for entry in entries:
            seeds = _seeds_of(entry, arguments.seeds)
            if seeds and (entry.cell, seeds) not in known:
                known.add((entry.cell, seeds))
                groups.setdefault((name, seeds), {})[entry.cell] = targets[entry.cell]
    failed = []
    for (_, seeds), cells in groups.items():
        failed += grid.run(cells, seeds, study, arguments.processes)
    return failed


def _seeds_of(entry: Entry, asked: list[int] | None) -> tuple[int, ...]:
    """Return the seeds to run: those that are asked for; an entry with its own runs no others."""
    if not entry.seeds:
        return tuple(asked or (1,))
    return tuple(seed for seed in entry.seeds if asked is None or seed in asked)


def _choose(arguments: argparse.Namespace, study: Study) -> None:
    """Write the settings that have the highest accuracy on the held-out images."""
    if all(name in law.EXPERIMENTS for name in arguments.names):
        _choose_by_law(study)
        return
    if all(name in law_paper.EXPERIMENTS for name in arguments.names):
        _choose_rates_of_paper(study)
        return
    items = tables.measured(protocol.EXPERIMENTS["tune"].entries, study)
    missing = [item.entry.row for item in items if not item.by_seed]
    if missing:
        sys.exit(f"Error: {len(missing)} runs of tune have no result, such as {missing[0]!r}.")
    accuracies = [item.accuracy("linear_acc1") for item in items]
    means = {
        item.entry.cell: accuracy.mean
        for item, accuracy in zip(items, accuracies, strict=True)
        if accuracy is not None
    }
    choices.write(protocol.CHOSEN, protocol.choose(means), "tune --choose")
    print(f"{protocol.CHOSEN}: commit it before the grids that use test images are run.")


def _choose_by_law(study: Study) -> None:
    """Write what the finished grids decide."""
    grids = law.planned(choices.read(law.CHOSEN))
    of_rates = (*grids["law_rates"].entries, *grids["law_rates_test"].entries)
    tuned = _means_of_complete(of_rates, study)
    of_maps = (*grids["law_map"].entries, *grids["law_map_simclr"].entries)
    mapped, controlled = (
        _means_of_complete(entries, study)
        for entries in (of_maps, grids["law_temperatures"].entries)
    )
    chosen = law.choose(tuned, mapped, controlled)
    if not chosen:
        first = next(e for e in grids["law_rates"].entries if e.cell not in tuned)
        sys.exit(
            f"Error: runs of law_rates are missing in {study.file}, such as {first.row!r}. "
            "Runs of the other form of solo-learn do not count."
        )
    if ends := law.at_an_end(chosen):
        sys.exit(
            "Error: the best rate is the smallest or the largest that was tried: try the next one "
            f"(more_rates or test_rates in law.yaml) for {'; '.join(ends)}."
        )
    if best := optimum.best_of_moco(study):
        chosen["best_scales"] = best
    choices.write(law.CHOSEN, chosen, "law_rates --choose")
    print(f"{law.CHOSEN}: {', '.join(chosen)}; commit it before the next grids are run.")


def _means_of_complete(entries: Iterable[Entry], study: Study) -> dict[Cell, float]:
    """Return the mean accuracy of every row that has all of its seeds."""
    return {
        item.entry.cell: accuracy.mean
        for item in tables.measured(entries, study)
        if len(item.by_seed) == len(item.entry.seeds)
        and (accuracy := item.accuracy("linear_acc1")) is not None
    }


def _choose_rates_of_paper(study: Study) -> None:
    items = tables.measured(law_paper.EXPERIMENTS["law_tuning"].entries, study)
    means = {
        item.entry.cell: accuracy.mean
        for item in items
        if (accuracy := item.accuracy("linear_acc1")) is not None
    }
    try:
        chosen = law_paper.choose(means)
    except ValueError as error:
        sys.exit(f"Error: {error}")
    choices.write(law_paper.CHOSEN, chosen, "law_tuning --preset paper --choose")
    print(f"{law_paper.CHOSEN}: `law` trains with these rates and with the paper's.")


def _chosen(name: str, data: list[str] | None, rows: list[str] | None) -> list[Entry]:
    """Return the entries of an experiment that the options leave."""
    if not EXPERIMENTS[name].entries:
        chooses = "law_rates" if name in law.EXPERIMENTS else "tune"
        has_rates = chooses == "law_rates" and "rates" in choices.read(law.CHOSEN)
        first = "law_map law_map_simclr" if has_rates else chooses
        sys.exit(f"Error: {name} has no settings yet: run `{first}`, then `{chooses} --choose`.")
    return [
        entry
        for entry in EXPERIMENTS[name].entries
        if (data is None or entry.cell.data in data)
        and (rows is None or entry.row.startswith(tuple(rows)))
    ]


def _written(name: str, entries: list[Entry], arguments: argparse.Namespace, study: Study) -> str:
    """Write the table and the figure of an experiment and return what to show of them.

    They hold what was asked for and everything else that has results: a part that is run later
    does not take the others away.
    """
    experiment = EXPERIMENTS[name]
    items = [
        item
        for item in tables.measured(experiment.entries, study)
        if item.by_seed or item.entry in entries
    ]
    base = arguments.output / name
    base.with_suffix(".csv").write_text(tables.as_csv(items, experiment.figures))
    table = tables.as_markdown(items, experiment.figures)
    base.with_suffix(".md").write_text(f"# {experiment.title}\n\n{table}")
    is_drawn = plots.draw(experiment, items, base.with_suffix(".png"))
    return f"{experiment.title}\n\n{table}\n{base}.md, .csv{' and .png' if is_drawn else ''}"
