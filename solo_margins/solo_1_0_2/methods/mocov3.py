"""MoCo v3, which the release does not have."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from omegaconf import DictConfig
from torch import nn

from solo_margins.solo_1_0_2.losses.mocov3 import mocov3_loss_func
from solo_margins.solo_1_0_2.methods.predictor import WithPredictor


class MoCoV3(WithPredictor):
    """MoCo v3 (Chen et al., 2021), which the release does not have.

    Projector and predictor have two layers on residual networks and, as in the paper (§3), a
    projector of three on transformers.

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, pred_hidden_dim, temperature}``.
    """

    needed = ("proj_hidden_dim", "proj_output_dim", "pred_hidden_dim", "temperature")
    prediction, target = "q", "k"

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        self.temperature: float = kwargs.temperature
        is_resnet = "resnet" in self.backbone_name
        hidden = [kwargs.proj_hidden_dim] * (1 if is_resnet else 2)
        widths = [self.features_dim, *hidden, kwargs.proj_output_dim]
        predicted = [kwargs.proj_output_dim, kwargs.pred_hidden_dim, kwargs.proj_output_dim]
        self.set_heads(
            _bias_free_mlp(widths, last_norm=True),
            _bias_free_mlp(widths, last_norm=True),
            _bias_free_mlp(predicted, last_norm=not is_resnet),
        )

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the sum of MoCo v3's symmetric and the online classifier's loss."""
        out = super().training_step(batch, batch_idx)
        queries, keys = out["q"], out["momentum_k"]
        loss = mocov3_loss_func(queries[0], keys[1], self.temperature)
        loss = loss + mocov3_loss_func(queries[1], keys[0], self.temperature)
        self.log("train_contrastive_loss", loss, on_epoch=True, sync_dist=True)
        return loss + out["loss"]


def _bias_free_mlp(widths: Sequence[int], last_norm: bool) -> nn.Sequential:
    """Return linear layers without bias, normalised; the last norm has no parameters."""
    layers: list[nn.Module] = []
    last = len(widths) - 2
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(inputs, outputs, bias=False))
        if index < last:
            layers += [nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)]
        elif last_norm:
            layers.append(nn.BatchNorm1d(outputs, affine=False))
    return nn.Sequential(*layers)
