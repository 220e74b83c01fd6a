"""Backbones of release 1.0.2 under the names and signatures of the repository."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from solo.utils import backbones as release
from torch import nn
from torchvision.models import resnet18, resnet50

from solo_margins.host.backbones import LIKE_MOCOV3
from solo_margins.host.solo_1_0_2.vit import MOCO_VITS

ONLY_ON_MAIN = (
    *(f"poolformer_{size}" for size in ("s12", "s24", "s36", "m36", "m48")),
    *(f"convnext_{size}" for size in ("tiny", "small", "base", "large")),
    "wide_resnet28w2",
    "wide_resnet28w8",
)


def _plain(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def backbone(method: Any = None, **kwargs: Any) -> nn.Module:
        return build(**kwargs)

    return backbone


def _vit(name: str) -> Callable[..., nn.Module]:
    def backbone(method: Any = None, **kwargs: Any) -> nn.Module:
        if str(method).lower() in ("mocov3", *LIKE_MOCOV3):
            return MOCO_VITS[name](**kwargs)
        return getattr(release, name)(**kwargs)

    return backbone


def _absent(name: str) -> Callable[..., nn.Module]:
    def backbone(method: Any = None, **kwargs: Any) -> nn.Module:
        raise NotImplementedError(
            f"The backbone {name!r} is not in solo-learn 1.0.2 from the package registry; "
            "solo-learn's repository (1.0.6 or later) has it."
        )

    return backbone


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "resnet18": _plain(resnet18),
    "resnet50": _plain(resnet50),
    **{name: _vit(name) for name in MOCO_VITS},
    **{
        name: _plain(getattr(release, name))
        for name in ("swin_tiny", "swin_small", "swin_base", "swin_large")
    },
    **{name: _absent(name) for name in ONLY_ON_MAIN},
}
