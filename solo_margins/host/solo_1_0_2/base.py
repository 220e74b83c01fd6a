"""Base classes of all methods: the release's own, behind the interface of the repository."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig
from solo.methods import base as release
from solo.methods import linear
from solo.utils.knn import WeightedKNNClassifier
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

from solo_margins.config import require
from solo_margins.host import changes, repairs
from solo_margins.host.backbones import build_backbone
from solo_margins.host.lightning import pl
from solo_margins.host.repairs.narrow_convolutions_on_the_cpu import keep_contiguous
from solo_margins.host.repairs.warmup_cosine import scheduled_rates
from solo_margins.host.solo_1_0_2 import limits
from solo_margins.host.solo_1_0_2.config import set_defaults
from solo_margins.host.solo_1_0_2.limits import not_offered

OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "lars": not_offered("optimizer.name=lars"),
}


class WarmupCosineLR(LRScheduler):
    """Linear warm-up and cosine decay of every parameter group's learning rate.

    Args:
        optimizer: the optimizer to schedule.
        settings: ``warmup_epochs`` and ``max_epochs``, the numbers of warm-up steps and of all
            steps, ``warmup_start_lr`` and ``eta_min``, the first and the last learning rate.
    """

    get_lr = scheduled_rates  # type: ignore[assignment]

    def __init__(self, optimizer: Optimizer, **settings: float) -> None:
        vars(self).update(settings)
        super().__init__(optimizer)


def configure(model: Any, groups: Any, factor: float = 1) -> Any:
    """Return optimizer and schedule of a model, as Lightning takes them.

    Args:
        model: whose ``cfg`` names them.
        groups: groups of parameters.
        factor: of all learning rates in the configuration.
    """
    settings, schedule = model.cfg.optimizer, model.cfg.scheduler
    optimizer = OPTIMIZERS[settings.name](
        groups, lr=settings.lr * factor, weight_decay=settings.weight_decay, **settings.kwargs
    )
    if schedule.name == "none":
        return optimizer
    if schedule.name == "step":
        return [optimizer], [MultiStepLR(optimizer, schedule.lr_decay_steps, gamma=0.1)]
    by_step = schedule.interval == "step"
    total = model.trainer.estimated_stepping_batches if by_step else model.cfg.max_epochs
    first = schedule.warmup_start_lr if schedule.warmup_epochs > 0 else settings.lr
    scheduler = WarmupCosineLR(
        optimizer,
        warmup_epochs=schedule.warmup_epochs * total / model.cfg.max_epochs,
        max_epochs=total,
        warmup_start_lr=first * factor,
        eta_min=schedule.min_lr * factor,
    )
    return [optimizer], [{"scheduler": scheduler, "interval": schedule.interval}]


REPAIRS = """
    online_knn accuracy_with_few_classes_or_labels loss_without_labels momentum_after_resuming
"""
changes.apply(repairs.load(tuple(REPAIRS.split())))


class TrainedModule(pl.LightningModule):
    """What methods and linear classifiers share; comes before a class of the release."""

    _OPTIMIZERS = OPTIMIZERS
    _SCHEDULERS = (*limits.SCHEDULERS, *limits.OTHER_SCHEDULERS)
    # Lightning 2 refuses modules that have it, so it is called from its successor.
    validation_epoch_end = None

    def __init__(self, cfg: DictConfig, backbone: Any) -> None:
        # Those of the release want every setting as an argument of its own.
        pl.LightningModule.__init__(self)
        self.cfg = cfg
        self.backbone = backbone
        self.features_dim = int(getattr(backbone, "num_features", None) or backbone.inplanes)
        self.num_classes: int = cfg.data.num_classes
        self.classifier = nn.Linear(self.features_dim, self.num_classes)
        self.max_epochs: int = cfg.max_epochs
        self.no_channel_last: bool = cfg.performance.disable_channel_last
        keep_contiguous(self, cfg)
        self.validation_step_outputs: list[Any] = []

    def in_memory_format(self, X: Tensor) -> Tensor:
        """Return images in the memory format that the network has."""
        return X if self.no_channel_last else X.to(memory_format=torch.channels_last)

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> Any:
        """Return the metrics of a batch, and collect them for the end of the epoch."""
        metrics = super().validation_step(batch, batch_idx)
        self.validation_step_outputs.append(metrics)
        return metrics

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation set, batches weighted by their size."""
        super().validation_epoch_end(self.validation_step_outputs)  # type: ignore[misc]
        self.validation_step_outputs.clear()


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

    def __init__(self, cfg: DictConfig) -> None:
        cfg = self.add_and_assert_specific_cfg(cfg)
        super().__init__(cfg, build_backbone(cfg))
        self.backbone_name: str = cfg.backbone.name
        # Accumulated gradients are averaged, so the rates grow with their number.
        self.rate_factor: int = cfg.accumulate_grad_batches or 1
        self.classifier_lr: float = cfg.optimizer.classifier_lr * self.rate_factor
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
        return configure(self, self.learnable_params, self.rate_factor)

    def outputs(self, feats: Tensor) -> dict[str, Any]:
        """Return features and what the heads of a method make of them."""
        return {"feats": feats}

    def base_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``logits`` of the online classifier, ``feats`` and outputs of the heads."""
        out = self.multicrop_forward(X)
        # The classifier only watches: it must not teach the backbone.
        return {"logits": self.classifier(out["feats"].detach()), **out}

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` and outputs of the heads of a small crop."""
        return self.outputs(self.backbone(self.in_memory_format(X)))

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
        cfg: as for :class:`BaseMethod`, with ``momentum.{base_tau, final_tau, classifier}``.
    """

    last_step: int

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        momentum = self.cfg.momentum
        self.momentum_backbone = build_backbone(self.cfg)
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


class LinearModel(TrainedModule, linear.LinearModel):
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
        super().__init__(self.add_and_assert_specific_cfg(cfg), backbone)
        self.loss_func = loss_func or nn.CrossEntropyLoss()
        self.mixup_func = mixup_func
        self.finetune: bool = cfg.finetune
        if not self.finetune:
            self.backbone.requires_grad_(False)

    @staticmethod
    def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
        """Return the configuration completed by the defaults of a linear model."""
        return set_defaults(cfg, "module", "linear_model")

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the classifier (and a fine-tuned backbone) and its schedule."""
        groups = [{"name": "classifier", "params": self.classifier.parameters()}]
        if self.finetune:
            groups.insert(0, {"name": "backbone", "params": self.backbone.parameters()})
        return configure(self, groups)

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return ``feats`` of the backbone and ``logits`` of the classifier."""
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            feats = self.backbone(self.in_memory_format(X))
        return {"logits": self.classifier(feats), "feats": feats}

    def shared_step(self, batch: Sequence[Any], batch_idx: int) -> dict[str, Any]:
        """Return loss, accuracies and size of a batch by name, where the release has a tuple."""
        if self.training and self.mixup_func is not None:
            X, mixed = self.mixup_func(*batch)
            return {"batch_size": len(X), "loss": self.loss_func(self(X)["logits"], mixed)}
        size, loss, acc1, acc5 = super().shared_step(batch, batch_idx)
        return {"batch_size": size, "loss": loss, "acc1": acc1, "acc5": acc5}

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the loss of a training batch; a frozen backbone stays in evaluation mode."""
        if not self.finetune:
            self.backbone.eval()
        out = self.shared_step(batch, batch_idx)
        metrics = {"train_loss": out["loss"]}
        if self.mixup_func is None:
            metrics |= {"train_acc1": out["acc1"], "train_acc5": out["acc5"]}
        self.log_dict(metrics, on_epoch=True, sync_dist=True)
        return out["loss"]

    def validation_step(self, batch: Sequence[Any], batch_idx: int) -> Any:
        """Return the metrics of a batch, and collect them for the end of the epoch."""
        out = self.shared_step(batch, batch_idx)
        metrics = {f"val_{name}": out[name] for name in ("loss", "acc1", "acc5")}
        metrics["batch_size"] = out["batch_size"]
        self.validation_step_outputs.append(metrics)
        return metrics
