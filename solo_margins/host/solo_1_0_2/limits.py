"""What is not offered with the registry's release, and what is said to whoever asks for it."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig
from solo.utils import backbones as release
from torch import nn
from torchvision.models import resnet18, resnet50

from solo_margins.host import SOLO_METHODS
from solo_margins.registry import OUR_METHODS

VITS = ("vit_tiny", "vit_small", "vit_base", "vit_large")
OTHER_BACKBONES = """
    swin_tiny swin_small swin_base swin_large
    poolformer_s12 poolformer_s24 poolformer_s36 poolformer_m36 poolformer_m48
    convnext_tiny convnext_small convnext_base convnext_large wide_resnet28w2 wide_resnet28w8
"""
SCHEDULERS = ("warmup_cosine", "step", "none")
OTHER_SCHEDULERS = ("reduce", "exponential")
OTHER_SETTINGS = ("layer_decay", "exclude_bias_n_norm_wd")


def refusal(what: str) -> NotImplementedError:
    """Return the error that names the version of solo-learn which has something."""
    return NotImplementedError(
        f"{what} is not offered with solo-learn 1.0.2 from the package registry; "
        "solo-learn's repository (1.0.6 or later) has it."
    )


def not_offered(what: str) -> Callable[..., Any]:
    """Return a constructor that only says which version of solo-learn has something."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise refusal(what)

    return refuse


def check_offered(cfg: DictConfig) -> None:
    """Raise ``NotImplementedError`` where a configuration asks for what only the repository has."""
    if cfg.optimizer.name == "lars":
        raise refusal("optimizer.name=lars")
    if cfg.scheduler.name in OTHER_SCHEDULERS:
        raise refusal(f"scheduler.name={cfg.scheduler.name}")
    for name in OTHER_SETTINGS:
        if cfg.optimizer.get(name):
            raise refusal(f"optimizer.{name}")


def _offered(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def backbone(method: Any = None, **kwargs: Any) -> nn.Module:
        if build.__name__ in VITS and str(method).startswith("mocov3"):
            raise refusal("The ViT of MoCo v3")
        return build(**kwargs)

    return backbone


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "resnet18": _offered(resnet18),
    "resnet50": _offered(resnet50),
    **{name: _offered(getattr(release, name)) for name in VITS},
    **{name: not_offered(f"The backbone {name!r}") for name in OTHER_BACKBONES.split()},
}


class Methods(dict[str, Any]):
    """Methods by name; one that is not offered here answers with who has it."""

    def __missing__(self, name: str) -> Any:
        if name in OUR_METHODS or name in SOLO_METHODS:
            raise refusal(f"The method {name!r}")
        raise KeyError(name)
