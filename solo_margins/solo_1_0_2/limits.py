"""What is not offered with the release, and what is said to whoever asks for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig
from solo.utils import backbones as release
from torch import nn
from torchvision.models import resnet18, resnet50

from solo_margins.solo_1_0_2 import refusal

VITS = {
    "vit_tiny": release.vit_tiny,
    "vit_small": release.vit_small,
    "vit_base": release.vit_base,
    "vit_large": release.vit_large,
}
OTHER_BACKBONES = (
    "swin_tiny",
    "swin_small",
    "swin_base",
    "swin_large",
    "poolformer_s12",
    "poolformer_s24",
    "poolformer_s36",
    "poolformer_m36",
    "poolformer_m48",
    "convnext_tiny",
    "convnext_small",
    "convnext_base",
    "convnext_large",
    "wide_resnet28w2",
    "wide_resnet28w8",
)
OTHER_SETTINGS = ("layer_decay", "exclude_bias_n_norm_wd")


def not_offered(what: str, *args: Any, **kwargs: Any) -> Any:
    """Raise an error that says which solo-learn has something, in the place of its constructor."""
    raise refusal(what)


def check_offered(cfg: DictConfig) -> None:
    """Raise ``NotImplementedError`` where a configuration asks for what only the repository has."""
    if cfg.optimizer.name == "lars":
        raise refusal("optimizer.name=lars")
    for name in OTHER_SETTINGS:
        if cfg.optimizer.get(name):
            raise refusal(f"optimizer.{name}")


def residual_network(
    build: Callable[..., nn.Module], method: Any = None, **kwargs: Any
) -> nn.Module:
    """Return a residual network, whatever the method."""
    return build(**kwargs)


def vit(build: Callable[..., nn.Module], method: Any = None, **kwargs: Any) -> nn.Module:
    """Return a ViT; that of MoCo v3 is not offered."""
    if method == "mocov3":
        raise refusal("The ViT of MoCo v3")
    return build(**kwargs)


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "resnet18": partial(residual_network, resnet18),
    "resnet50": partial(residual_network, resnet50),
}
for _name, _build in VITS.items():
    BACKBONES[_name] = partial(vit, _build)
for _name in OTHER_BACKBONES:
    BACKBONES[_name] = partial(not_offered, f"The backbone {_name!r}")

OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "lars": partial(not_offered, "optimizer.name=lars"),
}
