"""Callbacks of every run of our programs; `solo_margins.training.fit` lists them all."""

import logging
import re
import sys
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor

from solo_margins.checkpoints import run_folder
from solo_margins.data.deterministic import EPOCH, STEP, derive_seed, seed_cpu
from solo_margins.data.folders import skipped_files, total

# Name of the list of unreadable images in a run's folder.
SKIPPED_FILE = "skipped_images.txt"

log = logging.getLogger("solo_margins.data")


class SeededSteps(pl.Callback):
    """Seeds whatever draws numbers inside a step, such as drop path, by the step's number.

    A resumed run therefore draws what it would have drawn. Ranks draw different numbers.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Seed what a method draws between two epochs, such as the first centres of clusters."""
        self._seed(trainer, EPOCH)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Seed a step."""
        self._seed(trainer, STEP)

    def _seed(self, trainer: Any, purpose: int) -> None:
        batches = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        seed = derive_seed(self.seed, purpose, batches, trainer.global_rank)
        seed_cpu(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)


class ClosingReport(pl.Callback):
    """Says how accurate a run is, and how many images were skipped; lists these in its folder.

    Args:
        classifier: what ``val_acc1`` is the accuracy of.
    """

    def __init__(self, classifier: str) -> None:
        super().__init__()
        self.classifier = classifier

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Print the last accuracies on validation images, if any were measured."""
        titles = {"val_acc1": self.classifier, "val_knn_acc1": "kNN"}
        values = trainer.callback_metrics
        found = [f"{titles[name]}: {values[name]:.2f} %" for name in titles if name in values]
        if found and trainer.is_global_zero:
            loader = trainer.datamodule.validation
            seen = sum(trainer.num_val_batches) * loader.batch_size * trainer.world_size
            images = f"{min(seen, len(loader.dataset))} validation images"
            print(f"{', '.join(found)} (top 1, {images}); run folder: {run_folder(trainer)}")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report what all ranks have skipped."""
        files, number = skipped_files(trainer.datamodule.loaders)
        if trainer.world_size > 1 and dist.is_initialized():
            of_all: list[Any] = [None] * trainer.world_size
            dist.all_gather_object(of_all, files)
            files = sorted({file for part in of_all for file in part})
        if trainer.is_global_zero:
            self._report(trainer, files, number)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Report what this rank has skipped; the others may not answer any more."""
        if trainer.is_global_zero:
            self._report(trainer, *skipped_files(trainer.datamodule.loaders))

    @staticmethod
    def _report(trainer: Any, files: list[str], number: int) -> None:
        if not files:
            return
        path = run_folder(trainer) / SKIPPED_FILE
        # A resumed run adds to what was skipped before.
        known = path.read_text(errors="replace").splitlines() if path.exists() else []
        lines = sorted({*known, *(ascii(f) if not f.isprintable() else f for f in files)})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
        log.warning("%s They are listed in %s.", total(files, number), path)


class GradientNorm(pl.Callback):
    """Logs the Euclidean norm of the gradient before clipping.

    ``grad_norm`` is that of all parameters, the one which ``gradient_clip_val`` limits;
    ``grad_norm_backbone`` leaves out heads and online classifiers. A large positive scale acts on
    them like a larger learning rate.
    """

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Log the norms in steps that are logged."""
        if not trainer.loggers or (trainer.global_step + 1) % trainer.log_every_n_steps:
            return
        norms = {"grad_norm": gradient_norm(pl_module)}
        if any(p.requires_grad for p in pl_module.backbone.parameters()):
            norms["grad_norm_backbone"] = gradient_norm(pl_module.backbone)
        pl_module.log_dict(norms, on_step=True, on_epoch=False)


def gradient_norm(module: Any) -> Tensor:
    """Return the norm of all gradients of a module, 0 when there are none."""
    gradients = [p.grad.detach() for p in module.parameters() if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


class ProgressBar(pl.callbacks.TQDMProgressBar):
    """Lightning's bar with losses and accuracies: live on a terminal, once an epoch in a file.

    Args:
        batches_per_epoch: number of training batches in an epoch.
    """

    def __init__(self, batches_per_epoch: int) -> None:
        # Every refresh reads metrics, which waits for the device.
        updates_per_epoch = 50 if sys.stdout.isatty() else 1
        super().__init__(refresh_rate=max(1, batches_per_epoch // updates_per_epoch))

    def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
        """Return the step's losses and the last validation's accuracies."""
        return {
            name.removesuffix("_step"): f"{float(value):.3g}"
            for name, value in trainer.callback_metrics.items()
            if name.endswith("loss_step") or re.fullmatch(r"val_(knn_)?acc1", name)
        }
