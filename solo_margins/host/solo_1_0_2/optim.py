"""Optimizers and schedules by name, and LARS as solo-learn's repository defines it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR, MultiStepLR, ReduceLROnPlateau

from solo_margins.host.repairs.static_rates_in_checkpoints import keep_rates_static
from solo_margins.host.repairs.warmup_cosine import WarmupCosineLR


class LARS(Optimizer):
    r"""SGD with momentum whose gradients are rescaled layer by layer (You et al., 2017).

    .. math:: d = \lambda (g + w_d\, p), \quad
        \lambda = \eta \lVert p \rVert / (\lVert g \rVert + w_d \lVert p \rVert + \epsilon)

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        momentum: momentum factor.
        dampening: dampening of the momentum.
        weight_decay: weight decay w_d.
        nesterov: use Nesterov momentum.
        eta: trust coefficient.
        eps: added to the denominator.
        clip_lr: limit the rescaling to at most 1 in units of the learning rate.
        exclude_bias_n_norm: leave one-dimensional parameters unscaled and without weight decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        eta: float = 1e-3,
        eps: float = 1e-8,
        clip_lr: bool = False,
        exclude_bias_n_norm: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, got {value}.")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs a momentum above 0 and no dampening.")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "eta": eta,
                "eps": eps,
                "clip_lr": clip_lr,
                "exclude_bias_n_norm": exclude_bias_n_norm,
            },
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step, evaluating ``closure`` first when it is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = self._with_momentum(parameter, _rescaled(parameter, group), group)
                    parameter.add_(update, alpha=-group["lr"])
        return loss

    def _with_momentum(
        self, parameter: torch.Tensor, update: torch.Tensor, group: dict[str, Any]
    ) -> torch.Tensor:
        if group["momentum"] == 0:
            return update
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = update.clone()
        else:
            buffer = state["momentum_buffer"]
            buffer.mul_(group["momentum"]).add_(update, alpha=1 - group["dampening"])
        if group["nesterov"]:
            return update.add(state["momentum_buffer"], alpha=group["momentum"])
        return state["momentum_buffer"]


def _rescaled(parameter: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None
    if parameter.ndim == 1 and group["exclude_bias_n_norm"]:
        return gradient
    size, slope = parameter.norm(), gradient.norm()
    if size == 0 or slope == 0:
        return gradient
    decay = group["weight_decay"]
    rate = group["eta"] * (size / (slope + size * decay + group["eps"]))
    if group["clip_lr"]:
        rate = (rate / group["lr"]).clamp(max=1)
    return gradient.add(parameter, alpha=decay) * rate


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": torch.optim.SGD,
    "lars": LARS,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def remove_bias_and_norm_from_weight_decay(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split every parameter group so that biases and norms (one dimension) are not decayed."""
    split: list[dict[str, Any]] = []
    for group in groups:
        parameters = list(group["params"])
        settings = {key: value for key, value in group.items() if key != "params"}
        decayed = [p for p in parameters if p.ndim > 1]
        others = [p for p in parameters if p.ndim <= 1]
        if decayed:
            split.append({**settings, "params": decayed})
        if others:
            settings["weight_decay"] = 0
            if settings.get("name"):
                settings["name"] += "_no_decay"
            split.append({**settings, "params": others})
    return split


def configure(model: Any, groups: Any) -> Any:
    """Return the optimizer and schedule that a model's settings name, as Lightning takes them."""
    if model.exclude_bias_n_norm_wd:
        groups = remove_bias_and_norm_from_weight_decay(groups)
    static = [i for i, g in enumerate(groups) if g.pop("static_lr", False)]
    if model.optimizer not in OPTIMIZERS:
        raise ValueError(
            f"optimizer.name must be one of {sorted(OPTIMIZERS)}, got {model.optimizer!r}."
        )
    build: Any = OPTIMIZERS[model.optimizer]
    optimizer = build(
        groups, lr=model.lr, weight_decay=model.weight_decay, **model.extra_optimizer_args
    )
    name = model.scheduler.lower()
    if name == "none":
        return optimizer
    entry = _schedule(model, optimizer, name)
    if static:
        keep_rates_static(entry["scheduler"], dict.fromkeys(static, model.lr))
    return [optimizer], [entry]


def _schedule(model: Any, optimizer: Optimizer, name: str) -> dict[str, Any]:
    if name == "warmup_cosine":
        by_step = model.scheduler_interval == "step"
        total = model.trainer.estimated_stepping_batches if by_step else model.max_epochs
        warmup = model.warmup_epochs * total / model.max_epochs
        scheduler: Any = WarmupCosineLR(
            optimizer,
            warmup_epochs=warmup,
            max_epochs=total,
            warmup_start_lr=model.warmup_start_lr if model.warmup_epochs > 0 else model.lr,
            eta_min=model.min_lr,
        )
        return {"scheduler": scheduler, "interval": model.scheduler_interval, "frequency": 1}
    if name == "step":
        return {"scheduler": MultiStepLR(optimizer, model.lr_decay_steps, gamma=0.1)}
    if name == "reduce":
        return {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val_loss"}
    if name == "exponential":
        return {"scheduler": ExponentialLR(optimizer, model.weight_decay)}
    raise ValueError(
        "scheduler.name must be one of warmup_cosine, step, reduce, exponential, none, "
        f"got {model.scheduler!r}."
    )
