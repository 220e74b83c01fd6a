"""Stops at, or skips, an optimiser step whose loss or gradients are not finite."""

import functools
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn

from solo_margins.checkpoints import run_folder
from solo_margins.cli import TrainingStopped
from solo_margins.data.folders import file_of
from solo_margins.losses.checks import require_choice, require_count
from solo_margins.training.checkpointing import save_on_every_rank

STEPS = "optimizer.lr, gradient_clip_val and precision"
# Settings to look at, by what is not finite; causes come before their effects.
LOOK_AT = {
    "inputs": "augmentations, their mean and std, and the images themselves",
    "weights": "optimizer.lr, and the checkpoint that the run started from",
    "features": STEPS,
    "projections": STEPS,
    "train_polarization_loss": "method_kwargs.polarization",
    "train_class_loss": "optimizer.classifier_lr",
    "train_": "method_kwargs.temperature and method_kwargs.margins",
    "sum": "method_kwargs.polarization.weight and other factors of a loss",
    "gradients": STEPS,
}
TITLES = {
    "sum": "the sum of all losses",
    "train_polarization_loss": "the polarization penalty",
    "train_class_loss": "the online classifier's loss",
    "train_momentum_class_loss": "the momentum classifier's loss",
}

log = logging.getLogger("solo_margins.nonfinite")


class NonFiniteError(TrainingStopped):
    """Training cannot go on because its numbers are not finite; the message is one sentence."""


@dataclass(frozen=True)
class GuardSettings:
    """What to do about a step whose loss or gradients are not finite.

    Attributes:
        on_nonfinite: ``"skip"`` leaves weights, optimiser and teacher as they were and goes on.
        max_consecutive_skips: skipped steps in a row after which training stops nevertheless.
    """

    on_nonfinite: str = "stop"
    max_consecutive_skips: int = 10

    def __post_init__(self) -> None:
        require_choice("on_nonfinite", self.on_nonfinite, ("stop", "skip"))
        require_count("max_consecutive_skips", self.max_consecutive_skips)


@dataclass
class StepTrace:
    """References to what the batches of one optimiser step have computed; nothing is copied."""

    inputs: Any = None
    indexes: list[Any] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    projections: list[Tensor] = field(default_factory=list)
    loss: Any = 0.0  # the sum of the batches' losses

    def nonfinite_parts(
        self, module: nn.Module, logged: dict[str, Tensor], gradients: bool
    ) -> dict[str, str]:
        """Return what is not finite, causes before effects, and its name in a sentence.

        Args:
            module: the method, before its weights are updated.
            logged: the losses that the last batch has logged, by their names.
            gradients: whether gradients were found to be not finite.
        """
        tensors = {
            "inputs": tensors_in(self.inputs),
            "weights": module.parameters(),
            "features": self.features,
            "projections": self.projections,
        }
        parts = {name: name for name, values in tensors.items() if not all_finite(values)}
        broken = {name: value for name, value in logged.items() if not all_finite([value])}
        for name, value in broken.items():
            title = TITLES.get(name, f"the method's loss {name}")
            parts[name] = f"{title} ({float(value)})"
        if not broken and not all_finite([self.loss]):
            parts["sum"] = TITLES["sum"]
        if gradients:
            parts["gradients"] = "gradients"
        return parts


class BufferSnapshot:
    """A copy of a method's buffers from before a step, to be written back if it is skipped.

    Running statistics and queues change while a batch passes, not with the update.
    """

    def __init__(self, module: nn.Module) -> None:
        self._copies = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        # What the online kNN compares with grows by a batch in every step.
        self._grown: list[list[Tensor]] = []
        knn: Any = getattr(module, "knn", None)
        if knn is not None:
            self._grown = [knn.train_features, knn.train_targets]
        self._lengths = [len(batches) for batches in self._grown]

    @torch.no_grad()
    def restore(self) -> None:
        """Write the copies back."""
        for buffer, copy in self._copies:
            buffer.copy_(copy)
        for batches, length in zip(self._grown, self._lengths, strict=True):
            del batches[length:]


class NonFiniteGuard(pl.Callback):
    """Checks loss and gradients of every optimiser step, between backward pass and update.

    One number is read from the device for each optimiser step. Several ranks exchange one more, so
    that all of them decide alike. Where a gradient scaler is at work, which skips infinite
    gradients itself, only the loss counts.

    Args:
        settings: stop or skip.
        saves_state: whether the state is saved for inspection.
    """

    def __init__(self, settings: GuardSettings, saves_state: bool = True) -> None:
        super().__init__()
        self.settings = settings
        self.saves_state = saves_state
        self.skipped = 0  # steps so far, those before a resume included
        self._in_a_row = 0
        self._trace: StepTrace | None = None
        self._snapshot: BufferSnapshot | None = None
        self._hooks: list[Any] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to keep what the backbone and the projector return."""
        self._stop_tracing()
        for name, network in (("features", "backbone"), ("projections", "projector")):
            module = getattr(pl_module, network, None)
            if isinstance(module, nn.Module):
                hook = functools.partial(self._keep, pl_module, name)
                self._hooks.append(module.register_forward_hook(hook))

    def _keep(self, method: Any, name: str, module: Any, inputs: Any, output: Any) -> None:
        """Keep what a network returns in a step."""
        # Gradients may be accumulated across a validation, which is not in the step.
        if self._trace is not None and method.trainer.training:
            getattr(self._trace, name).extend(tensor.detach() for tensor in tensors_in(output))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Begin a step, or go on with one whose gradients are accumulated."""
        if self._trace is None:
            self._trace = StepTrace()
            if self.settings.on_nonfinite == "skip":
                self._snapshot = BufferSnapshot(pl_module)
        # solo-learn's batches are indexes, views and labels, those of a probe images and labels.
        if isinstance(batch, (list, tuple)) and len(batch) == 3:
            # Read only if the step is not finite: that waits for the device.
            self._trace.indexes.append(batch[0])
            batch = batch[1]
        self._trace.inputs = batch

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Keep the loss."""
        if self._trace is not None:
            self._trace.loss = self._trace.loss + loss.detach()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Let the step pass, skip it or stop."""
        trace, self._trace = self._trace, None
        if trace is None or not isinstance(trace.loss, Tensor):
            return
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        broken, by_gradients = is_nonfinite(trace.loss, pl_module, scaled)
        if trainer.world_size > 1:
            broken = trainer.strategy.reduce_boolean_decision(broken, all=False)
        if not broken:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        parts, indexes = _of_all_ranks(trainer, pl_module, trace, by_gradients)
        may_skip = self.settings.on_nonfinite == "skip"
        if not may_skip or self._in_a_row > self.settings.max_consecutive_skips:
            raise NonFiniteError(self._stop(trainer, pl_module, parts, indexes))
        # Optimisers pass over parameters without a gradient, their weight decay included.
        for parameter in pl_module.parameters():
            parameter.grad = None
        assert self._snapshot is not None
        self._snapshot.restore()
        self.skipped += 1
        if hasattr(pl_module, "last_step"):
            # solo-learn moves the teacher if there have been more steps than this, and the
            # optimiser counts this one.
            pl_module.last_step = trainer.global_step + 1
        if trainer.is_global_zero:
            text = ", ".join(parts.values())
            log.warning("Skipped step %d, not finite: %s.", trainer.global_step, text)
            for logger in trainer.loggers:
                logger.log_metrics({"skipped_steps": self.skipped}, step=trainer.global_step)

    def _stop(
        self, trainer: Any, module: Any, parts: dict[str, str], indexes: list[list[int]]
    ) -> str:
        """Save what there is to inspect and return the sentence."""
        step = trainer.global_step
        record = run_folder(trainer) / f"nonfinite-step{step}.json"
        # Not .ckpt: neither auto-resume nor evaluation takes it for a checkpoint.
        state = record.with_suffix(".state")
        method = getattr(getattr(module, "cfg", None), "method", None) or type(module).__name__
        images = getattr(trainer.train_dataloader, "dataset", None)
        content = {
            "step": step,
            "epoch": trainer.current_epoch,
            "method": method,
            "not_finite": list(parts),
            "image_indexes": indexes,
            "images": [[file_of(images, index) for index in part] for part in indexes],
        }
        kept = f"its images are listed in {record}"
        problem: Exception | None = None
        if trainer.is_global_zero:
            try:
                record.parent.mkdir(parents=True, exist_ok=True)
                record.write_text(json.dumps(content, indent=1))
            except OSError as error:
                problem = error
        if self.saves_state:
            # The other ranks save, too: they would wait for this one.
            problem = save_on_every_rank(trainer, state) or problem
            kept = f"the state before the update is {state}, {kept}"
        if problem is not None:
            kept = f"what there is to inspect could not be saved ({' '.join(str(problem).split())})"
        times = ""
        if self._in_a_row > 1:
            times = f", after {self._in_a_row - 1} skipped steps in a row"
        cause = next(key for key in LOOK_AT if any(part.startswith(key) for part in parts))
        return (
            f"Stopped at step {step} of method={method}{times}: not finite are "
            f"{', '.join(parts.values())}; look at {LOOK_AT[cause]}; {kept}."
        )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say how many steps were skipped."""
        self._stop_tracing()
        if self.skipped and trainer.is_global_zero:
            log.warning(
                "Skipped %d of %d steps whose loss or gradients were not finite "
                "(numerics.on_nonfinite=skip).",
                self.skipped,
                trainer.global_step,
            )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Keep nothing any more."""
        self._stop_tracing()

    def _stop_tracing(self) -> None:
        self._trace = self._snapshot = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run goes on counting from."""
        return {"skipped": self.skipped} if self.skipped else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting."""
        self.skipped = int(state_dict.get("skipped", 0))


def is_nonfinite(loss: Tensor, module: nn.Module, scaled: bool) -> tuple[bool, bool]:
    """Tell whether a step is not finite, and whether its gradients are not."""
    gradients = [] if scaled else [p.grad for p in module.parameters() if p.grad is not None]
    total = loss.float()
    if gradients:
        # One number that is finite if every gradient is, so that the device is waited for once.
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
        total = total + norms.sum().to(total.device)
    if bool(torch.isfinite(total)):
        return False, False
    # Squares of large finite gradients overflow: only each number itself tells.
    by_gradients = not all_finite(gradients)
    return by_gradients or not all_finite([loss]), by_gradients


def _of_all_ranks(
    trainer: Any, module: Any, trace: StepTrace, by_gradients: bool
) -> tuple[dict[str, str], list[list[int]]]:
    """Return what is not finite on the worst rank, and the image indexes of each rank."""
    own = (
        trace.nonfinite_parts(module, _logged_losses(trainer), by_gradients),
        [int(index) for indexes in trace.indexes for index in indexes],
    )
    of_all: list[Any] = [own]
    if trainer.world_size > 1 and dist.is_initialized():
        of_all = [None] * trainer.world_size
        dist.all_gather_object(of_all, own)
    # Gradients have been averaged: every rank has them, but one alone may have the cause.
    worst = max(range(len(of_all)), key=lambda rank: len(of_all[rank][0]))
    parts = dict(of_all[worst][0])
    if len({len(found) for found, _ in of_all}) > 1:
        last = list(parts)[-1]
        parts[last] = f"{parts[last]} on rank {worst}"
    return parts, [indexes for _, indexes in of_all]


def _logged_losses(trainer: Any) -> dict[str, Tensor]:
    """Return the losses that the last batch has logged; some are means over ranks."""
    return {
        name: value
        for name, value in trainer.callback_metrics.items()
        if name.startswith("train") and name.endswith("loss")
    }


def all_finite(tensors: Iterable[Any]) -> bool:
    """Tell whether every number is finite; waits for the device."""
    return all(bool(t.isfinite().all()) for t in tensors if t.is_floating_point())


def tensors_in(content: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists and dictionaries."""
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, (list, tuple, dict)):
        for item in content.values() if isinstance(content, dict) else content:
            yield from tensors_in(item)
