"""MoCo v3 with margins.

References:
    - [0] An Empirical Study of Training Self-Supervised Vision Transformers (MoCo v3), 2021,
      https://arxiv.org/abs/2104.02057
    - [1] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig
from solo.methods.base import BaseMomentumMethod
from solo.methods.mocov3 import MoCoV3
from torch import Tensor, nn

from solo_margins.losses import mocov3_margin_loss_func
from solo_margins.methods.base import OneDirection
from solo_margins.methods.settings import MethodSettingError


def vit_of_mocov3(constructor: Callable[..., nn.Module], method: Any, **kwargs: Any) -> nn.Module:
    """Return the ViT that MoCo v3 trains: solo-learn gives it to no other name of a method."""
    return constructor(MoCoV3Margin.trains_vit_of, **kwargs)


class MoCoV3Margin(OneDirection, MoCoV3):
    """MoCo v3 whose positives get margins and scaled gradients; its weights are MoCo v3's.

    Extra cfg settings, besides those of `OneDirection`:

    - `method_kwargs`:
        - `negatives` (dict): ``kind`` (standard, debiased, hard or gaussian) and what that reads;
            see `solo_margins.methods.settings.Negatives`. Defaults to standard.
        - `scale_by_temperature` (bool): multiply the loss by 2τ, as [0] and solo-learn do.
            Defaults to true.
        - `freeze_patch_embedding` (bool): leave a ViT's random patch projection as it is, which
            [0] found to stabilise training (§5). Defaults to false, as in solo-learn.
        - `proj_output_dim`, `proj_hidden_dim`, `pred_hidden_dim`, `temperature`: as for MoCo v3.
    """

    # Of what is derived from it, too, whatever its name.
    trains_vit_of = "mocov3"
    own_settings = (
        *OneDirection.own_settings,
        "temperature",
        "negatives",
        "scale_by_temperature",
        "freeze_patch_embedding",
    )

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        if self.margin_settings.freeze_patch_embedding:
            if not hasattr(self.backbone, "patch_embed"):
                raise MethodSettingError(
                    "method_kwargs.freeze_patch_embedding=true needs a ViT as backbone.name, "
                    f"got {self.cfg.backbone.name!r}"
                )
            self.backbone.patch_embed.requires_grad_(False)

    @property
    def _BACKBONES(self) -> dict[str, Callable[..., nn.Module]]:
        """solo-learn's backbones, of which the ViTs are those of MoCo v3.

        solo-learn chooses between variants of a ViT by the name of the method.
        """
        table = dict(MoCoV3._BACKBONES)
        for name, constructor in table.items():
            if name.startswith("vit_"):
                table[name] = partial(vit_of_mocov3, constructor)
        return table

    def contrastive_loss(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the loss of one direction with the margins of this step."""
        temperature = self.temperature_for(query, key)
        loss = mocov3_margin_loss_func(
            query, key, temperature, self.margins_for(query), **self.negatives.weights
        )
        if self.margin_settings.scale_by_temperature:
            return loss
        return loss / (2 * temperature)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the sum of the contrastive loss with margins and the classifier's loss."""
        if self.margin_settings.symmetric:
            # Not MoCoV3's own step, which computes the loss without margins. Its forward is used.
            out = BaseMomentumMethod.training_step(self, batch, batch_idx)
            queries, keys = out["q"], out["momentum_k"]
            loss = self.contrastive_loss(queries[0], keys[1])
            loss = loss + self.contrastive_loss(queries[1], keys[0])
        else:
            out = self.one_direction_step(batch)
            loss = self.contrastive_loss(out["q"][0], out["momentum_k"][0])
        self.log_step(train_contrastive_loss=loss)
        return self.with_polarization(loss + out["loss"], out["z"])
