"""Backbones outside a method: built from a configuration, filled from a checkpoint."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from solo_margins.backbones import complaint_about
from solo_margins.checkpoints import read_checkpoint

logger = logging.getLogger(__name__)


def with_vit_of_mocov3(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of backbones in which methods derived from MoCo v3 get its ViT.

    solo-learn chooses between variants of the ViT by the name of the method.
    """

    def vit(constructor: Any, method: Any, **kwargs: Any) -> nn.Module:
        return constructor("mocov3" if method == "mocov3_margin" else method, **kwargs)

    return {name: partial(vit, x) if name.startswith("vit_") else x for name, x in table.items()}


def backbone_constructor(name: str) -> Callable[..., nn.Module]:
    """Return what builds a backbone, or raise ``ValueError`` if there is none of that name."""
    from solo_margins.host import load

    table: Any = load().BaseMethod._BACKBONES
    if name not in table:
        listed = f"one of {', '.join(sorted(table))}, or timm/<model>"
        raise ValueError(complaint_about(name) or f"backbone.name must be {listed}, got {name!r}.")
    return table[name]


def build_backbone(cfg: DictConfig) -> Any:
    """Return the backbone that a configuration describes, without weights and classifier.

    The method, which decides between variants of the ViT, is ``cfg.pretrain_method`` (linear
    configurations) or ``cfg.method``. On CIFAR a ResNet loses its down-sampling stem.
    """
    name = str(cfg.backbone.name)
    method = OmegaConf.select(cfg, "pretrain_method") or OmegaConf.select(cfg, "method")
    kwargs = OmegaConf.select(cfg, "backbone.kwargs", default=None) or {}
    backbone: Any = backbone_constructor(name)(method, **kwargs)
    if name.startswith("resnet"):
        backbone.fc = nn.Identity()
        if cfg.data.dataset in ("cifar10", "cifar100"):
            # Padding 2 is the host's own choice: its checkpoints expect it.
            backbone.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=2, bias=False)
            backbone.maxpool = nn.Identity()
    return backbone


def backbone_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the backbone in a method's state, without their prefix.

    Keys of older checkpoints, ``encoder.*``, are understood and reported.
    """
    own, old = (
        {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        for prefix in ("backbone.", "encoder.")
    )
    if old and not own:
        logger.warning("Renamed %d keys encoder.* of an older checkpoint to backbone.*.", len(old))
    return own or old


def load_backbone(backbone: nn.Module, checkpoint: str | Path) -> None:
    """Fill a backbone from a pretraining checkpoint, and make sure that all of it was filled.

    Raises:
        ValueError: the checkpoint holds no backbone, or not the one asked for.
    """
    content = read_checkpoint(checkpoint)
    state = backbone_state(content.get("state_dict", content))
    if not state:
        raise ValueError(
            f"{checkpoint} holds no keys backbone.* (nor encoder.*): it is not a "
            "pretraining checkpoint of solo-learn."
        )
    # A classifier that the backbone has lost since is no loss.
    wanted = backbone.state_dict()
    missing = sorted(wanted.keys() - state.keys())
    differing = sorted(k for k in wanted.keys() & state.keys() if wanted[k].shape != state[k].shape)
    if missing or differing:
        example = (missing or differing)[0]
        raise ValueError(
            f"{checkpoint} holds another backbone than the one configured: {len(missing)} of its "
            f"{len(wanted)} tensors are missing and {len(differing)} differ in shape, "
            f"for example {example!r}; check backbone.name and backbone.kwargs."
        )
    backbone.load_state_dict({k: state[k] for k in wanted})
