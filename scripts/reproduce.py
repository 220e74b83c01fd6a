"""Run a table or figure of the papers, or continue it, and write it beside the paper's values.

    python scripts/reproduce.py table3 --images cifar10=/data/cifar10 --data cifar10 --seeds 1 2 3
    python scripts/reproduce.py study --preset mini --images cifar10=/data/cifar10
    python scripts/reproduce.py study --preset mini --table   # from the results alone

Every finished cell is a line of <output>/results.jsonl; the same command skips those and goes on
with a run that was interrupted. <output>/<name>.md, .csv and .png are made from that file alone.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from solo_margins import results
from solo_margins.reproduction import plots, tables
from solo_margins.reproduction.experiments import EXPERIMENTS
from solo_margins.reproduction.running import PRESETS, Plan, jobs_of, missing, run


def parsed() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="; ".join(f"{name}: {e.title}" for name, e in EXPERIMENTS.items()),
    )
    parser.add_argument(
        "names", nargs="+", choices=EXPERIMENTS, metavar="name", help=", ".join(EXPERIMENTS)
    )
    parser.add_argument("--preset", choices=PRESETS, default="paper", help="how large the runs are")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="which seeds")
    parser.add_argument("--data", nargs="+", help="only cells that are pretrained on these")
    parser.add_argument("--rows", nargs="+", help="only rows whose title begins like one of these")
    parser.add_argument(
        "--images", nargs="+", default=[], metavar="DATA=FOLDER", help="where data sets are"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="in every pretraining"
    )
    parser.add_argument("--output", type=Path, default=Path("outputs/reproduction"))
    parser.add_argument("--work", type=Path, help="where checkpoints are (default: <output>/work)")
    parser.add_argument("--keep-checkpoints", action="store_true")
    parser.add_argument("--processes", type=int, default=1, help="cells at a time, a thread each")
    parser.add_argument("--table", action="store_true", help="run nothing, write tables and plots")
    arguments = parser.parse_args()
    for pair in arguments.images:
        _, _, folder = pair.partition("=")
        if not folder or not Path(folder).is_dir():
            parser.error(f"--images takes DATA=FOLDER with an existing folder, got {pair!r}")
    return arguments


def main() -> None:
    """Run what is missing, then write tables and plots."""
    arguments = parsed()
    preset = PRESETS[arguments.preset]
    plan = Plan(
        replace(preset, settings=(*preset.settings, *arguments.set)),
        arguments.output / "results.jsonl",
        arguments.work or arguments.output / "work",
        tuple(tuple(pair.split("=", 1)) for pair in arguments.images),
        arguments.keep_checkpoints,
    )
    chosen = {
        name: [
            entry
            for entry in EXPERIMENTS[name].entries
            if (not arguments.data or entry.cell.data in arguments.data)
            and (not arguments.rows or entry.row.startswith(tuple(arguments.rows)))
        ]
        for name in arguments.names
    }
    if not any(chosen.values()):
        sys.exit("Error: no cell of these experiments is left by --data and --rows.")
    failure = None
    if not arguments.table:
        every = [entry for entries in chosen.values() for entry in entries]
        jobs = jobs_of(every, arguments.seeds)
        left = missing(jobs, plan)
        print(f"{len(jobs) - len(left)} of {len(jobs)} cells are done, {len(left)} to run.")
        try:
            run(left, plan, arguments.processes)
        except BlockingIOError as error:
            sys.exit(f"Error: {error}")
        except RuntimeError as error:
            failure = str(error)
    if not plan.file.exists():
        sys.exit(failure or f"Error: there are no results at {plan.file}.")
    records = results.read(plan.file)
    for name, entries in chosen.items():
        if not entries:
            continue
        experiment = EXPERIMENTS[name]
        items = tables.measured(entries, arguments.seeds, plan, records)
        base = arguments.output / name
        base.with_suffix(".csv").write_text(tables.as_csv(items))
        table = tables.as_markdown(items)
        base.with_suffix(".md").write_text(f"# {experiment.title}\n\n{table}")
        drawn = plots.draw(experiment, items, base.with_suffix(".png"))
        print(f"\n{experiment.title}\n\n{table}\n{base}.md, .csv{' and .png' if drawn else ''}")
    if failure is not None:
        sys.exit(f"Error: {failure}")


if __name__ == "__main__":
    main()
