"""Runs with a CSV or TensorBoard logger share the folder `0`. Without a logger, every process
chooses a folder of its own. The last epoch is not saved unless `checkpoint.frequency` divides
its number. A checkpoint that is not written to its end looks like a good one. A checkpoint's
path is a syntax error on Hydra's command line because of a `=` in its name.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from solo_margins.files import put_in_place
from solo_margins.host.changes import Replace
from solo_margins.host.checkpoint_files import (
    PREVIOUS,
    CheckpointNotWritten,
    discard,
    reason_of,
    remove_previous,
)


def _wandb_version(trainer: Any) -> str | None:
    for logger in trainer.loggers:
        if type(logger).__name__ == "WandbLogger":
            return str(logger.version)
    return None


def run_name(self: Any, trainer: Any) -> str:
    """Return the id of a W&B run, or else a fresh name.

    The version of any other logger counts from 0 in that logger's own folder, so it would name
    the same folder for different runs.
    """
    return self.wandb_run_id or f"offline-{secrets.token_hex(4)}"


def initial_setup(self: Any, trainer: Any) -> None:
    """Choose a folder of its own for the run, the same on every rank, and create it.

    The ranks may call it differently: the name that the first one gives it counts.
    """
    self.wandb_run_id = _wandb_version(trainer)
    version = trainer.strategy.broadcast(self.run_name(trainer))
    self.path = self.logdir / version
    # No "=": a path with one must be quoted twice on Hydra's command line.
    self.ckpt_placeholder = f"{self.cfg.name}-{version}-ep{{}}.ckpt"
    # A run that goes on in its folder replaces the checkpoint that it started from.
    resumed = Path(trainer.ckpt_path) if trainer.ckpt_path else None
    is_own = resumed is not None and resumed.parent.resolve() == self.path.resolve()
    self.last_ckpt = self.path / resumed.name if resumed is not None and is_own else None
    if trainer.is_global_zero:
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise CheckpointNotWritten(
                f"checkpoint.dir: {self.path} cannot be created: {reason_of(error)}."
            ) from error
        for unfinished in _own(self, "partial"):
            # A process that was killed could not remove it.
            unfinished.unlink(missing_ok=True)


def save_args(self: Any, trainer: Any) -> None:
    """Write the configuration beside the checkpoints, as ``args.json``."""
    if trainer.is_global_zero:
        # Resolved, so that the file means the same in another process.
        args: Any = OmegaConf.to_container(self.cfg, resolve=True)
        args["wandb_run_id"] = getattr(self, "wandb_run_id", None)
        text = json.dumps(args, default=_not_serializable)
        # A resumed run writes it again: half a file would hide its checkpoints.
        unfinished = self.path / "args.json.partial"
        try:
            unfinished.write_text(text)
            put_in_place(unfinished, self.path / "args.json")
        except OSError as error:
            discard(unfinished)
            raise CheckpointNotWritten(
                f"{self.path / 'args.json'} cannot be written: {reason_of(error)}."
            ) from error


def _not_serializable(value: Any) -> str:
    return "<not serializable>"


def save(self: Any, trainer: Any, suffix: str = "") -> None:
    """Write a checkpoint and keep the one before it aside; to be called on every rank.

    Collecting the state is a collective operation: calling it on rank 0 alone waits for ever.
    Whoever looks into the folder meanwhile finds whole checkpoints only.

    Raises:
        CheckpointNotWritten: on every rank; the checkpoint before it is untouched.
    """
    if trainer.sanity_checking:
        return
    ckpt = self.path / self.ckpt_placeholder.format(f"{trainer.current_epoch}{suffix}")
    unfinished = ckpt.with_suffix(".partial")
    problem = _write(trainer, unfinished, ckpt)
    failed = None if problem is None else reason_of(problem)
    if trainer.world_size > 1:
        # The first process writes, and all of them must stop.
        failed = trainer.strategy.broadcast(failed)
    if failed is not None:
        if trainer.is_global_zero:
            discard(unfinished)
        rest = f"The last good one is {self.last_ckpt}." if self.last_ckpt else "There is none."
        raise CheckpointNotWritten(
            f"The checkpoint {ckpt} cannot be written: {failed}. {rest}"
        ) from problem
    if trainer.is_global_zero and not self.keep_prev:
        _keep_one_before(self, ckpt)
    self.last_ckpt = ckpt


def _write(trainer: Any, unfinished: Path, final: Path) -> Exception | None:
    """Write a checkpoint and return what went wrong, if anything, when all ranks are done."""
    # torch reports a full disk as a RuntimeError.
    expected = (OSError, RuntimeError)
    try:
        trainer.save_checkpoint(unfinished, weights_only=False)
    except expected as error:
        # The others wait for this rank at the end of Lightning's function.
        trainer.strategy.barrier("Trainer.save_checkpoint")
        return error
    if trainer.is_global_zero:
        try:
            put_in_place(unfinished, final)
        except expected as error:
            return error
    return None


def _keep_one_before(self: Any, newest: Path) -> None:
    """Set the checkpoint before the newest aside, and remove all that are older or broken.

    A disk may fail in a way that only reading shows, so the last but one stays until the next. Its
    name does not end with ``.ckpt``: who looks for a run's checkpoint finds the newest.
    """
    before = Path(self.last_ckpt) if self.last_ckpt not in (None, newest) else None
    if before is not None and before.suffix == ".ckpt" and before.exists():
        before = before.replace(before.with_name(before.name + PREVIOUS))
    for old in [*_own(self, "ckpt"), *_own(self, "ckpt" + PREVIOUS)]:
        if old not in (newest, before):
            old.unlink(missing_ok=True)


def _own(self: Any, ending: str) -> list[Path]:
    """Return the files in the run's folder that have the name of one of its checkpoints."""
    name, _ = self.ckpt_placeholder.split("{}")
    pattern = re.compile(re.escape(name) + r"\d+(-\w+)?\." + re.escape(ending))
    return [path for path in self.path.iterdir() if pattern.fullmatch(path.name)]


def on_train_epoch_end(self: Any, trainer: Any, _: Any) -> None:
    """Save every ``frequency`` epochs, and after the last one."""
    epoch = trainer.current_epoch
    is_last = trainer.should_stop or epoch + 1 == trainer.max_epochs
    is_last = is_last or 0 < trainer.max_steps <= trainer.global_step
    if epoch % self.frequency == 0 or is_last:
        self.save(trainer)


def on_train_end(self: Any, trainer: Any, pl_module: Any) -> None:
    """Remove what was kept for the case that the training cannot be finished."""
    if trainer.is_global_zero:
        remove_previous(self.path)


def run_folder(trainer: Any) -> Path:
    """Return the folder that solo-learn's checkpointer writes to, or else the trainer's."""
    for callback in trainer.callbacks:
        path = getattr(callback, "path", None)
        if path is not None and hasattr(callback, "ckpt_placeholder"):
            return Path(path)
    return Path(trainer.default_root_dir)


CHANGES = (
    Replace("utils.checkpointer", "Checkpointer.run_name", run_name),
    Replace("utils.checkpointer", "Checkpointer.initial_setup", initial_setup),
    Replace("utils.checkpointer", "Checkpointer.save_args", save_args),
    Replace("utils.checkpointer", "Checkpointer.save", save),
    Replace("utils.checkpointer", "Checkpointer.on_train_epoch_end", on_train_epoch_end),
    Replace("utils.checkpointer", "Checkpointer.on_train_end", on_train_end),
)
