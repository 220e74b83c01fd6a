"""Linear evaluation and fine-tuning with the interface of the repository."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from solo.methods import linear as release
from torch import Tensor, nn

from solo_margins.host.solo_1_0_2 import limits, optim
from solo_margins.host.solo_1_0_2.base import TrainedModule
from solo_margins.host.solo_1_0_2.config import MODULE_DEFAULTS, set_defaults


class LinearModel(TrainedModule, release.LinearModel):
    """A linear classifier on a backbone that is frozen, unless ``cfg.finetune``.

    Args:
        backbone: the pretrained backbone.
        cfg: ``data.num_classes``, ``max_epochs``, ``optimizer.*``, ``scheduler.*``, ``finetune``.
        loss_func: loss for targets mixed by ``mixup_func``; cross-entropy by default.
        mixup_func: mixes images and targets of a training batch.
    """

    # Provided by the release.
    shared_step: Any

    def __init__(
        self,
        backbone: nn.Module,
        cfg: DictConfig,
        loss_func: Callable[..., Tensor] | None = None,
        mixup_func: Callable[..., Any] | None = None,
    ) -> None:
        limits.check_offered(cfg)
        super().__init__(set_defaults(cfg, MODULE_DEFAULTS, {"finetune": False}), backbone)
        self.loss_func = loss_func or nn.CrossEntropyLoss()
        self.mixup_func = mixup_func
        self.finetune: bool = cfg.finetune
        if not self.finetune:
            self.backbone.requires_grad_(False)

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the classifier (and a fine-tuned backbone) and its schedule."""
        groups = [{"name": "classifier", "params": self.classifier.parameters()}]
        if self.finetune:
            groups.insert(0, {"name": "backbone", "params": self.backbone.parameters()})
        return optim.configure(self, groups)

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the backbone and ``logits`` of the classifier."""
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            feats = self.backbone(self.in_memory_format(X))
        return {"logits": self.classifier(feats), "feats": feats}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the loss of a training batch; a frozen backbone stays in evaluation mode."""
        if not self.finetune:
            self.backbone.eval()
        if self.mixup_func is None:
            _, loss, acc1, acc5 = self.shared_step(batch, batch_idx)
            metrics = {"train_loss": loss, "train_acc1": acc1, "train_acc5": acc5}
        else:
            X, mixed = self.mixup_func(*batch)
            loss = self.loss_func(self(X)["logits"], mixed)
            metrics = {"train_loss": loss}
        self.log_dict(metrics, on_epoch=True, sync_dist=True)
        return loss
