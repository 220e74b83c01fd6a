"""The interface on solo-learn 1.0.2 of the package registry, for three methods.

The release's own parts are used where they do the same as the repository's; what it lacks, or gets
wrong with today's packages, is written here against the interface of the repository.
"""

from __future__ import annotations

from typing import Any

from solo_margins.host.import_shims import import_shims

with import_shims():
    import solo

from omegaconf import DictConfig
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.momentum import initialize_momentum_params
from solo.utils.pretrain_dataloader import FullTransformPipeline, NCropAugmentation
from torch import nn

from solo_margins.host import OTHER_METHODS
from solo_margins.host.backbones import build_backbone_from, load_backbone
from solo_margins.host.lightning import pl
from solo_margins.host.solo_1_0_2.base import BaseMethod
from solo_margins.host.solo_1_0_2.config import parse_linear_cfg, parse_pretrain_cfg
from solo_margins.host.solo_1_0_2.linear import LinearModel
from solo_margins.host.solo_1_0_2.losses import gather
from solo_margins.host.solo_1_0_2.methods import BYOL, MoCoV3, SimCLR
from solo_margins.host.solo_1_0_2.views import build_transform_pipeline
from solo_margins.registry import OUR_METHODS


class Methods(dict[str, Any]):
    """Methods by name; one that is not offered here answers with who has it."""

    def __missing__(self, name: str) -> Any:
        if name not in OUR_METHODS and name not in OTHER_METHODS.values():
            raise KeyError(name)
        raise NotImplementedError(
            f"The method {name!r} is not offered with solo-learn 1.0.2 from the package registry; "
            "solo-learn's repository (1.0.6 or later) has it."
        )


METHODS = Methods(
    {
        "base": BaseMethod,
        "linear": LinearModel,
        "byol": BYOL,
        "mocov3": MoCoV3,
        "simclr": SimCLR,
    }
)
# Whoever imports solo-learn's own table finds the methods that work, ours among them.
solo.methods.METHODS = METHODS


class Checkpointer(pl.Callback):
    """What a program gives its trainer in order to save checkpoints; ours derives from it."""


def __getattr__(name: str) -> Any:
    if name == "build_transform_pipeline_dali":
        from solo_margins.host.solo_1_0_2.dali import build_transform_pipeline_dali

        return build_transform_pipeline_dali
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_backbone(cfg: DictConfig) -> Any:
    """Return the backbone that a pretraining or linear configuration describes."""
    return build_backbone_from(BaseMethod._BACKBONES, cfg)


def make_contiguous(module: nn.Module) -> None:
    """Store every parameter of a network contiguously, as distributed training expects."""
    for parameter in module.parameters():
        parameter.data = parameter.data.contiguous()
