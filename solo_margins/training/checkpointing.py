"""The callback that writes a run's checkpoints."""

import io
import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from omegaconf import DictConfig, OmegaConf

from solo_margins import checkpoints
from solo_margins.cli import TrainingStopped
from solo_margins.files import put_in_place
from solo_margins.training.run_folder import Run, writing

# Others have ways of their own to write a state that is spread over processes.
WRITTEN_BY_ONE = (pl.strategies.SingleDeviceStrategy, pl.strategies.DDPStrategy)


class CompleteCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint where it belongs, completely or not at all.

    Lightning's own writes it to the folder for temporary files first, which may be smaller, and
    says nothing of a folder that it may not write to.
    """

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint to a file of this machine, and return when the disk has it."""
        # In memory first: errors of torch's own file writing do not say what happened.
        content = io.BytesIO()
        torch.save(checkpoint, content)
        unfinished = Path(path).with_suffix(".partial")
        try:
            unfinished.write_bytes(content.getbuffer())
            put_in_place(unfinished, Path(path))
        finally:
            unfinished.unlink(missing_ok=True)


def save_on_every_rank(trainer: Any, path: Path) -> Exception | None:
    """Write a checkpoint and return what has failed on this rank; to be called on every rank."""
    try:
        trainer.save_checkpoint(path, weights_only=False)
    except (OSError, RuntimeError) as error:
        # The others wait for this rank at the end of Lightning's function.
        trainer.strategy.barrier("Trainer.save_checkpoint")
        return error
    return None


class RunCheckpointer(pl.Callback):
    """Saves a run in a folder of its own; takes the place of solo-learn's checkpointer.

    A checkpoint is written completely or not at all, on every rank at once; the one before it is
    kept aside until the next. A resumed run goes on in its folder.

    Args:
        cfg: configuration of the run, with ``checkpoint`` and ``name``.
        run: where it is, and what it is continued from.
    """

    def __init__(self, cfg: DictConfig, run: Run) -> None:
        super().__init__()
        self.cfg = cfg
        self.path = run.folder
        self.last_ckpt: Path | None = None
        if run.resumed_from is not None and run.goes_on:
            # It replaces the checkpoint that it started from.
            self.last_ckpt = self.path / run.resumed_from.name

    @property
    def ckpt_placeholder(self) -> str:
        """The name of a checkpoint, with a place for the epoch; solo-learn's callback has it, too.

        It has no "=": a path with one must be quoted twice on Hydra's command line.
        """
        return f"{self.path.parent.name}-{self.path.name}-ep{{}}.ckpt"

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Take over the folder that rank 0 has chosen, and tidy it."""
        self.path = trainer.strategy.broadcast(self.path)
        if trainer.is_global_zero:
            for unfinished in self._own("partial"):
                # Left by a process that was killed.
                unfinished.unlink(missing_ok=True)
        if isinstance(trainer.strategy, WRITTEN_BY_ONE):
            trainer.strategy.checkpoint_io = CompleteCheckpointIO()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Write the configuration beside the checkpoints, as ``args.json``.

        Raises:
            TrainingStopped: on every rank.
        """
        problem = reason = None
        if trainer.is_global_zero:
            file = self.path / "args.json"
            try:
                with writing(str(file)):
                    checkpoints.write_settings(file, self._settings(trainer))
            except TrainingStopped as error:
                problem, reason = error, str(error)
        if trainer.world_size > 1:
            reason = trainer.strategy.broadcast(reason)
        if reason is not None:
            raise TrainingStopped(reason) from problem

    def _settings(self, trainer: Any) -> dict[str, Any]:
        # Resolved, so that the file means the same in another process.
        args: Any = OmegaConf.to_container(self.cfg, resolve=True)
        args["run_id"] = self.path.name
        wandb = [x for x in trainer.loggers if type(x).__name__ == "WandbLogger"]
        args["wandb_run_id"] = str(wandb[0].version) if wandb else None
        return args

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Save every ``frequency`` epochs, and after the last one."""
        epoch = trainer.current_epoch
        is_last = trainer.should_stop or epoch + 1 == trainer.max_epochs
        is_last = is_last or 0 < trainer.max_steps <= trainer.global_step
        if epoch % self.cfg.checkpoint.frequency == 0 or is_last:
            # Lightning's progress bar may have reduced the epoch's metrics, on rank 0 alone: the
            # other ranks must do so before any other collective operation.
            _ = trainer.callback_metrics
            self.save(trainer)

    def save(self, trainer: Any, suffix: str = "") -> None:
        """Write a checkpoint and keep the one before it aside; to be called on every rank.

        Collecting the state is a collective operation: calling it on rank 0 alone waits for ever.

        Raises:
            TrainingStopped: on every rank; the checkpoint before it is untouched.
        """
        ckpt = self.path / self.ckpt_placeholder.format(f"{trainer.current_epoch}{suffix}")
        problem = save_on_every_rank(trainer, ckpt)
        reason = None if problem is None else checkpoints.reason_of(problem)
        if trainer.world_size > 1:
            # Rank 0 writes, and all of them must stop.
            reason = trainer.strategy.broadcast(reason)
        if reason is not None:
            rest = f"The last good one is {self.last_ckpt}." if self.last_ckpt else "There is none."
            sentence = f"The checkpoint {ckpt} cannot be written: {reason}. {rest}"
            raise TrainingStopped(sentence) from problem
        if trainer.is_global_zero and not self.cfg.checkpoint.keep_prev:
            self._keep_one_before(ckpt)
        self.last_ckpt = ckpt

    def _keep_one_before(self, newest: Path) -> None:
        """Set the checkpoint before the newest aside, and remove all that are older or broken.

        A disk may fail in a way that only reading shows, so the last but one stays until the next.
        Its name does not end with ``.ckpt``: who looks for a run's checkpoint finds the newest.
        """
        before = self.last_ckpt if self.last_ckpt != newest else None
        if before is not None and before.suffix == ".ckpt" and before.exists():
            before = before.replace(before.with_name(before.name + checkpoints.PREVIOUS))
        for old in [*self._own("ckpt"), *self._own("ckpt" + checkpoints.PREVIOUS)]:
            if old not in (newest, before):
                old.unlink(missing_ok=True)

    def _own(self, ending: str) -> list[Path]:
        """Return the files in the run's folder that have the name of one of its checkpoints."""
        name, _ = self.ckpt_placeholder.split("{}")
        pattern = re.compile(re.escape(name) + r"\d+(-\w+)?\." + re.escape(ending))
        return [path for path in self.path.iterdir() if pattern.fullmatch(path.name)]

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Remove what was kept for the case that the run cannot be finished; say where it is."""
        if trainer.is_global_zero and self.path is not None:
            for kept in self.path.glob("*.ckpt" + checkpoints.PREVIOUS):
                kept.unlink(missing_ok=True)
            print(f"Checkpoint: {self.last_ckpt}", flush=True)


def checkpointer_of(trainer: Any) -> RunCheckpointer | None:
    """Return the checkpointer of a trainer, None where it saves nothing."""
    return next((c for c in trainer.callbacks if isinstance(c, RunCheckpointer)), None)
