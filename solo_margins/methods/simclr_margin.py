"""SimCLR with margins, and with debiased or hard negatives.

References:
    - [0] A Simple Framework for Contrastive Learning of Visual Representations (SimCLR), 2020,
      https://arxiv.org/abs/2002.05709
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
    - [2] Debiased Contrastive Learning, 2020, https://arxiv.org/abs/2007.00224
    - [3] Contrastive Learning with Hard Negative Samples, 2021, https://arxiv.org/abs/2010.04592
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from solo_margins import host
from solo_margins.losses import (
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
)
from solo_margins.methods.margin_method import MarginMethod
from solo_margins.methods.settings import negatives_from


class SimCLRMargin(MarginMethod, host.SimCLR):
    """SimCLR whose positives get margins and scaled gradients; its weights are SimCLR's.

    Extra cfg settings, besides those of :class:`MarginMethod`:
        method_kwargs:
            negatives (dict): ``kind`` (standard, debiased [2] or hard [3]), ``tau_plus`` and
                ``beta``. Defaults to standard.
            proj_batch_norm (bool): batch normalisation before the projector's ReLU. Defaults to
                false, as in solo-learn.
            proj_last_batch_norm (bool): batch normalisation of the projector's output. Defaults to
                false, as in solo-learn.
            proj_output_dim, proj_hidden_dim, temperature: as for SimCLR.
    """

    own_settings = ("negatives", "proj_batch_norm", "proj_last_batch_norm")

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        kwargs = self.cfg.method_kwargs
        self.negatives = negatives_from(kwargs.negatives)
        if kwargs.get("proj_last_batch_norm"):
            last = nn.BatchNorm1d(kwargs.proj_output_dim)
            # SimCLR's own code (github.com/google-research/simclr) scales but does not shift here.
            last.bias.requires_grad_(False)
            self.projector.add_module("last_batch_norm", last)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the completed configuration; see :class:`MarginMethod`."""
        cfg = super().add_and_assert_specific_cfg(cfg)
        negatives = asdict(negatives_from(cfg.method_kwargs.get("negatives")))
        OmegaConf.update(cfg, "method_kwargs.negatives", negatives, force_add=True)
        return cfg

    def nce_loss(self, z: Tensor, indexes: Tensor, temperature: float) -> Tensor:
        """Return the contrastive loss of all views with the margins of this step."""
        wanted = self.negatives
        if wanted.kind == "debiased":
            return simclr_debiased_loss_func(z, indexes, temperature, wanted.tau_plus, self.margins)
        if wanted.kind == "hard":
            return simclr_hard_negative_loss_func(
                z, indexes, temperature, wanted.tau_plus, wanted.beta, self.margins
            )
        return simclr_margin_loss_func(z, indexes, temperature, self.margins)

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return the loss that takes the place of SimCLR's."""
        return {"simclr_loss_func": self.nce_loss}
