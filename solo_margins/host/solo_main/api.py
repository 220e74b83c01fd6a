"""The contract on solo-learn's repository form: its own names, repaired in place."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from solo.args.linear import parse_cfg as parse_linear_cfg
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.data.classification_dataloader import prepare_data as prepare_classification_data
from solo.data.pretrain_dataloader import (
    FullTransformPipeline,
    NCropAugmentation,
    build_transform_pipeline,
)
from solo.data.pretrain_dataloader import prepare_dataloader as prepare_pretrain_dataloader
from solo.data.pretrain_dataloader import prepare_datasets as prepare_pretrain_dataset
from solo.losses.byol import byol_loss_func
from solo.losses.mocov3 import mocov3_loss_func
from solo.losses.simclr import simclr_loss_func
from solo.methods import BYOL, METHODS, BaseMethod, LinearModel, MoCoV3, SimCLR
from solo.methods.base import BaseMomentumMethod
from solo.utils.auto_resumer import AutoResumer
from solo.utils.checkpointer import Checkpointer
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.lars import LARS
from solo.utils.lr_scheduler import LinearWarmupCosineAnnealingLR
from solo.utils.metrics import weighted_mean
from solo.utils.misc import (
    concat_all_gather_no_grad,
    gather,
    make_contiguous,
    omegaconf_select,
    remove_bias_and_norm_from_weight_decay,
)
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params

from solo_margins.host import changes, dali_errors, repairs
from solo_margins.host.backbones import build_backbone_from, load_backbone
from solo_margins.host.lightning import pl
from solo_margins.host.solo_main.adaptations import ADAPTATIONS

changes.apply(repairs.load())
changes.apply(ADAPTATIONS)

# Bound after the changes: these names are replaced, not patched inside.
from solo.data.classification_dataloader import (  # noqa: E402
    prepare_transforms as prepare_classification_transforms,
)
from solo.utils.metrics import accuracy_at_k  # noqa: E402


def __getattr__(name: str) -> Any:
    if name in dali_errors.NAMES:
        with dali_errors.explained():
            from solo.data import dali_dataloader

        return getattr(dali_dataloader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_backbone(cfg: DictConfig) -> Any:
    """Return the backbone that a pretraining or linear configuration describes."""
    return build_backbone_from(BaseMethod._BACKBONES, cfg)


def withhold_method(name: str, reason: str) -> None:
    """Fail: this form has every method that ours derive from."""
    raise NotImplementedError(f"The method {name!r} is not available: {reason}")
