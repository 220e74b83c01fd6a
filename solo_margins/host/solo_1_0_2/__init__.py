"""The contract on the registry's solo-learn 1.0.2: its parts, adapted to the repository form."""

from __future__ import annotations

from typing import Any

from solo_margins.host.stand_ins import stand_ins

with stand_ins():
    import solo

from omegaconf import DictConfig
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.metrics import weighted_mean
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params
from solo.utils.pretrain_dataloader import FullTransformPipeline, NCropAugmentation
from torch import nn

from solo_margins.host import dali_errors
from solo_margins.host.backbones import build_backbone_from, load_backbone
from solo_margins.host.lightning import pl
from solo_margins.host.repairs.warmup_cosine import WarmupCosineLR as LinearWarmupCosineAnnealingLR
from solo_margins.host.solo_1_0_2.base import BaseMethod, BaseMomentumMethod
from solo_margins.host.solo_1_0_2.checkpoints import AutoResumer, Checkpointer
from solo_margins.host.solo_1_0_2.config import (
    omegaconf_select,
    parse_linear_cfg,
    parse_pretrain_cfg,
)
from solo_margins.host.solo_1_0_2.data import build_transform_pipeline
from solo_margins.host.solo_1_0_2.linear import LinearModel
from solo_margins.host.solo_1_0_2.losses import (
    byol_loss_func,
    concat_all_gather_no_grad,
    gather,
    mocov3_loss_func,
    simclr_loss_func,
)
from solo_margins.host.solo_1_0_2.methods import BYOL, MoCoV3, SimCLR
from solo_margins.host.solo_1_0_2.metrics import accuracy_at_k
from solo_margins.host.solo_1_0_2.optim import LARS, remove_bias_and_norm_from_weight_decay
from solo_margins.host.solo_1_0_2.released import Methods

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


def __getattr__(name: str) -> Any:
    if name in dali_errors.NAMES:
        with dali_errors.explained():
            from solo_margins.host.solo_1_0_2 import dali

        return getattr(dali, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_backbone(cfg: DictConfig) -> Any:
    """Return the backbone that a pretraining or linear configuration describes."""
    return build_backbone_from(BaseMethod._BACKBONES, cfg)


def make_contiguous(module: nn.Module) -> None:
    """Store every parameter of a network contiguously, as distributed training expects."""
    for parameter in module.parameters():
        parameter.data = parameter.data.contiguous()


def withhold_method(name: str, reason: str) -> None:
    """Let ``METHODS[name]`` say why that method is not available."""
    METHODS.withhold(name, reason)
