"""Stops at, or skips, an optimiser step whose loss or gradients are not finite."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn

from solo_margins.checkpoints import run_folder
from solo_margins.losses.checks import require_choice, require_count

STATE_SUFFIX = ".state"
"""Of the state that is saved for inspection: neither auto-resume nor evaluation takes it."""

METHOD_LOSS = "train_…_loss"
"""Stands for whatever a method calls its own loss."""

LOOK_AT = {
    "inputs": "augmentations, their mean and std, and the images themselves",
    "weights": "optimizer.lr, and the checkpoint that the run started from",
    "features": "optimizer.lr, gradient_clip_val and precision",
    "projections": "optimizer.lr, gradient_clip_val and precision",
    "train_polarization_loss": "method_kwargs.polarization",
    "train_class_loss": "optimizer.classifier_lr",
    METHOD_LOSS: "method_kwargs.temperature and method_kwargs.margins",
    "sum": "method_kwargs.polarization.weight and other factors of a loss",
    "gradients": "optimizer.lr, gradient_clip_val and precision",
}
"""Settings to look at, by what is not finite; causes come before their effects."""

TITLES = {
    "sum": "the sum of all losses",
    "train_polarization_loss": "the polarization penalty",
    "train_class_loss": "the online classifier's loss",
    "train_momentum_class_loss": "the momentum classifier's loss",
}

log = logging.getLogger("solo_margins.nonfinite")


class NonFiniteError(ArithmeticError):
    """Training cannot go on because its numbers are not finite; the message is one sentence."""


@dataclass(frozen=True)
class GuardSettings:
    """What to do about a step whose loss or gradients are not finite."""

    on_nonfinite: str = "stop"
    """``"skip"`` leaves weights, optimiser and teacher as they were and goes on."""
    max_consecutive_skips: int = 10
    """Skipped steps in a row after which training stops nevertheless."""

    def __post_init__(self) -> None:
        require_choice("on_nonfinite", self.on_nonfinite, ("stop", "skip"))
        require_count("max_consecutive_skips", self.max_consecutive_skips)


@dataclass
class StepTrace:
    """References to what the batches of one optimiser step have computed; nothing is copied."""

    inputs: list[Any] = field(default_factory=list)
    indexes: list[Tensor] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    projections: list[Tensor] = field(default_factory=list)
    logged: list[tuple[str, Any]] = field(default_factory=list)
    loss: Tensor | None = None
    """The sum of the batches' losses, which is finite if all of them are."""

    def nonfinite_parts(self, module: nn.Module, gradients: bool) -> list[str]:
        """Return what is not finite, causes before effects.

        Args:
            module: the method, before its weights are updated.
            gradients: whether gradients were found to be not finite.
        """
        parts = []
        for name, tensors in (
            ("inputs", tensors_in(self.inputs)),
            ("weights", module.parameters()),
            ("features", self.features),
            ("projections", self.projections),
        ):
            if not all_finite(tensors):
                parts.append(name)
        terms = [n for n, v in self.logged if n.endswith("loss") and not math.isfinite(float(v))]
        parts.extend(dict.fromkeys(terms))
        if self.loss is not None and not all_finite([self.loss]) and not terms:
            parts.append("sum")
        return [*parts, "gradients"] if gradients else parts

    def describe(self, parts: Iterable[str]) -> str:
        """Return a list for a sentence: what is not finite, and its value."""
        values = {n: v for n, v in reversed(self.logged) if not math.isfinite(float(v))}
        texts = []
        for part in parts:
            method_loss = f"the method's loss {part}" if part.startswith("train_") else part
            text = TITLES.get(part, method_loss)
            texts.append(f"{text} ({float(values[part])})" if part in values else text)
        return ", ".join(texts)


class BufferSnapshot:
    """A copy of a method's buffers from before a step, to be written back if it is skipped.

    Running statistics and queues change while a batch passes, not with the update.
    """

    def __init__(self, module: nn.Module, earlier: BufferSnapshot | None = None) -> None:
        self._buffers: dict[str, Tensor] = dict(module.named_buffers())
        # The memory of an earlier copy is used again.
        copies = {} if earlier is None else earlier._copies
        self._copies: dict[str, Tensor] = {}
        for name, buffer in self._buffers.items():
            copy = copies.get(name)
            fits = copy is not None and copy.shape == buffer.shape and copy.dtype == buffer.dtype
            if copy is not None and fits and copy.device == buffer.device:
                self._copies[name] = copy.copy_(buffer)
            else:
                self._copies[name] = buffer.detach().clone()
        # The features that the online kNN compares with grow as lists.
        self._knn: Any = getattr(module, "knn", None)
        held = {} if self._knn is None else vars(self._knn)
        names = ("train_features", "train_targets", "test_features", "test_targets")
        self._lengths = {n: len(held[n]) for n in names if isinstance(held.get(n), list)}

    @torch.no_grad()
    def restore(self) -> None:
        """Write the copies back."""
        for name, buffer in self._buffers.items():
            buffer.copy_(self._copies[name])
        for name, length in self._lengths.items():
            # The metric may have put another list in its place meanwhile.
            del getattr(self._knn, name)[length:]


class NonFiniteGuard(pl.Callback):
    """Checks loss and gradients of every optimiser step, between backward pass and update.

    One number is read from the device for each optimiser step. Several processes exchange one more,
    so that all of them decide alike. Where a gradient scaler is at work, which skips infinite
    gradients itself, only the loss counts.

    Args:
        settings: stop or skip.
        saves_state: whether the state is saved for inspection.
    """

    def __init__(self, settings: GuardSettings, saves_state: bool = True) -> None:
        super().__init__()
        self.settings = settings
        self.saves_state = saves_state
        self.skipped = 0
        """Steps that were skipped so far, those before a resume included."""
        self._in_a_row = 0
        self._trace: StepTrace | None = None
        self._snapshot: BufferSnapshot | None = None
        self._has_skipped = False
        self._release: list[Callable[[], None]] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to keep what the method computes and logs."""
        self._stop_tracing()
        for name in ("features", "projections"):
            network = getattr(pl_module, "backbone" if name == "features" else "projector", None)
            if isinstance(network, nn.Module):
                handle = network.register_forward_hook(self._keep(name, trainer))
                self._release.append(handle.remove)
        original = pl_module.log

        def log_and_keep(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            if self._trace is not None and isinstance(value, (Tensor, float)):
                kept = value.detach() if isinstance(value, Tensor) else value
                self._trace.logged.append((name, kept))
            original(name, value, *args, **kwargs)

        own = vars(pl_module).get("log")
        pl_module.log = log_and_keep
        self._release.append(
            lambda: delattr(pl_module, "log") if own is None else setattr(pl_module, "log", own)
        )

    def _keep(self, name: str, trainer: Any) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            # Gradients may be accumulated across a validation, which is no part of the step.
            if self._trace is not None and trainer.training:
                getattr(self._trace, name).extend(t.detach() for t in tensors_in(output))

        return hook

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Begin a step, or go on with one whose gradients are accumulated."""
        if self._trace is None:
            self._trace = StepTrace()
            if self.settings.on_nonfinite == "skip":
                self._snapshot = BufferSnapshot(pl_module, self._snapshot)
        # solo-learn's batches are indexes, views and labels, those of a probe images and labels.
        is_indexed = isinstance(batch, (list, tuple)) and len(batch) == 3
        self._trace.inputs = [batch[1] if is_indexed else batch]
        if is_indexed and isinstance(batch[0], Tensor):
            self._trace.indexes.append(batch[0])

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Keep the loss."""
        if self._trace is not None:
            before = self._trace.loss
            self._trace.loss = loss.detach() if before is None else before + loss.detach()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Let the step pass, skip it or stop."""
        trace, self._trace = self._trace, None
        if trace is None or trace.loss is None:
            return
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        broken, by_gradients = is_nonfinite(trace.loss, pl_module, scaled)
        if trainer.world_size > 1:
            broken = trainer.strategy.reduce_boolean_decision(broken, all=False)
        if not broken:
            self._in_a_row = 0
            return
        self._in_a_row += 1
        parts, text, indexes = _of_all_ranks(trainer, pl_module, trace, by_gradients)
        may_skip = self.settings.on_nonfinite == "skip"
        if not may_skip or self._in_a_row > self.settings.max_consecutive_skips:
            raise NonFiniteError(self._stop(trainer, pl_module, parts, text, indexes))
        self._skip(trainer, pl_module, text)

    def _skip(self, trainer: Any, module: Any, text: str) -> None:
        # Optimisers pass over parameters without a gradient, their weight decay included.
        for parameter in module.parameters():
            parameter.grad = None
        assert self._snapshot is not None
        self._snapshot.restore()
        self._has_skipped = True
        self.skipped += 1
        if trainer.is_global_zero:
            log.warning("Skipped step %d, not finite: %s.", trainer.global_step, text)
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
        self, trainer: Any, module: Any, parts: list[str], text: str, indexes: list[list[int]]
    ) -> str:
        """Save what there is to inspect and return the sentence."""
        step = trainer.global_step
        record = run_folder(trainer) / f"nonfinite-step{step}.json"
        state = record.with_suffix(STATE_SUFFIX)
        method = getattr(getattr(module, "cfg", None), "method", None) or type(module).__name__
        content = {
            "step": step,
            "epoch": trainer.current_epoch,
            "method": method,
            "not_finite": parts,
            "image_indexes": indexes,
            "images": _files_of(trainer, indexes),
        }
        kept = f"its images are listed in {record}"
        try:
            if trainer.is_global_zero:
                record.parent.mkdir(parents=True, exist_ok=True)
                record.write_text(json.dumps(content, indent=1))
            if self.saves_state:
                trainer.save_checkpoint(state)
                kept = f"the state before the update is {state}, {kept}"
        except (OSError, RuntimeError) as error:
            kept = f"what there is to inspect could not be saved ({' '.join(str(error).split())})"
        times = ""
        if self.settings.on_nonfinite == "skip":
            times = f", after {self._in_a_row - 1} skipped steps in a row"
        return (
            f"Stopped at step {step} of method={method}{times}: not finite are {text}; look at "
            f"{settings_to_check(parts)}; {kept}."
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
        """Leave the method as it was."""
        self._stop_tracing()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the method as it was."""
        self._stop_tracing()

    def _stop_tracing(self) -> None:
        self._trace = self._snapshot = None
        while self._release:
            self._release.pop()()

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


def settings_to_check(parts: Iterable[str]) -> str:
    """Return the settings that may be the cause of what is not finite."""
    names = set(parts)
    for name, settings in LOOK_AT.items():
        if name in names or (name == METHOD_LOSS and any(n.startswith("train_") for n in names)):
            return settings
    return LOOK_AT["gradients"]


def _of_all_ranks(
    trainer: Any, module: Any, trace: StepTrace, by_gradients: bool
) -> tuple[list[str], str, list[list[int]]]:
    """Return what is not finite in any process, in words too, and the image indexes of each."""
    parts = trace.nonfinite_parts(module, by_gradients)
    indexes = [int(i) for part in trace.indexes for i in part.flatten().tolist()]
    own = (parts, trace.describe(parts), indexes)
    if trainer.world_size == 1 or not dist.is_initialized():
        return parts, own[1], [indexes]
    of_all: list[Any] = [None] * trainer.world_size
    dist.all_gather_object(of_all, own)
    # Gradients have been averaged: every process has them, but one alone may have the cause.
    worst = max(range(len(of_all)), key=lambda rank: len(of_all[rank][0]))
    text = of_all[worst][1]
    if len({len(found) for found, _, _ in of_all}) > 1:
        text = f"{text} in process {worst}"
    return of_all[worst][0], text, [found for _, _, found in of_all]


def _files_of(trainer: Any, indexes: list[list[int]]) -> list[list[str]] | None:
    """Return the files of image indexes, None where the data set does not know them."""
    images: Any = getattr(trainer.train_dataloader, "dataset", None)
    file = getattr(images, "file", None)
    if file is None:
        return None
    return [[file(index) for index in part if index < len(images)] for part in indexes]


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Tell whether every number is finite; waits for the device."""
    return all(bool(t.isfinite().all()) for t in tensors if t.is_floating_point())


def tensors_in(content: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists and dictionaries."""
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping):
        for item in content.values():
            yield from tensors_in(item)
    elif isinstance(content, (list, tuple)):
        for item in content:
            yield from tensors_in(item)
