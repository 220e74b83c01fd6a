"""SimCLR with the interface of the repository."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from solo_margins.solo_1_0_2.losses.simclr import simclr_loss_func
from solo_margins.solo_1_0_2.methods.base import BaseMethod


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
