"""A linear classifier with the interface of the repository's."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from solo.utils.metrics import accuracy_at_k, weighted_mean
from torch import Tensor, nn

from solo_margins.learning_rates import optimizer_and_schedule
from solo_margins.solo_1_0_2 import limits
from solo_margins.solo_1_0_2.config import set_defaults
from solo_margins.solo_1_0_2.methods.base import TrainedModule


class LinearModel(TrainedModule):
    """A linear classifier on a backbone that is frozen, unless ``cfg.finetune``.

    Args:
        backbone: the pretrained backbone.
        cfg: ``data.num_classes``, ``max_epochs``, ``optimizer.*``, ``scheduler.*``, ``finetune``.
        loss_func: loss for targets mixed by ``mixup_func``; cross-entropy by default.
        mixup_func: mixes images and targets of a training batch.
    """

    def __init__(
        self,
        backbone: nn.Module,
        cfg: DictConfig,
        loss_func: Callable[..., Tensor] | None = None,
        mixup_func: Callable[..., Any] | None = None,
    ) -> None:
        limits.check_offered(cfg)
        super().__init__(set_defaults(cfg, "module", "linear_model"), backbone)
        self.loss_func = loss_func or nn.CrossEntropyLoss()
        self.mixup_func = mixup_func
        self.finetune: bool = cfg.finetune
        if not self.finetune:
            self.backbone.requires_grad_(False)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        limits.check_offered(cfg)
        return set_defaults(cfg, "module", "linear_model")

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the classifier (and a fine-tuned backbone) and its schedule."""
        groups = [{"name": "classifier", "params": self.classifier.parameters()}]
        if self.finetune:
            groups.insert(0, {"name": "backbone", "params": self.backbone.parameters()})
        return optimizer_and_schedule(self, groups)

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the backbone and ``logits`` of the classifier."""
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            feats = self.backbone(self.in_memory_format(X))
        return {"logits": self.classifier(feats), "feats": feats}

    def shared_step(self, batch: Sequence[Any], batch_idx: int) -> dict[str, Any]:
        """Return the size of a batch, its loss and, unless its targets are mixed, accuracies."""
        X, targets = batch
        if self.training and self.mixup_func is not None:
            X, targets = self.mixup_func(X, targets)
            return {"batch_size": X.size(0), "loss": self.loss_func(self(X)["logits"], targets)}
        logits = self(X)["logits"]
        acc1, acc5 = accuracy_at_k(logits, targets, top_k=(1, 5))
        loss = F.cross_entropy(logits, targets)
        return {"batch_size": X.size(0), "loss": loss, "acc1": acc1, "acc5": acc5}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the loss of a training batch; a frozen backbone stays in evaluation mode."""
        if not self.finetune:
            self.backbone.eval()
        out = self.shared_step(batch, batch_idx)
        metrics = {"train_loss": out["loss"]}
        if self.mixup_func is None:
            metrics["train_acc1"] = out["acc1"]
            metrics["train_acc5"] = out["acc5"]
        self.log_dict(metrics, on_epoch=True, sync_dist=True)
        return out["loss"]

    def validation_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the metrics of a batch, and collect them for the end of the epoch."""
        out = self.shared_step(batch, batch_idx)
        metrics = {
            "batch_size": out["batch_size"],
            "val_loss": out["loss"],
            "val_acc1": out["acc1"],
            "val_acc5": out["acc5"],
        }
        self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set, batches weighted by their size."""
        outputs = self.validation_step_outputs
        means = {}
        for name in ("val_loss", "val_acc1", "val_acc5"):
            means[name] = weighted_mean(outputs, name, "batch_size")
        self.log_dict(means, sync_dist=True)
        outputs.clear()
