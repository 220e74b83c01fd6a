"""Base classes of all methods with the interface of the repository, on release 1.0.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.metrics import weighted_mean
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params
from torch import Tensor, nn

from solo_margins.host.backbones import build_backbone_from
from solo_margins.host.changes import Rebase, Replace
from solo_margins.host.lightning import pl
from solo_margins.host.repairs.loss_without_labels import classification_loss
from solo_margins.host.repairs.narrow_convolutions_on_the_cpu import keep_contiguous
from solo_margins.host.repairs.online_knn import UpdateOnlyMetric, compute
from solo_margins.host.solo_1_0_2 import optim
from solo_margins.host.solo_1_0_2.backbones import BACKBONES
from solo_margins.host.solo_1_0_2.config import set_defaults
from solo_margins.host.solo_1_0_2.losses import accuracy_at_k

Rebase("utils.knn", "WeightedKNNClassifier", UpdateOnlyMetric).apply()
Replace("utils.knn", "WeightedKNNClassifier.compute", compute).apply()

METRICS = ("loss", "acc1", "acc5")


class BaseMethod(pl.LightningModule):
    """Backbone, online classifier, optimizer and validation, shared by all methods.

    Args:
        cfg: configuration with ``method``, ``backbone.name``, ``data.{dataset, num_classes,
            num_large_crops, num_small_crops}``, ``max_epochs``, ``optimizer.{name, batch_size, lr,
            weight_decay, classifier_lr}`` and ``scheduler.name``; the rest has defaults.
    """

    _BACKBONES = BACKBONES
    _OPTIMIZERS = optim.OPTIMIZERS
    _SCHEDULERS = ("reduce", "warmup_cosine", "step", "exponential", "none")

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__()
        cfg = self.add_and_assert_specific_cfg(cfg)
        self.cfg = cfg

        self.backbone_args = cfg.backbone.kwargs
        self.backbone_name: str = cfg.backbone.name
        self.backbone = self._new_backbone()
        self.base_model = self._BACKBONES[self.backbone_name]
        is_resnet = self.backbone_name.startswith("resnet")
        features = self.backbone.inplanes if is_resnet else self.backbone.num_features
        self.features_dim = int(features)
        self.num_classes: int = cfg.data.num_classes
        self.classifier = nn.Linear(self.features_dim, self.num_classes)

        self.max_epochs: int = cfg.max_epochs
        self.accumulate_grad_batches = cfg.accumulate_grad_batches
        # Accumulated gradients are averaged, so the rates grow with their number.
        factor = self.accumulate_grad_batches or 1
        self.optimizer: str = cfg.optimizer.name
        self.batch_size: int = cfg.optimizer.batch_size
        self.lr: float = cfg.optimizer.lr * factor
        self.classifier_lr: float = cfg.optimizer.classifier_lr * factor
        self.weight_decay: float = cfg.optimizer.weight_decay
        self.extra_optimizer_args = cfg.optimizer.kwargs
        self.exclude_bias_n_norm_wd: bool = cfg.optimizer.exclude_bias_n_norm_wd

        self.scheduler: str = cfg.scheduler.name
        self.lr_decay_steps = cfg.scheduler.lr_decay_steps
        self.min_lr: float = cfg.scheduler.min_lr * factor
        self.warmup_start_lr: float = cfg.scheduler.warmup_start_lr * factor
        self.warmup_epochs: float = cfg.scheduler.warmup_epochs
        self.scheduler_interval: str = cfg.scheduler.interval

        self.num_large_crops: int = cfg.data.num_large_crops
        self.num_small_crops: int = cfg.data.num_small_crops
        self.num_crops = self.num_large_crops + self.num_small_crops
        self.multicrop = self.num_small_crops > 0

        self.knn_eval: bool = cfg.knn_eval.enabled
        self.knn_k: int = cfg.knn_eval.k
        if self.knn_eval:
            self.knn = WeightedKNNClassifier(k=self.knn_k, distance_fx=cfg.knn_eval.distance_func)
        self.no_channel_last: bool = cfg.performance.disable_channel_last
        keep_contiguous(self, cfg)
        self.validation_step_outputs: list[dict[str, Any]] = []

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults of every method filled in."""
        return set_defaults(
            cfg,
            {
                "backbone.kwargs": {},
                "optimizer.exclude_bias_n_norm_wd": False,
                "optimizer.kwargs": {},
                "accumulate_grad_batches": 1,
                "scheduler.lr_decay_steps": None,
                "scheduler.min_lr": 0.0,
                "scheduler.warmup_start_lr": 3e-5,
                "scheduler.warmup_epochs": 10,
                "scheduler.interval": "step",
                "knn_eval.enabled": False,
                "knn_eval.k": 20,
                "knn_eval.distance_func": "euclidean",
                "performance.disable_channel_last": False,
                "method_kwargs": {},
            },
        )

    def _new_backbone(self) -> Any:
        return build_backbone_from(self._BACKBONES, self.cfg)

    @property
    def encoder(self) -> nn.Module:
        """The backbone, under the name that the release's own methods use."""
        return self.backbone

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Parameter groups of the backbone and the online classifier."""
        return [
            {"name": "backbone", "params": self.backbone.parameters()},
            {
                "name": "classifier",
                "params": self.classifier.parameters(),
                "lr": self.classifier_lr,
                "weight_decay": 0,
            },
        ]

    def configure_optimizers(self) -> Any:
        """Return the optimizer and the learning-rate schedule."""
        return optim.configure(self, self.learnable_params)

    def _in_memory_format(self, X: Tensor) -> Tensor:
        return X if self.no_channel_last else X.to(memory_format=torch.channels_last)

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the backbone and ``logits`` of the online classifier."""
        feats = self.backbone(self._in_memory_format(X))
        # The classifier only watches: it must not teach the backbone.
        return {"logits": self.classifier(feats.detach()), "feats": feats}

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of a small crop."""
        return {"feats": self.backbone(self._in_memory_format(X))}

    def _base_shared_step(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        out = self(X)
        return {**out, **_classification(out["logits"], targets)}

    def base_training_step(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return outputs, classification loss and accuracies of one large training crop."""
        return self._base_shared_step(X, targets)

    def base_validation_step(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return outputs, classification loss and accuracies of a validation batch."""
        return self._base_shared_step(X, targets)

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return a list per output, one entry a crop, and the mean ``loss``, ``acc1``, ``acc5``."""
        _, X, targets = batch
        views = [X] if isinstance(X, Tensor) else X
        if len(views) != self.num_crops:
            raise ValueError(
                f"The batch has {len(views)} views, but the configuration asks for "
                f"{self.num_crops} (data.num_large_crops + data.num_small_crops)."
            )
        large, small = views[: self.num_large_crops], views[self.num_large_crops :]
        outs = _as_lists([self.base_training_step(view, targets) for view in large])
        if small:
            for key, values in _as_lists([self.multicrop_forward(v) for v in small]).items():
                outs[key] = [*outs.get(key, []), *values]
        for key in METRICS:
            outs[key] = sum(outs[key]) / self.num_large_crops
        self.log_dict(
            {
                "train_class_loss": outs["loss"],
                "train_acc1": outs["acc1"],
                "train_acc5": outs["acc5"],
            },
            on_epoch=True,
            sync_dist=True,
        )
        if self.knn_eval:
            labels = targets.repeat(self.num_large_crops)
            labelled = labels != -1
            features = torch.cat(outs["feats"][: self.num_large_crops])
            self.knn(train_features=features[labelled].detach(), train_targets=labels[labelled])
        return outs

    def validation_step(
        self,
        batch: Sequence[Tensor],
        batch_idx: int,
        dataloader_idx: int | None = None,
        update_validation_step_outputs: bool = True,
    ) -> dict[str, Any]:
        """Return batch size, loss and accuracies, and collect them for the end of the epoch."""
        X, targets = batch
        out = self.base_validation_step(X, targets)
        if self.knn_eval and not self.trainer.sanity_checking:
            self.knn(test_features=out["feats"].detach(), test_targets=targets)
        metrics = {"batch_size": len(targets), **{f"val_{key}": out[key] for key in METRICS}}
        if update_validation_step_outputs:
            self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set, batches weighted by their size."""
        log = self._validation_means("val_")
        if self.knn_eval and not self.trainer.sanity_checking:
            log["val_knn_acc1"], log["val_knn_acc5"] = self.knn.compute()
        self.log_dict(log, sync_dist=True)
        self.validation_step_outputs.clear()

    def _validation_means(self, prefix: str) -> dict[str, Any]:
        outputs = self.validation_step_outputs
        names = [prefix + key for key in METRICS]
        return {name: weighted_mean(outputs, name, "batch_size") for name in names}


class BaseMomentumMethod(BaseMethod):
    """Adds a momentum copy of the backbone, updated after every optimizer step.

    Args:
        cfg: as for :class:`BaseMethod`, with ``momentum.{base_tau, final_tau, classifier}``.
    """

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        self.momentum_backbone = self._new_backbone()
        initialize_momentum_params(self.backbone, self.momentum_backbone)
        self.momentum_classifier = (
            nn.Linear(self.features_dim, self.num_classes) if cfg.momentum.classifier else None
        )
        self.momentum_updater = MomentumUpdater(cfg.momentum.base_tau, cfg.momentum.final_tau)
        self.last_step = 0

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults of momentum methods filled in."""
        cfg = BaseMethod.add_and_assert_specific_cfg(cfg)
        return set_defaults(
            cfg,
            {"momentum.base_tau": 0.99, "momentum.final_tau": 1.0, "momentum.classifier": False},
        )

    @property
    def momentum_encoder(self) -> nn.Module:
        """The momentum backbone, under the name that the release's own methods use."""
        return self.momentum_backbone

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Parameter groups of the parent and, if there is one, of the momentum classifier."""
        groups = super().learnable_params
        if self.momentum_classifier is not None:
            groups.append(
                {
                    "name": "momentum_classifier",
                    "params": self.momentum_classifier.parameters(),
                    "lr": self.classifier_lr,
                    "weight_decay": 0,
                }
            )
        return groups

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """Pairs of a network and the momentum copy that follows it."""
        return [(self.backbone, self.momentum_backbone)]

    def on_train_start(self) -> None:
        """Continue the momentum schedule of a resumed run."""
        self.last_step = self.trainer.global_step
        if self.last_step > 0:
            self._schedule_tau()

    def _schedule_tau(self) -> None:
        self.momentum_updater.update_tau(
            cur_step=self.trainer.global_step, max_steps=self.trainer.estimated_stepping_batches
        )

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the momentum backbone."""
        return {"feats": self.momentum_backbone(self._in_memory_format(X))}

    def _shared_step_momentum(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        out = self.momentum_forward(X)
        if self.momentum_classifier is not None:
            logits = self.momentum_classifier(out["feats"])
            out = {**out, "logits": logits, **_classification(logits, targets)}
        return out

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the parent's outputs and those of the momentum networks as ``momentum_*``."""
        outs = super().training_step(batch, batch_idx)
        _, X, targets = batch
        views = ([X] if isinstance(X, Tensor) else X)[: self.num_large_crops]
        momentum_outs = _as_lists([self._shared_step_momentum(view, targets) for view in views])
        outs.update({f"momentum_{key}": values for key, values in momentum_outs.items()})
        if self.momentum_classifier is not None:
            for key in METRICS:
                outs[f"momentum_{key}"] = sum(momentum_outs[key]) / self.num_large_crops
            self.log_dict(
                {
                    "train_momentum_class_loss": outs["momentum_loss"],
                    "train_momentum_acc1": outs["momentum_acc1"],
                    "train_momentum_acc5": outs["momentum_acc5"],
                },
                on_epoch=True,
                sync_dist=True,
            )
            outs["loss"] = outs["loss"] + outs["momentum_loss"]
        return outs

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the momentum networks and tau, if an optimizer step was taken."""
        if self.trainer.global_step > self.last_step:
            for online, momentum in self.momentum_pairs:
                self.momentum_updater.update(online, momentum)
            self.log("tau", self.momentum_updater.cur_tau)
            self._schedule_tau()
        self.last_step = self.trainer.global_step

    def validation_step(
        self,
        batch: Sequence[Tensor],
        batch_idx: int,
        dataloader_idx: int | None = None,
        update_validation_step_outputs: bool = True,
    ) -> dict[str, Any]:
        """Return the parent's metrics and those of the momentum classifier."""
        metrics = super().validation_step(batch, batch_idx, update_validation_step_outputs=False)
        X, targets = batch
        out = self._shared_step_momentum(X, targets)
        if self.momentum_classifier is not None:
            metrics.update({f"momentum_val_{key}": out[key] for key in METRICS})
        if update_validation_step_outputs:
            self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set of both classifiers."""
        if self.momentum_classifier is not None:
            self.log_dict(self._validation_means("momentum_val_"), sync_dist=True)
        super().on_validation_epoch_end()


def _as_lists(outs: list[dict[str, Any]]) -> dict[str, Any]:
    """Turn a list of dictionaries into a dictionary of lists."""
    return {key: [out[key] for out in outs] for key in outs[0]}


def _classification(logits: Tensor, targets: Tensor) -> dict[str, Any]:
    acc1, acc5 = accuracy_at_k(logits, targets, top_k=(1, 5))
    return {"loss": classification_loss(logits, targets), "acc1": acc1, "acc5": acc5}
