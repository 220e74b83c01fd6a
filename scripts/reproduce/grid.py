"""Runs cells as jobs of Hydra's multirun, or continues them, and records what each reached."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduce.experiments import Cell, Entry
from reproduce.protocol import PLAN
from reproduce.study import Preset, Study
from solo_margins import cli, results, training

# What the lens saw of a run's last fifth and a record keeps.
LENS_FIGURES = (
    "q",
    "effective_scale",
    "alignment",
    "uniformity",
    "pull",
    "push",
    "positive_angle",
    "rankme",
)
# Records of earlier runs have it under this name.
RECORDED_AS = {"rankme": "effective_rank"}


def targets_of(entries: Iterable[Entry]) -> dict[Cell, list[str]]:
    """Return the cells that entries need, each once, with all the data that it is probed on."""
    targets: dict[Cell, list[str]] = {}
    for entry in entries:
        probed_on = targets.setdefault(entry.cell, [])
        if entry.probed_on not in probed_on:
            probed_on.append(entry.probed_on)
    return targets


def name_of(cell: Cell) -> str:
    """Return a short name of a cell for the command line of its job.

    >>> name_of(Cell("byol_curv", "cifar10", "curv"))
    'byol_curv-cifar10-curv'
    >>> name_of(Cell("byol_curv", "cifar10", "curv", ("max_epochs=2",)))
    'byol_curv-cifar10-curv-168485'
    """
    name = f"{cell.method}-{cell.data}-{cell.variant}"
    if not cell.changes:
        return name
    return f"{name}-{hashlib.sha256(' '.join(cell.changes).encode()).hexdigest()[:6]}"


def run(
    targets: Mapping[Cell, Sequence[str]], seeds: Sequence[int], study: Study, processes: int = 1
) -> list[str]:
    """Run every cell with every seed; finished ones are skipped, interrupted ones continued.

    Seeds come last to change: the first seed of the whole grid is there before the second.

    Args:
        targets: cells, and the data that each is probed on.
        seeds: of the pretrainings.
        study: what they share.
        processes: how many cells run at a time, with one thread each.

    Returns:
        The cells that have failed, by name.
    """
    cells = {name_of(cell): cell for cell in targets}
    total = len(cells) * len(seeds)

    def job(cfg: Any) -> None:
        """Run one cell, in this process or in one of joblib's."""
        from hydra.core.global_hydra import GlobalHydra
        from hydra.core.hydra_config import HydraConfig

        if processes > 1:
            _end_with_parent()
        title = f"Cell {HydraConfig.get().job.num + 1} of {total}, {cfg.cell} seed {cfg.seed}"
        cell = cells[cfg.cell]
        missing = study.missing(study.recorded(), cell, cfg.seed, targets[cell])
        if not missing:
            print(f"{title}: already in {study.file}", flush=True)
            return
        # The cell composes configurations of its own.
        GlobalHydra.instance().clear()
        cli.run_cli(_run_cell, cell, cfg.seed, missing, study, title)

    overrides = [f"seed={','.join(map(str, seeds))}", f"cell={','.join(cells)}"]
    overrides.append(_override("hydra.sweep.dir", study.work))
    if processes > 1:
        # Skipped jobs take no time: after them joblib would hand out long ones in batches.
        overrides += ["launcher=joblib", "hydra.launcher.batch_size=1"]
        overrides.append(f"hydra.launcher.n_jobs={processes}")
    _multirun(job, overrides)
    records = study.recorded()
    return [
        f"{name} seed {seed}"
        for seed in seeds
        for name, cell in cells.items()
        if study.missing(records, cell, seed, targets[cell])
    ]


def _multirun(job: Callable[[Any], None], overrides: Sequence[str]) -> None:
    """Call a function by Hydra's multirun; jobs that fail have said so when it returns."""
    import hydra

    arguments = sys.argv
    sys.argv = [arguments[0], "--multirun", *overrides]
    try:
        with cli.exit_on_interrupt():
            hydra.main(version_base=None, config_path=".", config_name="multirun")(job)()
    except SystemExit as end:
        if end.code != 1:  # interrupted
            raise
    finally:
        sys.argv = arguments


@functools.cache
def _end_with_parent() -> None:
    """Let a worker of joblib end when its command is killed, which else goes on with its cell."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_cell(cell: Cell, seed: int, targets: Sequence[str], study: Study, title: str) -> None:
    """Pretrain, probe on everything that is wanted, and record each probe."""
    import torch

    from reproduce import methods
    from solo_margins.versions import versions

    methods.register()
    torch.set_num_threads(1)
    began = time.perf_counter()
    folder = study.folder(cell, seed)
    print(f"{title}: its output goes to {folder / 'output.txt'}", flush=True)
    shown = ""
    with _quiet(folder):
        pretrained, shared = _pretrain(cell, seed, study, folder)
        shared["pretraining_seconds"] = time.perf_counter() - began
        for target in targets:
            figures = _probe(pretrained.checkpoint, target, study, folder)
            measured = {
                "figures": {**figures, **shared},
                "seconds": time.perf_counter() - began,
                "versions": versions(),
                "details": machine(),
            }
            results.append(study.file, study.record(cell, seed, target, **measured))
            shown += f"linear {figures['linear_acc1']:.1f} %, kNN {figures['knn_acc1']:.1f} %, "
    if not study.keep_checkpoints:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{title}: {shown}{time.perf_counter() - began:.0f} s", flush=True)


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Send what a run prints into a file of its folder: several run at a time.

    Raises:
        ValueError: another process runs the same cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        open(folder / "output.txt", "a") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        # Its logger keeps the terminal that it was made with.
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"Another process runs this cell in {folder}.") from None
        yield


def _override(key: str, path: str | Path) -> str:
    """Return a Hydra override with a path, which may hold any character."""
    quoted = str(path).replace("'", r"\'")
    return f"{key}='{quoted}'"


def _composed(name: str, folder: Path, paths: Mapping[str, Any], settings: Iterable[str]) -> Any:
    """Return a configuration whose run is quiet and goes on where it was interrupted."""
    from solo_margins.resolvers import composed

    paths = {"checkpoint.dir": folder, **paths}
    quiet = ["+enable_progress_bar=false", "+enable_model_summary=false"]
    resumable = ["auto_resume.enabled=true", "auto_resume.max_hours=100000"]
    named = [_override(key, path) for key, path in paths.items()]
    return composed(name, [*named, *quiet, *resumable, *settings])


def _images(data: str, study: Study) -> dict[str, str]:
    folder = dict(study.images).get(data)
    return {} if folder is None else {"data.train_path": folder}


def _data(data: str, part: str) -> list[str]:
    """Return the overrides that name data in a pretraining (``settings``) or in a probe."""
    return PLAN["data"].get(data, {part: [f"data={data}"]})[part]


def _pretrain(cell: Cell, seed: int, study: Study, folder: Path) -> tuple[Any, dict[str, float]]:
    """Return the result of a pretraining and the figures of its run."""
    from reproduce.methods import WeightRecord, weight_figures
    from solo_margins.checkpoints import read_checkpoint

    paths = {"results": folder / "pretraining.jsonl", **_images(cell.data, study)}
    settings = [
        *_data(cell.data, "settings"),
        f"variant={cell.variant}",
        "checkpoint.frequency=5",
        "skip_finished=true",
        *settings_for(cell, study.preset),
        *cell.changes,
        f"seed={seed}",
    ]
    composed = _composed(f"{cell.method}.yaml", folder, paths, settings)
    result = training.pretrain(composed, callbacks=[WeightRecord()])
    assert result.checkpoint is not None
    checkpoint = read_checkpoint(result.checkpoint)
    figures = {"steps": checkpoint["global_step"], **weight_figures(checkpoint)}
    return result, {**figures, **_lens_figures(result.checkpoint.parent)}


def settings_for(cell: Cell, preset: Preset) -> list[str]:
    """Return the settings of a preset, which sets the heads of every method, for one of them."""
    from solo_margins.registry import method_class

    own = method_class(cell.method).own_settings
    kept = []
    for override in preset.settings:
        group, _, name = override.partition("=")[0].partition(".")
        if group != "method_kwargs" or name in own:
            kept.append(override)
    return kept


def _lens_figures(folder: Path) -> dict[str, float]:
    """Return means over the last fifth of a run of what was seen of its positives, if it was."""
    from solo_margins.lens import records

    if not (folder / records.FILE).exists():
        return {}
    seen = records.read(folder).observations
    last = [observation.scalars for observation in seen[4 * len(seen) // 5 :]]
    return {
        RECORDED_AS.get(name, name): statistics.mean(values)
        for name in LENS_FIGURES
        if (values := [scalars[name] for scalars in last if name in scalars])
    }


@functools.cache
def machine() -> dict[str, str]:
    """Return the commit of the code, marked if it was changed since, and the model of the CPU."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    commit = _printed([*git, "rev-parse", "HEAD"]) or "unknown"
    changed = _printed([*git, "status", "--porcelain", "--", "solo_margins", "configs", "scripts"])
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "commit": commit + (" with changes" if changed else ""),
        "cpu": models[0] if models else platform.processor(),
    }


def _printed(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _probe(checkpoint: Path, data: str, study: Study, folder: Path) -> dict[str, float]:
    """Return the accuracies of a linear layer and of nearest neighbours."""
    from solo_margins.evaluation.knn import knn
    from solo_margins.evaluation.probe import linear_and_knn

    paths = {"pretrained_feature_extractor": checkpoint, **_images(data, study)}
    settings = [*_data(data, "probe"), "data.num_workers=0"]
    probe_settings = [*settings, *study.preset.probe_settings]
    subject = [f"{key}={path}" for key, path in paths.items()]
    if study.preset.probe == "fast":
        layer, neighbours = linear_and_knn([*subject, *probe_settings], progress=False)
        linear = layer.acc1, layer.acc5
    else:
        metrics = training.linear(_composed("linear.yaml", folder, paths, probe_settings)).metrics
        linear = metrics["val_acc1"], metrics["val_acc5"]
        neighbours = knn([*subject, *settings], progress=False)
    names = ("linear_acc1", "linear_acc5", "knn_acc1", "knn_acc5")
    return dict(zip(names, (*linear, neighbours["acc1"], neighbours["acc5"]), strict=True))
