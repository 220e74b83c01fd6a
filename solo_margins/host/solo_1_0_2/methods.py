"""SimCLR, BYOL and MoCo v3 with the interface of the repository."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from solo.losses.byol import byol_loss_func
from solo.utils.momentum import initialize_momentum_params
from torch import Tensor, nn

from solo_margins.host.solo_1_0_2.base import BaseMethod, BaseMomentumMethod
from solo_margins.losses import plain
from solo_margins.losses.margins import ContrastSpec


def mocov3_loss_func(query: Tensor, key: Tensor, temperature: float = 0.2) -> Tensor:
    r"""Return MoCo v3's loss, :math:`2\tau` times the cross-entropy of cosine logits."""
    return 2 * temperature * plain.query_key(query, key.detach(), ContrastSpec(temperature))


def simclr_loss_func(z: Tensor, indexes: Tensor, temperature: float = 0.1) -> Tensor:
    """Return SimCLR's loss, minus the mean log of the positives' share of the probability."""
    return plain.same_id(z, indexes, ContrastSpec(temperature))


class SimCLR(BaseMethod):
    """SimCLR (Chen et al., 2020).

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, temperature}``.
    """

    needed = ("proj_hidden_dim", "proj_output_dim", "temperature")

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        self.temperature: float = kwargs.temperature
        self.projector = nn.Sequential(
            nn.Linear(self.features_dim, kwargs.proj_hidden_dim),
            nn.ReLU(),
            nn.Linear(kwargs.proj_hidden_dim, kwargs.proj_output_dim),
        )

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups and the projector's."""
        projector = {"name": "projector", "params": self.projector.parameters()}
        return [*super().learnable_params, projector]

    def outputs(self, feats: Tensor) -> dict[str, Any]:
        """Return features and their projection ``z``."""
        return {"feats": feats, "z": self.projector(feats)}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the sum of SimCLR's and the online classifier's loss."""
        out = super().training_step(batch, batch_idx)
        indexes = batch[0].repeat(self.num_crops)
        loss = simclr_loss_func(torch.cat(out["z"]), indexes, self.temperature)
        self.log("train_nce_loss", loss, on_epoch=True, sync_dist=True)
        return loss + out["loss"]


class _WithPredictor(BaseMomentumMethod):
    """A method with a projector, which has a momentum copy, and a predictor."""

    # What the outputs of the predictor and of the momentum projector are called.
    prediction: ClassVar[str]
    target: ClassVar[str]

    def set_heads(self, projector: nn.Module, copied: nn.Module, predictor: nn.Module) -> None:
        """Take the heads, and let the projector's copy begin with its weights."""
        self.projector, self.momentum_projector, self.predictor = projector, copied, predictor
        initialize_momentum_params(projector, copied)

    def outputs(self, feats: Tensor) -> dict[str, Any]:
        """Return features, their projection ``z`` and its prediction."""
        z = self.projector(feats)
        return {"feats": feats, "z": z, self.prediction: self.predictor(z)}

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the momentum projection."""
        out = super().momentum_forward(X)
        return {**out, self.target: self.momentum_projector(out["feats"])}

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups, the projector's and the predictor's."""
        projector = {"name": "projector", "params": self.projector.parameters()}
        predictor = {"name": "predictor", "params": self.predictor.parameters()}
        return [*super().learnable_params, projector, predictor]

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """The parent's pairs and that of the projectors."""
        return [*super().momentum_pairs, (self.projector, self.momentum_projector)]


class BYOL(_WithPredictor):
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


class MoCoV3(_WithPredictor):
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


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    first = [nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
    return nn.Sequential(*first, nn.Linear(hidden, outputs))


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
