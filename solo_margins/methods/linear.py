"""solo-learn's linear classifier, without the faults that our probes would meet."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig
from solo.methods.linear import LinearModel
from torch import Tensor, nn

from solo_margins.config import setting
from solo_margins.devices import keep_contiguous
from solo_margins.learning_rates import warmup_cosine
from solo_margins.losses.checks import require_flag
from solo_margins.methods.corrected import classification


def on_normalized_features(layer: nn.Linear, cfg: DictConfig) -> nn.Module:
    """Return a linear layer, with a ``BatchNorm1d`` before it where ``cfg.normalize_features``.

    The probe on normalised features of Marks et al., *A Closer Look at Benchmarking Self-Supervised
    Pre-training with Image Classification* (arXiv 2407.12210): methods differ in the scale of their
    features, and this makes a learning rate mean the same for all of them.
    """
    if not require_flag("normalize_features", setting(cfg, "normalize_features", False)):
        return layer
    return nn.Sequential(nn.BatchNorm1d(layer.in_features), layer)


class LinearClassifier(LinearModel):
    """A linear classifier on a backbone that is frozen, unless ``cfg.finetune``.

    Args:
        backbone: the pretrained backbone.
        cfg: as for solo-learn's ``LinearModel``, which forgets it, and ``normalize_features``.
        loss_func: loss for smoothed targets and for those that ``mixup_func`` has mixed;
            cross-entropy by default.
        mixup_func: mixes images and targets of a training batch.
    """

    classifier: Any

    def __init__(
        self,
        backbone: nn.Module,
        cfg: DictConfig,
        loss_func: Callable[..., Tensor] | None = None,
        mixup_func: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(backbone, cfg, loss_func, mixup_func)
        self.cfg = cfg
        self.classifier = on_normalized_features(self.classifier, cfg)
        # Without it narrow networks end a process on a CPU by a segmentation fault.
        keep_contiguous(self, cfg)

    def configure_optimizers(self) -> Any:
        """Return optimizer and schedule, see `solo_margins.learning_rates`."""
        configured = super().configure_optimizers()
        if self.scheduler != "warmup_cosine":
            return configured
        [optimizer], _ = configured
        for group in optimizer.param_groups:
            # solo-learn's schedule has set the first rate of its warm-up.
            group["lr"] = group["initial_lr"]
        return [optimizer], [warmup_cosine(self, optimizer)]

    def shared_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Return the size of a batch, its loss and, unless its targets are mixed, accuracies.

        solo-learn's own fails with fewer than five classes, and without mixup ``label_smoothing``
        has no effect there.
        """
        if self.training and self.mixup_func is not None:
            return super().shared_step(batch, batch_idx)
        images, targets = batch
        logits = self(images)["logits"]
        metrics = {"batch_size": images.size(0), **classification(logits, targets)}
        if self.training and setting(self.cfg, "label_smoothing", 0) > 0:
            metrics["loss"] = self.loss_func(logits, targets)
        return metrics
