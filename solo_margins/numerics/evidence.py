"""What a step has seen, kept without a copy, and what of it is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
"""Where the cause may be, by what is not finite; what comes first explains what follows."""

NAMES = {
    "sum": "the sum of all losses",
    "train_polarization_loss": "the polarization penalty",
    "train_class_loss": "the online classifier's loss",
    "train_momentum_class_loss": "the momentum classifier's loss",
}


@dataclass
class Evidence:
    """References to what the batches of one optimiser step have shown."""

    inputs: list[Any] = field(default_factory=list)
    indexes: list[Any] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    projections: list[Tensor] = field(default_factory=list)
    logged: list[tuple[str, Any]] = field(default_factory=list)
    loss: Tensor | None = None
    """The sum of the losses, which is finite if all of them are."""

    def add_loss(self, loss: Tensor) -> None:
        """Add the loss of a batch."""
        self.loss = loss.detach() if self.loss is None else self.loss + loss.detach()


def broken_parts(evidence: Evidence, module: Any, gradients: bool) -> list[str]:
    """Return what is not finite, causes before effects.

    Args:
        evidence: of the step.
        module: the method, before its weights are updated.
        gradients: whether gradients were found to be not finite.
    """
    found = []
    for name, tensors in (
        ("inputs", tensors_in(evidence.inputs)),
        ("weights", module.parameters()),
        ("features", evidence.features),
        ("projections", evidence.projections),
    ):
        if not all_finite(tensors):
            found.append(name)
    terms = [n for n, v in evidence.logged if n.endswith("loss") and not math.isfinite(float(v))]
    found.extend(dict.fromkeys(terms))
    if evidence.loss is not None and not all_finite([evidence.loss]) and not terms:
        found.append("sum")
    if gradients:
        found.append("gradients")
    return found


def described(parts: Iterable[str], evidence: Evidence) -> str:
    """Return a list for a sentence: what is not finite, and how."""
    values = {n: v for n, v in reversed(evidence.logged) if not math.isfinite(float(v))}
    said = []
    for part in parts:
        text = NAMES.get(part, f"the method's loss {part}" if part.startswith("train_") else part)
        said.append(f"{text} ({float(values[part])})" if part in values else text)
    return ", ".join(said)


def advice(parts: Iterable[str]) -> str:
    """Return the settings to look at."""
    names = set(parts)
    for name, settings in LOOK_AT.items():
        if name in names or (name == METHOD_LOSS and any(n.startswith("train_") for n in names)):
            return settings
    return LOOK_AT["gradients"]


def gradients_finite(gradients: list[Tensor]) -> Tensor:
    """Return one number that is finite if every gradient is; nothing waits for the device."""
    return torch.stack([norm.float() for norm in torch._foreach_norm(gradients)]).sum()


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
