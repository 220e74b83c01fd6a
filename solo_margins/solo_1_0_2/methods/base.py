"""Base classes of all methods: the release's own, behind the interface of the repository."""

from collections.abc import Sequence
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
from omegaconf import DictConfig
from solo.methods import base as release
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params
from torch import Tensor, nn

from solo_margins.backbones import build_backbone
from solo_margins.config import require
from solo_margins.learning_rates import SCHEDULES, optimizer_and_schedule
from solo_margins.solo_1_0_2 import limits
from solo_margins.solo_1_0_2.config import set_defaults


class TrainedModule(pl.LightningModule):
    """What methods and linear classifiers share: the settings, under the repository's names."""

    _OPTIMIZERS = limits.OPTIMIZERS
    _SCHEDULERS = SCHEDULES

    def __init__(self, cfg: DictConfig, backbone: Any) -> None:
        # Those of the release want every setting as an argument of its own.
        pl.LightningModule.__init__(self)
        self.cfg = cfg
        self.backbone = backbone
        self.features_dim = int(getattr(backbone, "num_features", None) or backbone.inplanes)
        self.num_classes: int = cfg.data.num_classes
        self.classifier = nn.Linear(self.features_dim, self.num_classes)
        self.max_epochs: int = cfg.max_epochs
        self.accumulate_grad_batches: int | None = cfg.accumulate_grad_batches
        self.optimizer: str = cfg.optimizer.name
        self.batch_size: int = cfg.optimizer.batch_size
        self.lr: float = cfg.optimizer.lr
        self.weight_decay: float = cfg.optimizer.weight_decay
        self.extra_optimizer_args: Any = cfg.optimizer.kwargs
        self.exclude_bias_n_norm_wd = False
        self.scheduler: str = cfg.scheduler.name
        self.lr_decay_steps: Any = cfg.scheduler.lr_decay_steps
        self.min_lr: float = cfg.scheduler.min_lr
        self.warmup_start_lr: float = cfg.scheduler.warmup_start_lr
        self.warmup_epochs: float = cfg.scheduler.warmup_epochs
        self.scheduler_interval: str = cfg.scheduler.interval
        self.no_channel_last: bool = cfg.performance.disable_channel_last
        self.validation_step_outputs: list[Any] = []

    def in_memory_format(self, X: Tensor) -> Tensor:
        """Return images in the memory format that the network has."""
        return X if self.no_channel_last else X.to(memory_format=torch.channels_last)


class BaseMethod(TrainedModule, release.BaseMethod):
    """Backbone, online classifier, optimizer and validation, shared by all methods.

    Args:
        cfg: configuration with ``method``, ``backbone.name``, ``data.{dataset, num_classes,
            num_large_crops, num_small_crops}``, ``max_epochs``, ``optimizer.{name, batch_size, lr,
            weight_decay, classifier_lr}`` and ``scheduler.name``; the rest has defaults.
    """

    _BACKBONES = limits.BACKBONES
    # Provided by the release.
    _base_shared_step: Any
    # What a method needs in ``method_kwargs``.
    needed: ClassVar[tuple[str, ...]] = ()
    # The release only has features of small crops; training_step adds all of their outputs.
    multicrop = False

    # Lightning 2 refuses modules that have it, so it is called from its successor.
    validation_epoch_end = None

    def __init__(self, cfg: DictConfig) -> None:
        cfg = self.add_and_assert_specific_cfg(cfg)
        super().__init__(cfg, build_backbone(cfg, type(self)))
        self.backbone_name: str = cfg.backbone.name
        self.classifier_lr: float = cfg.optimizer.classifier_lr
        if self.accumulate_grad_batches:
            # Accumulated gradients are averaged, so the rates grow with their number.
            self.lr = self.lr * self.accumulate_grad_batches
            self.classifier_lr = self.classifier_lr * self.accumulate_grad_batches
            self.min_lr = self.min_lr * self.accumulate_grad_batches
            self.warmup_start_lr = self.warmup_start_lr * self.accumulate_grad_batches
        self.num_large_crops: int = cfg.data.num_large_crops
        self.num_small_crops: int = cfg.data.num_small_crops
        self.num_crops = self.num_large_crops + self.num_small_crops
        self.knn_eval: bool = cfg.knn_eval.enabled
        if self.knn_eval:
            knn = cfg.knn_eval
            self.knn = WeightedKNNClassifier(k=knn.k, distance_fx=knn.distance_func)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        limits.check_offered(cfg)
        set_defaults(cfg, "module", "method")
        require(cfg, *(f"method_kwargs.{name}" for name in cls.needed))
        return cfg

    @property
    def encoder(self) -> Any:
        """The backbone, under the name that the release has for it."""
        return self.backbone

    @property
    def learnable_params(self) -> list[dict[str, Any]]:
        """Parameter groups of the backbone and of the classifiers."""
        groups: list[dict[str, Any]] = super().learnable_params
        groups[0]["name"] = "backbone"
        return groups

    def configure_optimizers(self) -> Any:
        """Return the optimizer and the learning-rate schedule."""
        return optimizer_and_schedule(self, self.learnable_params)

    def outputs(self, feats: Tensor) -> dict[str, Any]:
        """Return features and what the heads of a method make of them."""
        return {"feats": feats}

    def base_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``logits`` of the online classifier, ``feats`` and outputs of the heads."""
        out = self.outputs(self.backbone(self.in_memory_format(X)))
        # The classifier only watches: it must not teach the backbone.
        return {"logits": self.classifier(out["feats"].detach()), **out}

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` and outputs of the heads of a small crop."""
        return self.outputs(self.backbone(self.in_memory_format(X)))

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> Any:
        """Return the metrics of a batch, and collect them for the end of the epoch."""
        metrics = super().validation_step(batch, batch_idx)
        self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set, batches weighted by their size."""
        super().validation_epoch_end(self.validation_step_outputs)
        self.validation_step_outputs.clear()

    def base_training_step(self, X: Tensor, targets: Tensor) -> Any:
        """Return outputs, classification loss and accuracies of one large training crop."""
        return self._base_shared_step(X, targets)

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return a list per output, one entry a crop, and the mean ``loss``, ``acc1``, ``acc5``."""
        outs: Any = super().training_step(batch, batch_idx)
        if self.num_small_crops:
            for view in batch[1][self.num_large_crops :]:
                for key, value in self.multicrop_forward(view).items():
                    outs[key].append(value)
        return outs


class BaseMomentumMethod(BaseMethod, release.BaseMomentumMethod):
    """Adds a momentum copy of the backbone, updated after every optimizer step.

    Args:
        cfg: as for `BaseMethod`, with ``momentum.{base_tau, final_tau, classifier}``.
    """

    last_step: int

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        momentum = self.cfg.momentum
        self.momentum_backbone = build_backbone(self.cfg, type(self))
        initialize_momentum_params(self.backbone, self.momentum_backbone)
        self.momentum_classifier = (
            nn.Linear(self.features_dim, self.num_classes) if momentum.classifier else None
        )
        self.momentum_updater = MomentumUpdater(momentum.base_tau, momentum.final_tau)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the configuration completed and checked."""
        return set_defaults(super().add_and_assert_specific_cfg(cfg), "momentum_method")

    @property
    def momentum_pairs(self) -> list[tuple[Any, Any]]:
        """Pairs of a network and the momentum copy that follows it."""
        return [(self.backbone, self.momentum_backbone)]

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the momentum backbone."""
        return {"feats": self.momentum_backbone(self.in_memory_format(X))}

    def base_momentum_forward(self, X: Tensor) -> Any:
        """Return all outputs, where the release asks for features alone."""
        return self.momentum_forward(X)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the momentum networks and tau, if an optimizer step was taken."""
        step = self.trainer.global_step
        if step > self.last_step:
            for pair in self.momentum_pairs:
                self.momentum_updater.update(*pair)
            self.log("tau", self.momentum_updater.cur_tau)
            # The release counts batches, which may be limited.
            self.momentum_updater.update_tau(step, self.trainer.estimated_stepping_batches)
        self.last_step = step
