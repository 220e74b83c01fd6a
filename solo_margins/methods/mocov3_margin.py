"""MoCo v3 with margins.

References:
    - [0] An Empirical Study of Training Self-Supervised Vision Transformers (MoCo v3), 2021,
      https://arxiv.org/abs/2104.02057
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from solo_margins import host
from solo_margins.losses import mocov3_margin_loss_func
from solo_margins.methods.settings import complete_method_settings, margins_from


class MoCoV3Margin(host.MoCoV3):
    """MoCo v3 whose positives get margins and scaled gradients; its weights are MoCo v3's.

    Extra cfg settings:
        method_kwargs:
            margins (dict): fields of :class:`solo_margins.losses.Margins`. With the defaults this
                is MoCo v3 itself.
            proj_output_dim, proj_hidden_dim, pred_hidden_dim, temperature: as for MoCo v3.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        self.margins = margins_from(self.cfg.method_kwargs.margins)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with MoCo v3's defaults and all margins written out."""
        cfg = host.MoCoV3.add_and_assert_specific_cfg(cfg)
        return complete_method_settings(cfg)

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the symmetric contrastive loss with margins plus the online classifier's loss."""
        # Past MoCo v3's own step, which would compute a loss without margins.
        out = super(host.MoCoV3, self).training_step(batch, batch_idx)
        queries, keys = out["q"], out["momentum_k"]
        contrastive_loss = mocov3_margin_loss_func(
            queries[0], keys[1], self.temperature, self.margins
        ) + mocov3_margin_loss_func(queries[1], keys[0], self.temperature, self.margins)
        self.log_dict({"train_contrastive_loss": contrastive_loss}, on_epoch=True, sync_dist=True)
        return contrastive_loss + out["loss"]
