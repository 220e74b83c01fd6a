"""The interface on the registry's solo-learn 1.0.2: what the three methods, demo and tests need.

Parts of the release are used where they do what those of the repository do, with the repairs that
fit them; what it lacks is written here against the interface of the repository.
"""

from typing import Any

from solo_margins.host.detect import import_shims

with import_shims():
    import solo

from omegaconf import DictConfig
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.momentum import initialize_momentum_params
from solo.utils.pretrain_dataloader import FullTransformPipeline, NCropAugmentation
from torch import nn

from solo_margins.host.backbones import build_backbone, load_backbone
from solo_margins.host.lightning import pl
from solo_margins.host.solo_1_0_2.base import BaseMethod, LinearModel
from solo_margins.host.solo_1_0_2.config import parse_linear_cfg, parse_pretrain_cfg
from solo_margins.host.solo_1_0_2.limits import Methods
from solo_margins.host.solo_1_0_2.methods import BYOL, MoCoV3, SimCLR
from solo_margins.host.solo_1_0_2.views import (
    build_transform_pipeline,
    build_transform_pipeline_dali,
)

METHODS = Methods(base=BaseMethod, linear=LinearModel, byol=BYOL, mocov3=MoCoV3, simclr=SimCLR)
# Whoever imports solo-learn's own table finds the methods that work, ours among them.
solo.methods.METHODS = METHODS


class Checkpointer(pl.Callback):
    """What a program gives its trainer in order to save checkpoints; ours derives from it."""
