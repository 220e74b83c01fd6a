"""Faults that end a training or are lived with: each is told in one sentence."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from solo_margins import host
from solo_margins.host import dali_files
from solo_margins.host.image_files import UnreadableImage
from solo_margins.host.skipped_images import skipped_files, total
from solo_margins.methods.run_check import MarginLossNotCalledError
from solo_margins.runner.nonfinite import NonFiniteError
from solo_margins.runner.program import SetupError, TrainingStopped

SKIPPED_FILE = "skipped_images.txt"
"""Name of the list in a run's folder."""

log = logging.getLogger("solo_margins.data")


@contextmanager
def faults_explained(trainer: Any, data: Mapping[str, Any]) -> Iterator[None]:
    """Turn what broken images and numbers raise during a training into one sentence.

    Args:
        trainer: Lightning's.
        data: arguments of ``Trainer.fit``.
    """
    try:
        yield
    except (NonFiniteError, MarginLossNotCalledError) as error:
        # All processes have decided alike.
        raise TrainingStopped(str(error)) from error
    except UnreadableImage as error:
        _end_helpers(trainer)
        raise SetupError(str(error)) from error
    except RuntimeError as error:
        sentence = _sentence_for(error, data)
        if sentence is None:
            raise
        _end_helpers(trainer)
        raise SetupError(sentence) from error


def _sentence_for(error: RuntimeError, data: Mapping[str, Any]) -> str | None:
    if re.search("Connection (closed|reset) by peer", str(error)):
        return "Another process that trained along has ended; its own message says why."
    module = data.get("datamodule")
    if module is not None and "no data in the pipeline" in str(error):
        return (
            f"optimizer.batch_size={module.batch_size} exceeds the number of training images of "
            f"data.train_path={module.train_data_path}."
        )
    if not dali_files.is_from_dali(error):
        return None
    folders = [getattr(module, name, None) for name in ("train_data_path", "val_data_path")]
    return dali_files.explanation(error, folders)


def _end_helpers(trainer: Any) -> None:
    """End the processes that this one has started: they wait for a step that will never come."""
    kill = getattr(getattr(trainer.strategy, "launcher", None), "kill", None)
    if trainer.world_size > 1 and trainer.is_global_zero and kill is not None:
        kill(signal.SIGKILL)


class SkippedImagesReport(host.pl.Callback):
    """Says how many images were skipped, and lists them in the run's folder.

    Args:
        data: arguments of ``Trainer.fit``.
        folder: of the run.
    """

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        super().__init__()
        self.loaders = [data.get("train_dataloaders"), data.get("val_dataloaders")]
        self.folder = folder

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report what all processes have skipped."""
        files, number = skipped_files(self.loaders)
        if trainer.world_size > 1 and dist.is_initialized():
            of_all: list[Any] = [None] * trainer.world_size
            dist.all_gather_object(of_all, files)
            files = sorted({file for part in of_all for file in part})
        if trainer.is_global_zero:
            self._report(files, number)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Report what this process has skipped; the others may not answer any more."""
        if trainer.is_global_zero:
            self._report(*skipped_files(self.loaders))

    def _report(self, files: list[str], number: int) -> None:
        if not files:
            return
        path = self.folder / SKIPPED_FILE
        # A resumed run adds to what was skipped before.
        known = path.read_text(errors="replace").splitlines() if path.exists() else []
        lines = sorted({*known, *(ascii(f) if not f.isprintable() else f for f in files)})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        log.warning("%s They are listed in %s.", total(files, number), path)
