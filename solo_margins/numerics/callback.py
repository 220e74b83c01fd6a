"""Stops or skips a step whose loss or gradient is not finite, before it spoils the weights."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import OmegaConf
from torch import Tensor

from solo_margins import host
from solo_margins.files import complete_file
from solo_margins.host.checkpointing import run_folder
from solo_margins.numerics.evidence import (
    Evidence,
    advice,
    all_finite,
    broken_parts,
    described,
    gradients_finite,
    tensors_in,
)
from solo_margins.numerics.files import files_of
from solo_margins.numerics.settings import NumericsSettings
from solo_margins.numerics.undo import Undo

STATE_SUFFIX = ".state"
"""Of the state that is saved for inspection: neither auto-resume nor evaluation takes it."""

log = logging.getLogger("solo_margins.numerics")


class NotFinite(ArithmeticError):
    """A training cannot go on because its numbers are not finite; the message is one sentence."""


class FiniteSteps(host.pl.Callback):
    """Looks at loss and gradients of every optimiser step, between backward pass and update.

    One number is read from the device for each optimiser step. With several processes it is one
    more that they exchange, so that all of them decide alike. Where a scaler for 16-bit gradients
    is at work, which skips infinite gradients itself, the loss alone counts.

    Args:
        settings: stop or skip.
        folder: of the run; None asks the checkpointer.
        saves_state: whether the state is saved for inspection.
    """

    def __init__(
        self, settings: NumericsSettings, folder: Path | None = None, saves_state: bool = True
    ) -> None:
        super().__init__()
        self.settings = settings
        self.folder = folder
        self.saves_state = saves_state
        self.skipped = 0
        """Steps that were skipped so far, those before a resume included."""
        self._in_a_row = 0
        self._evidence: Evidence | None = None
        self._undo: Undo | None = None
        self._has_skipped = False
        self._release: list[Callable[[], None]] = []

    # What a step shows is kept by reference.

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to keep what the method computes and logs."""
        self._stop_watching()
        for name in ("features", "projections"):
            network = getattr(pl_module, "backbone" if name == "features" else "projector", None)
            if isinstance(network, torch.nn.Module):
                handle = network.register_forward_hook(self._keep(name, trainer))
                self._release.append(handle.remove)
        record = pl_module.log

        def log_and_keep(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            if self._evidence is not None and isinstance(value, (Tensor, float)):
                kept = value.detach() if isinstance(value, Tensor) else value
                self._evidence.logged.append((name, kept))
            record(name, value, *args, **kwargs)

        own = vars(pl_module).get("log")
        pl_module.log = log_and_keep
        self._release.append(
            lambda: delattr(pl_module, "log") if own is None else setattr(pl_module, "log", own)
        )

    def _keep(self, name: str, trainer: Any) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            # Gradients may be accumulated across a validation, which is no part of the step.
            if self._evidence is not None and trainer.training:
                getattr(self._evidence, name).extend(t.detach() for t in tensors_in(output))

        return hook

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Begin a step, or go on with one whose gradients are accumulated."""
        if self._evidence is None:
            self._evidence = Evidence()
            if self.settings.on_nonfinite == "skip":
                self._undo = Undo(pl_module, self._undo)
        # solo-learn's batches are indexes, views and labels, those of a probe images and labels.
        is_indexed = isinstance(batch, (list, tuple)) and len(batch) == 3
        self._evidence.inputs = [batch[1] if is_indexed else batch]
        if is_indexed and isinstance(batch[0], Tensor):
            self._evidence.indexes.append(batch[0])

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Keep the loss."""
        if self._evidence is not None:
            self._evidence.add_loss(loss)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Let the step pass, skip it or stop."""
        evidence, self._evidence = self._evidence, None
        if evidence is None or evidence.loss is None:
            return
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        broken, by_gradients = _is_broken(evidence.loss, pl_module, scaled)
        if trainer.world_size > 1:
            broken = trainer.strategy.reduce_boolean_decision(broken, all=False)
        if not broken:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        parts, said, indexes = _gathered(trainer, pl_module, evidence, by_gradients)
        may_skip = self.settings.on_nonfinite == "skip"
        if not may_skip or self._in_a_row > self.settings.max_consecutive_skips:
            raise NotFinite(self._stop(trainer, pl_module, parts, said, indexes))
        self._skip(trainer, pl_module, said)

    def _skip(self, trainer: Any, module: Any, said: str) -> None:
        # Optimisers pass over parameters without a gradient, their weight decay included.
        for parameter in module.parameters():
            parameter.grad = None
        assert self._undo is not None
        self._undo.apply()
        self._has_skipped = True
        self.skipped += 1
        if trainer.is_global_zero:
            log.warning("Skipped step %d, not finite: %s.", trainer.global_step, said)
            for logger in trainer.loggers:
                logger.log_metrics({"skipped_steps": self.skipped}, step=trainer.global_step)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Keep the teacher as it is when a step was skipped."""
        if self._has_skipped:
            self._has_skipped = False
            if hasattr(pl_module, "last_step"):
                # solo-learn moves the teacher if the number of steps has grown since.
                pl_module.last_step = trainer.global_step

    def _stop(
        self, trainer: Any, module: Any, parts: list[str], said: str, indexes: list[list[int]]
    ) -> str:
        """Save what there is to inspect and return the sentence."""
        step = trainer.global_step
        folder = self.folder or run_folder(trainer)
        record = folder / f"nonfinite-step{step}.json"
        state = record.with_suffix(STATE_SUFFIX)
        method = OmegaConf.select(getattr(module, "cfg", None) or OmegaConf.create({}), "method")
        described_as = method or type(module).__name__
        content = {
            "step": step,
            "epoch": trainer.current_epoch,
            "method": described_as,
            "not_finite": parts,
            "image_indexes": indexes,
            "images": files_of(trainer, indexes),
        }
        kept = f"its images are listed in {record}"
        try:
            if trainer.is_global_zero:
                with complete_file(record) as unfinished:
                    unfinished.write_text(json.dumps(content, indent=1))
            if self.saves_state:
                trainer.save_checkpoint(state)
                kept = f"the state before the update is {state}, {kept}"
        except (OSError, RuntimeError) as error:
            kept = f"what there is to inspect could not be saved ({' '.join(str(error).split())})"
        times = ""
        if self.settings.on_nonfinite == "skip":
            times = f", after {self._in_a_row - 1} skipped steps in a row"
        return (
            f"Stopped at step {step} of method={described_as}{times}: not finite are {said}; look "
            f"at {advice(parts)}; {kept}."
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say how many steps were skipped."""
        self._stop_watching()
        if self.skipped and trainer.is_global_zero:
            log.warning(
                "Skipped %d of %d steps whose loss or gradients were not finite "
                "(numerics.on_nonfinite=skip).",
                self.skipped,
                trainer.global_step,
            )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the method as it was."""
        self._stop_watching()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the method as it was."""
        self._stop_watching()

    def _stop_watching(self) -> None:
        self._evidence = self._undo = None
        while self._release:
            self._release.pop()()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on counting from."""
        return {"skipped": self.skipped} if self.skipped else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self.skipped = int(state_dict.get("skipped", 0))


def _is_broken(loss: Tensor, module: Any, scaled: bool) -> tuple[bool, bool]:
    """Tell whether the step is not finite, and whether its gradients are not."""
    gradients = [] if scaled else [p.grad for p in module.parameters() if p.grad is not None]
    total = loss.float()
    if gradients:
        total = total + gradients_finite(gradients).to(total.device)
    if bool(torch.isfinite(total)):
        return False, False
    # Squares of large finite gradients overflow: only each number itself tells.
    by_gradients = not all_finite(gradients)
    return by_gradients or not all_finite([loss]), by_gradients


def _gathered(
    trainer: Any, module: Any, evidence: Evidence, by_gradients: bool
) -> tuple[list[str], str, list[list[int]]]:
    """Return what is not finite in any process, in words too, and the image indexes of each."""
    parts = broken_parts(evidence, module, by_gradients)
    indexes = [int(i) for part in evidence.indexes for i in part.flatten().tolist()]
    own = (parts, described(parts, evidence), indexes)
    if trainer.world_size == 1 or not dist.is_initialized():
        return parts, own[1], [indexes]
    of_all: list[Any] = [None] * trainer.world_size
    dist.all_gather_object(of_all, own)
    # Gradients have been averaged: every process has them, but one alone may have the cause.
    worst = max(range(len(of_all)), key=lambda rank: len(of_all[rank][0]))
    said = of_all[worst][1]
    if len({len(found) for found, _, _ in of_all}) > 1:
        said = f"{said} in process {worst}"
    return of_all[worst][0], said, [found for _, _, found in of_all]
