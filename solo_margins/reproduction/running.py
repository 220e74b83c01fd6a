"""Runs the cells of experiments, or continues them, and records what each of them reached."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from solo_margins import results
from solo_margins.reproduction.experiments import STUDY_EPOCHS, Cell, Entry

KIND = "reproduction"
"""What these records are called in a file of results."""


@dataclass(frozen=True)
class Preset:
    """How large the runs are."""

    name: str
    settings: tuple[str, ...] = ()
    """Hydra overrides of every pretraining."""
    probe: str = "linear"
    """``"linear"`` trains on images, ``"fast"`` on features that are extracted once."""
    probe_settings: tuple[str, ...] = ()


PAPER = Preset("paper")
MINI = Preset(
    "mini",
    # A quarter of ResNet-18's width, half of its depth, an image halved by the stem, DALI: steps
    # count for more than the size of the network here.
    (
        "backbone=narrow_resnet10",
        "+backbone.kwargs.width=16",
        "+backbone.kwargs.stem_stride=2",
        "method_kwargs.proj_hidden_dim=512",
        "method_kwargs.pred_hidden_dim=512",
        "optimizer.batch_size=128",
        # solo-learn scales it by batch / 256. Not optimizer.lr: another optimizer has its own rate.
        "protocol.sgd_lr=0.12",
        "scheduler.warmup_epochs=0.5",
        "data.format=dali",
        "dali.device=cpu",
        "data.num_workers=1",
        f"max_epochs={STUDY_EPOCHS}",
        "knn_eval.enabled=false",
        "check_val_every_n_epoch=1000",
    ),
    probe="fast",
    probe_settings=("passes=0",),
)
PRESETS = {preset.name: preset for preset in (PAPER, MINI)}


@dataclass(frozen=True)
class Job:
    """One pretraining with all probes of it."""

    cell: Cell
    seed: int
    probed_on: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What all jobs of a study share."""

    preset: Preset
    file: Path
    """Where results are recorded."""
    work: Path
    """Where checkpoints are; those of finished cells are removed unless they are kept."""
    images: tuple[tuple[str, str], ...]
    """Data set to folder."""
    keep_checkpoints: bool = False

    def record(self, cell: Cell, seed: int, probed_on: str, **measured: Any) -> results.Record:
        """Return the record of one probe; what was measured does not change its id."""
        from solo_margins.host.detect import form

        settings = {
            "preset": self.preset.name,
            "preset_settings": list(self.preset.settings),
            "probe": self.preset.probe,
            "probe_settings": list(self.preset.probe_settings),
            "method": cell.method,
            "data": {"name": cell.data},
            "variant": cell.variant,
            "changes": list(cell.changes),
            "seed": seed,
            "probed_on": probed_on,
        }
        return results.Record(KIND, settings, form(), **measured)


def jobs_of(entries: Iterable[Entry], seeds: Sequence[int]) -> list[Job]:
    """Return the pretrainings that entries need, each once, with all that it is probed on.

    Seeds come last to change: the first seed of the whole grid is there before the second.
    """
    targets: dict[Cell, list[str]] = {}
    for entry in entries:
        probed_on = targets.setdefault(entry.cell, [])
        if entry.probed_on not in probed_on:
            probed_on.append(entry.probed_on)
    return [Job(cell, seed, tuple(names)) for seed in seeds for cell, names in targets.items()]


def missing(jobs: Iterable[Job], plan: Plan) -> list[Job]:
    """Return what the file of results does not hold yet."""
    done = results.latest(results.read(plan.file)) if plan.file.exists() else {}
    found = []
    for job in jobs:
        left = tuple(
            name for name in job.probed_on if plan.record(job.cell, job.seed, name).id not in done
        )
        if left:
            found.append(replace(job, probed_on=left))
    return found


def run(jobs: Sequence[Job], plan: Plan, processes: int) -> None:
    """Run jobs, some at a time with one thread each, with progress over all of them.

    Raises:
        RuntimeError: jobs failed; the others have been run.
        BlockingIOError: another process runs jobs in the same folder.
    """
    from tqdm import tqdm

    context = multiprocessing.get_context("spawn")
    failures = []
    with (
        _alone(plan.work),
        ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool,
    ):
        pending = {pool.submit(run_one, job, plan): job for job in jobs}
        try:
            with tqdm(total=len(jobs), desc="cells", unit="cell", smoothing=0) as bar:
                for finished in as_completed(pending):
                    error = finished.exception()
                    if error is not None:
                        failures.append(f"{pending[finished]}: {error}")
                        tqdm.write(f"Failed: {failures[-1]}", file=sys.stderr)
                    bar.update()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(jobs)} cells failed, the first: {failures[0]}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from running the same jobs in the same folders at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"Another process runs cells in {folder}: wait for it, or choose another --work."
            ) from None
        yield


def _end_with_parent() -> None:
    """Let a worker end when the process that started it was killed, instead of going on alone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run_one(job: Job, plan: Plan) -> None:
    """Pretrain, probe on everything that is wanted, and record each probe."""
    import shutil

    import torch

    from solo_margins.host.versions import versions

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    began = time.perf_counter()
    # Whatever it is probed on, the pretraining is the same.
    identity = plan.record(job.cell, job.seed, probed_on="").id
    folder = plan.work / f"{job.cell.method}-{job.cell.data}-{identity}"
    with _quiet(folder):
        pretrained, steps = _pretrain(job, plan, folder)
        trained = time.perf_counter() - began
        for name in job.probed_on:
            figures = _probe(pretrained.checkpoint, name, plan, folder)
            figures["online_acc1"] = pretrained.metrics.get("val_acc1", float("nan"))
            figures["pretraining_seconds"] = trained
            figures["steps"] = steps
            record = plan.record(
                job.cell,
                job.seed,
                name,
                figures=figures,
                seconds=time.perf_counter() - began,
                versions=versions(),
            )
            results.append(plan.file, record)
    if not plan.keep_checkpoints:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Send what a run prints into a file of its folder: several run at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        open(folder / "output.txt", "a") as file,
        contextlib.redirect_stdout(file),
        contextlib.redirect_stderr(file),
    ):
        yield


def _composed(name: str, folder: Path, overrides: Iterable[str]) -> Any:
    """Return a configuration whose run is quiet and goes on where it was interrupted."""
    from solo_margins import configuration

    resumable = [
        f"checkpoint.dir={folder}",
        "auto_resume.enabled=true",
        "auto_resume.max_hours=100000",
        "+enable_progress_bar=false",
        "+enable_model_summary=false",
    ]
    return configuration.composed(name, [*resumable, *overrides])


def _pretrain(job: Job, plan: Plan, folder: Path) -> tuple[Any, int]:
    from solo_margins import runner
    from solo_margins.safe_loading import read_checkpoint

    cell = job.cell
    overrides = [
        f"data={cell.data}",
        f"variant={cell.variant}",
        *_images(cell.data, plan.images),
        "checkpoint.frequency=5",
        f"results={folder / 'pretraining.jsonl'}",
        "skip_finished=true",
        *plan.preset.settings,
        *cell.changes,
        f"seed={job.seed}",
    ]
    result = runner.pretrain(_composed(f"{cell.method}.yaml", folder, overrides))
    assert result.checkpoint is not None
    content = read_checkpoint(result.checkpoint)
    return result, int(content["global_step"])


def _images(data: str, images: Iterable[tuple[str, str]]) -> list[str]:
    folder = dict(images).get(data)
    return [] if folder is None else [f"data.train_path={os.path.abspath(folder)}"]


def _probe(checkpoint: Any, data: str, plan: Plan, folder: Path) -> dict[str, float]:
    """Return the accuracies of a linear layer and of nearest neighbours."""
    from solo_margins.evaluation.both import linear_and_knn
    from solo_margins.evaluation.knn import knn

    subject = [f"pretrained_feature_extractor={checkpoint}", f"data={data}", "data.num_workers=0"]
    subject += _images(data, plan.images)
    if plan.preset.probe == "fast":
        layer, neighbours = linear_and_knn([*subject, *plan.preset.probe_settings], progress=False)
        accuracies = {"linear_acc1": layer.acc1, "linear_acc5": layer.acc5}
    else:
        accuracies = _linear(subject, plan, folder)
        neighbours = knn(subject, progress=False)
    return {**accuracies, "knn_acc1": neighbours["acc1"], "knn_acc5": neighbours["acc5"]}


def _linear(subject: list[str], plan: Plan, folder: Path) -> dict[str, float]:
    from solo_margins import runner

    cfg = _composed("linear.yaml", folder, [*subject, *plan.preset.probe_settings])
    metrics = runner.linear(cfg).metrics
    return {"linear_acc1": metrics["val_acc1"], "linear_acc5": metrics["val_acc5"]}
