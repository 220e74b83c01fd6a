"""Linear evaluation and fine-tuning, as in the repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from solo.utils.metrics import weighted_mean
from torch import Tensor, nn

from solo_margins.host.lightning import pl
from solo_margins.host.repairs.narrow_convolutions_on_the_cpu import keep_contiguous
from solo_margins.host.solo_1_0_2 import optim
from solo_margins.host.solo_1_0_2.config import set_defaults
from solo_margins.host.solo_1_0_2.losses import accuracy_at_k


class LinearModel(pl.LightningModule):
    """A linear classifier on a backbone that is frozen, unless ``cfg.finetune``.

    Args:
        backbone: the pretrained backbone.
        cfg: ``data.num_classes``, ``max_epochs``, ``optimizer.*``, ``scheduler.*``, ``finetune``.
        loss_func: loss for targets mixed by ``mixup_func``; cross-entropy by default.
        mixup_func: mixes images and targets of a training batch.
    """

    _OPTIMIZERS = optim.OPTIMIZERS
    _SCHEDULERS = ("reduce", "warmup_cosine", "step", "exponential", "none")

    def __init__(
        self,
        backbone: nn.Module,
        cfg: DictConfig,
        loss_func: Callable[..., Tensor] | None = None,
        mixup_func: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        cfg = self.cfg = self.add_and_assert_specific_cfg(cfg)
        if cfg.optimizer.layer_decay > 0:
            raise NotImplementedError(
                "optimizer.layer_decay is not offered on solo-learn 1.0.2 from the package "
                "registry; solo-learn's repository (1.0.6 or later) has it."
            )
        self.backbone = backbone
        is_resnet = hasattr(backbone, "inplanes")
        features: Any = backbone.inplanes if is_resnet else backbone.num_features
        self.classifier = nn.Linear(int(features), cfg.data.num_classes)
        self.loss_func = loss_func or nn.CrossEntropyLoss()
        self.mixup_func = mixup_func

        self.max_epochs: int = cfg.max_epochs
        self.accumulate_grad_batches = cfg.accumulate_grad_batches
        self.optimizer: str = cfg.optimizer.name
        self.batch_size: int = cfg.optimizer.batch_size
        self.lr: float = cfg.optimizer.lr
        self.weight_decay: float = cfg.optimizer.weight_decay
        self.extra_optimizer_args = cfg.optimizer.kwargs
        self.exclude_bias_n_norm_wd: bool = cfg.optimizer.exclude_bias_n_norm_wd
        self.scheduler: str = cfg.scheduler.name
        self.lr_decay_steps = cfg.scheduler.lr_decay_steps
        self.min_lr: float = cfg.scheduler.min_lr
        self.warmup_start_lr: float = cfg.scheduler.warmup_start_lr
        self.warmup_epochs: float = cfg.scheduler.warmup_epochs
        self.scheduler_interval: str = cfg.scheduler.interval
        self.finetune: bool = cfg.finetune
        self.no_channel_last: bool = cfg.performance.disable_channel_last
        keep_contiguous(self, cfg)
        if not self.finetune:
            self.backbone.requires_grad_(False)
        self.validation_step_outputs: list[dict[str, Any]] = []

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults filled in."""
        return set_defaults(
            cfg,
            {
                "optimizer.exclude_bias_n_norm_wd": False,
                "optimizer.kwargs": {},
                "optimizer.layer_decay": 0.0,
                "finetune": False,
                "accumulate_grad_batches": 1,
                "scheduler.lr_decay_steps": None,
                "scheduler.min_lr": 0.0,
                "scheduler.warmup_start_lr": 3e-5,
                "scheduler.warmup_epochs": 10,
                "scheduler.interval": "step",
                "performance.disable_channel_last": False,
            },
        )

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the classifier (and a fine-tuned backbone) and its schedule."""
        groups = [{"name": "classifier", "params": self.classifier.parameters()}]
        if self.finetune:
            groups.insert(0, {"name": "backbone", "params": self.backbone.parameters()})
        return optim.configure(self, groups)

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the backbone and ``logits`` of the classifier."""
        if not self.no_channel_last:
            X = X.to(memory_format=torch.channels_last)
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            feats = self.backbone(X)
        return {"logits": self.classifier(feats), "feats": feats}

    def shared_step(self, batch: Sequence[Any], batch_idx: int) -> dict[str, Any]:
        """Return batch size, loss and, without mixup, the accuracies of a batch."""
        X, targets = batch
        if self.training and self.mixup_func is not None:
            X, mixed = self.mixup_func(X, targets)
            return {"batch_size": len(X), "loss": self.loss_func(self(X)["logits"], mixed)}
        logits = self(X)["logits"]
        acc1, acc5 = accuracy_at_k(logits, targets, top_k=(1, 5))
        loss = F.cross_entropy(logits, targets)
        return {"batch_size": len(X), "loss": loss, "acc1": acc1, "acc5": acc5}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the loss of a training batch; a frozen backbone stays in evaluation mode."""
        if not self.finetune:
            self.backbone.eval()
        out = self.shared_step(batch, batch_idx)
        log = {f"train_{key}": value for key, value in out.items() if key != "batch_size"}
        self.log_dict(log, on_epoch=True, sync_dist=True)
        return out["loss"]

    def validation_step(self, batch: Sequence[Any], batch_idx: int) -> dict[str, Any]:
        """Return batch size, loss and accuracies, and collect them for the end of the epoch."""
        out = self.shared_step(batch, batch_idx)
        metrics = {f"val_{key}": out[key] for key in ("loss", "acc1", "acc5")}
        metrics["batch_size"] = out["batch_size"]
        self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set, batches weighted by their size."""
        names = ("val_loss", "val_acc1", "val_acc5")
        outputs = self.validation_step_outputs
        log = {name: weighted_mean(outputs, name, "batch_size") for name in names}
        self.validation_step_outputs.clear()
        self.log_dict(log, sync_dist=True)
