"""The interface on solo-learn's repository: its own names, repaired in place."""

import sys
from typing import Any

from omegaconf import DictConfig
from solo.args.linear import parse_cfg as parse_linear_cfg
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.data import classification_dataloader
from solo.data.pretrain_dataloader import (
    FullTransformPipeline,
    NCropAugmentation,
    build_transform_pipeline,
)
from solo.methods import BaseMethod, LinearModel
from solo.utils.checkpointer import Checkpointer
from solo.utils.misc import gather
from solo.utils.momentum import initialize_momentum_params

from solo_margins.host import changes, repairs
from solo_margins.host.backbones import build_backbone, load_backbone
from solo_margins.host.lightning import pl

changes.apply(repairs.load())

# The table of methods; a fork may have renamed it, or moved it to another module.
_modules = [module for name, module in sys.modules.items() if name.startswith("solo.methods")]
_tables = [x for m in filter(None, _modules) for x in vars(m).values() if isinstance(x, dict)]
METHODS: Any = next((x for x in _tables if any(v is BaseMethod for v in x.values())), {})

# Bound after the changes: it is replaced, not patched inside.
from solo.utils.knn import WeightedKNNClassifier  # noqa: E402


def build_transform_pipeline_dali(dataset: str, cfg: DictConfig, dali_device: str) -> Any:
    """Return solo-learn's transforms for DALI, which is imported when it is used."""
    from solo.data.dali_dataloader import build_transform_pipeline_dali

    return build_transform_pipeline_dali(dataset, cfg, dali_device)


def use_classification_transforms(training: Any, validation: Any) -> None:
    """Let programs that ask solo-learn for transforms by the name of a data set get these."""
    classification_dataloader.prepare_transforms = lambda dataset: (training, validation)
