"""SimCLR, BYOL and MoCo v3 with the interface of the repository."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from solo.utils.momentum import initialize_momentum_params
from torch import Tensor, nn

from solo_margins.host.solo_1_0_2.base import BaseMethod, BaseMomentumMethod
from solo_margins.host.solo_1_0_2.config import require
from solo_margins.host.solo_1_0_2.losses import (
    byol_loss_func,
    mocov3_loss_func,
    simclr_loss_func,
)


class SimCLR(BaseMethod):
    """SimCLR (Chen et al., 2020).

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, temperature}``.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        self.temperature: float = kwargs.temperature
        self.projector = nn.Sequential(
            nn.Linear(self.features_dim, kwargs.proj_hidden_dim),
            nn.ReLU(),
            nn.Linear(kwargs.proj_hidden_dim, kwargs.proj_output_dim),
        )

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        cfg = BaseMethod.add_and_assert_specific_cfg(cfg)
        require(cfg, _method_kwargs("proj_output_dim", "proj_hidden_dim", "temperature"))
        return cfg

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups and the projector's."""
        projector = {"name": "projector", "params": self.projector.parameters()}
        return [*super().learnable_params, projector]

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the projection ``z``."""
        out = super().forward(X)
        return {**out, "z": self.projector(out["feats"])}

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the projection ``z`` of a small crop."""
        out = super().multicrop_forward(X)
        return {**out, "z": self.projector(out["feats"])}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the sum of SimCLR's and the online classifier's loss."""
        out = super().training_step(batch, batch_idx)
        loss = simclr_loss_func(
            torch.cat(out["z"]), batch[0].repeat(self.num_crops), self.temperature
        )
        self.log("train_nce_loss", loss, on_epoch=True, sync_dist=True)
        return loss + out["loss"]


class BYOL(BaseMomentumMethod):
    """BYOL (Grill et al., 2020).

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, pred_hidden_dim}``.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        widths = (kwargs.proj_hidden_dim, kwargs.proj_output_dim)
        self.projector = _two_layers(self.features_dim, *widths)
        self.momentum_projector = _two_layers(self.features_dim, *widths)
        initialize_momentum_params(self.projector, self.momentum_projector)
        self.predictor = _two_layers(
            kwargs.proj_output_dim, kwargs.pred_hidden_dim, kwargs.proj_output_dim
        )

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        cfg = BaseMomentumMethod.add_and_assert_specific_cfg(cfg)
        require(cfg, _method_kwargs("proj_hidden_dim", "proj_output_dim", "pred_hidden_dim"))
        return cfg

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups, the projector's and the predictor's."""
        return [*super().learnable_params, *_projector_and_predictor(self)]

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """The parent's pairs and that of the projectors."""
        return [*super().momentum_pairs, (self.projector, self.momentum_projector)]

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs, the projection ``z`` and the prediction ``p``."""
        return self._predict(super().forward(X))

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs, ``z`` and ``p`` of a small crop."""
        return self._predict(super().multicrop_forward(X))

    def _predict(self, out: dict[str, Any]) -> dict[str, Any]:
        z = self.projector(out["feats"])
        return {**out, "z": z, "p": self.predictor(z)}

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the momentum projection ``z``."""
        out = super().momentum_forward(X)
        return {**out, "z": self.momentum_projector(out["feats"])}

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
        self.log_dict(
            {"train_neg_cos_sim": loss, "train_z_std": z.std(dim=1).mean()},
            on_epoch=True,
            sync_dist=True,
        )
        return loss + out["loss"]


class MoCoV3(BaseMomentumMethod):
    """MoCo v3 (Chen et al., 2021), which release 1.0.2 does not have.

    Projector and predictor have two layers on residual networks and, as in the paper (§3), a
    projector of three on transformers.

    Args:
        cfg: ``method_kwargs.{proj_hidden_dim, proj_output_dim, pred_hidden_dim, temperature}``.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = cfg.method_kwargs
        self.temperature: float = kwargs.temperature
        hidden = [kwargs.proj_hidden_dim] * (1 if "resnet" in self.backbone_name else 2)
        widths = [self.features_dim, *hidden, kwargs.proj_output_dim]
        self.projector = _bias_free_mlp(widths, last_norm=True)
        self.momentum_projector = _bias_free_mlp(widths, last_norm=True)
        initialize_momentum_params(self.projector, self.momentum_projector)
        self.predictor = _bias_free_mlp(
            [kwargs.proj_output_dim, kwargs.pred_hidden_dim, kwargs.proj_output_dim],
            last_norm="resnet" not in self.backbone_name,
        )

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        cfg = BaseMomentumMethod.add_and_assert_specific_cfg(cfg)
        names = ("proj_output_dim", "proj_hidden_dim", "pred_hidden_dim", "temperature")
        require(cfg, _method_kwargs(*names))
        return cfg

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """The parent's parameter groups, the projector's and the predictor's."""
        return [*super().learnable_params, *_projector_and_predictor(self)]

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """The parent's pairs and that of the projectors."""
        return [*super().momentum_pairs, (self.projector, self.momentum_projector)]

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs, the projection ``z`` and the query ``q``."""
        out = super().forward(X)
        z = self.projector(out["feats"])
        return {**out, "z": z, "q": self.predictor(z)}

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the parent's outputs and the key ``k``."""
        out = super().momentum_forward(X)
        return {**out, "k": self.momentum_projector(out["feats"])}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the sum of MoCo v3's symmetric and the online classifier's loss."""
        out = super().training_step(batch, batch_idx)
        queries, keys = out["q"], out["momentum_k"]
        loss = mocov3_loss_func(queries[0], keys[1], self.temperature)
        loss = loss + mocov3_loss_func(queries[1], keys[0], self.temperature)
        self.log("train_contrastive_loss", loss, on_epoch=True, sync_dist=True)
        return loss + out["loss"]


def _method_kwargs(*names: str) -> list[str]:
    return [f"method_kwargs.{name}" for name in names]


def _projector_and_predictor(method: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "params": getattr(method, name).parameters()}
        for name in ("projector", "predictor")
    ]


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


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
