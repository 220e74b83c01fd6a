"""BYOL with the interface of the repository."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from solo.losses.byol import byol_loss_func
from torch import nn

from solo_margins.solo_1_0_2.methods.predictor import WithPredictor


class BYOL(WithPredictor):
    """BYOL (Grill et al., 2020).

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, pred_hidden_dim}``.
    """

    needed = ("proj_hidden_dim", "proj_output_dim", "pred_hidden_dim")
    prediction, target = "p", "z"

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        widths = (self.features_dim, kwargs.proj_hidden_dim, kwargs.proj_output_dim)
        predicted = (kwargs.proj_output_dim, kwargs.pred_hidden_dim, kwargs.proj_output_dim)
        self.set_heads(_two_layers(*widths), _two_layers(*widths), _two_layers(*predicted))

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the sum of BYOL's and the online classifier's loss."""
        out = super().training_step(batch, batch_idx)
        loss = sum(
            byol_loss_func(prediction, target)
            for target_view, target in enumerate(out["momentum_z"])
            for view, prediction in enumerate(out["p"])
            if view != target_view
        )
        with torch.no_grad():
            z = F.normalize(torch.stack(out["z"][: self.num_large_crops]), dim=-1)
        metrics = {"train_neg_cos_sim": loss, "train_z_std": z.std(dim=1).mean()}
        self.log_dict(metrics, on_epoch=True, sync_dist=True)
        return loss + out["loss"]


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    first = [nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
    return nn.Sequential(*first, nn.Linear(hidden, outputs))
