"""Finished runs in a results file, and runs that are skipped because they are in it."""

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import results
from solo_margins.checkpoints import read_settings
from solo_margins.config import setting
from solo_margins.ranks import is_rank_zero
from solo_margins.same_run import defining_settings
from solo_margins.training.run_folder import RUN_ID_VARIABLE, Run
from solo_margins.versions import form, versions


def recorded(kind: str, run: Callable[[DictConfig], Run], cfg: DictConfig) -> Run:
    """Run a configuration; append what came out to the file that ``results`` names, if it does.

    With ``skip_finished=true`` a run that is in the file is not run again: what it left behind is
    returned.

    Args:
        kind: of the record: ``"pretrain"`` or ``"linear"``.
        run: does it.
        cfg: the configuration, checked.

    Raises:
        ValueError: the file cannot be written.
    """
    file = setting(cfg, "results")
    skips = bool(setting(cfg, "skip_finished", False))
    if file is None and skips:
        raise ValueError("skip_finished=true needs to know what is finished: results=<file>.")
    if file is None:
        return run(cfg)
    planned = planned_record(kind, cfg)
    # All ranks must decide alike: rank 0 has decided to run before it starts the others.
    is_decided = RUN_ID_VARIABLE in os.environ
    done = None
    if skips and not is_decided and Path(file).exists():
        done = results.latest(results.read(file)).get(planned.id)
    if done is not None:
        print(_farewell(file, done, planned), flush=True)
        folder, checkpoint = (done.details.get(key) for key in ("folder", "checkpoint"))
        before = Run(Path(folder or "."), checkpoint=checkpoint and Path(checkpoint))
        return replace(before, metrics=dict(done.figures), is_skipped=True)
    results.check_appendable(file)
    # Goes into args.json, so that a probe of the checkpoint can name this record.
    cfg.result_id = planned.id
    began = time.perf_counter()
    result = run(cfg)
    if is_rank_zero():
        left = {name: getattr(result, name) for name in ("folder", "checkpoint", "resumed_from")}
        record = replace(
            planned,
            figures=result.metrics,
            seconds=time.perf_counter() - began,
            versions=versions(),
            details={**planned.details, **{name: x and str(x) for name, x in left.items()}},
            finished=results.now(),
        )
        results.append(file, record)
        print(f"Results: {file}", flush=True)
    return result


def planned_record(kind: str, cfg: DictConfig) -> results.Record:
    """Return the record of a checked configuration's run without its figures."""
    content: Any = OmegaConf.to_container(cfg, resolve=True)
    settings = defining_settings(content)
    details = {key: setting(cfg, key) for key in ("data.train_path", "data.val_path")}
    if kind != "pretrain":
        checkpoint = cfg.pretrained_feature_extractor
        trained = read_settings(checkpoint)
        args: Any = {} if trained is None else OmegaConf.to_container(trained)
        settings["pretraining"] = _pretraining(Path(checkpoint), args)
        details["pretrained_feature_extractor"] = checkpoint
        details["pretraining_id"] = args.get("result_id")
    return results.Record(kind, settings, form(), details=details, finished="")


def _pretraining(checkpoint: Path, args: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies a checkpoint wherever it lies: its settings and its epoch."""
    epoch = re.search(r"-(ep\d+(-interrupted)?)$", checkpoint.stem)
    name = epoch.group(1) if epoch else checkpoint.stem
    if args:
        return {**defining_settings(args), "checkpoint": name}
    return {"checkpoint": name, "sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest()}


def _farewell(file: str, done: results.Record, planned: results.Record) -> str:
    described = " ".join(str(x) for x in (done.method, done.data, done.variant) if x is not None)
    said = f"Skipped {done.kind} {described} seed={done.seed}: {file} has it, {done.finished}"
    if "val_acc1" in done.figures:
        said += f", val_acc1 = {done.figures['val_acc1']:.2f} %"
    before, now = (record.details.get("data.train_path") for record in (done, planned))
    # Data are known by their name; who has put others there should hear of it.
    return said + ("." if before == now else f" (with data.train_path={before}, now {now}).")
