"""A method of one's own for solo-learn: views of an image agree, images spread over the sphere.

Understanding Contrastive Representation Learning through Alignment and Uniformity on the
Hypersphere, 2020, https://arxiv.org/abs/2005.10242
"""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from solo.methods.base import BaseMethod
from torch import Tensor, nn
from torch.nn import functional as F


def align_uniform_loss_func(z1: Tensor, z2: Tensor, weight: float = 1.0) -> Tensor:
    """Return alignment plus uniformity of two views' projections, both (N, D)."""
    z1, z2 = F.normalize(z1, dim=1), F.normalize(z2, dim=1)
    alignment = (z1 - z2).square().sum(dim=1).mean()
    uniformity = sum(torch.pdist(z).square().mul(-2).exp().mean().log() for z in (z1, z2)) / 2
    return alignment + weight * uniformity


class AlignUniform(BaseMethod):
    """Alignment and uniformity.

    ``method_kwargs``: ``proj_hidden_dim`` and ``proj_output_dim`` of the projector, and ``weight``
    of uniformity.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        self.weight: float = cfg.method_kwargs.weight
        self.projector = nn.Sequential(
            nn.Linear(self.features_dim, cfg.method_kwargs.proj_hidden_dim),
            nn.ReLU(),
            nn.Linear(cfg.method_kwargs.proj_hidden_dim, cfg.method_kwargs.proj_output_dim),
        )

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Return what is trained: backbone and online classifier, and our projector."""
        projector = {"name": "projector", "params": self.projector.parameters()}
        return [*super().learnable_params, projector]

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return what solo-learn needs of a view, and ``z``."""
        out: dict[str, Any] = super().forward(X)
        return {**out, "z": self.projector(out["feats"])}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the loss of a batch; solo-learn's own part trains the online classifier."""
        out = super().training_step(batch, batch_idx)
        z1, z2 = out["z"]
        loss = align_uniform_loss_func(z1, z2, self.weight)
        self.log("train_align_uniform_loss", loss, on_epoch=True, sync_dist=True)
        return loss + out["loss"]
