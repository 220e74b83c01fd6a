"""What is evaluated: a pretrained backbone, and the labelled images that it is shown."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig

from solo_margins.data import batch_views, tensors
from solo_margins.data.datamodule import classifier_images
from solo_margins.data.folders import report
from solo_margins.data.image_spec import classifier_spec
from solo_margins.evaluation.features import (
    Features,
    Views,
    choose_device,
    extract_features,
    view_loader,
)
from solo_margins.losses.checks import require_count
from solo_margins.training.checked_config import checked
from solo_margins.training.programs import parsed, pretrained_backbone


@dataclass(frozen=True)
class Task:
    """A pretrained backbone with labelled images, at the image size of its pretraining.

    Attributes:
        cfg: the parsed linear configuration: learning rate scaled, number of classes known.
        backbone: with the checkpoint's weights.
        train: training images without a transform.
        validation: validation images without a transform.
        device: where the backbone runs.
        extraction_batch_size: views that the backbone sees at a time.
        progress: whether there are progress bars.
    """

    cfg: DictConfig
    backbone: Any
    train: Any
    validation: Any
    device: str = "auto"
    extraction_batch_size: int = 256
    progress: bool = True

    @cached_property
    def validation_features(self) -> Features:
        """Features of the centre views of the validation images."""
        return self._features(self.validation, "validation")

    @cached_property
    def centre_features(self) -> Features:
        """Features of the centre views of the training images."""
        return self._features(self.train, "training")

    def train_features(self, passes: int) -> Features:
        """Return features of random views of the training images; 0 passes: of the centre view."""
        return self._features(self.train, "crops", passes) if passes else self.centre_features

    def _features(self, images: Any, title: str, passes: int = 0) -> Features:
        spec, which = classifier_spec(self.cfg), 0 if passes else 1
        number, seed, size = max(1, passes), self.cfg.seed, self.extraction_batch_size
        if self.cfg.data.format == "tensors":
            view = batch_views.classifier_views(spec)[which]
            device = choose_device(self.device)
            loader = tensors.view_loader(
                tensors.TensorViews(images, view, number, seed, device), size
            )
        else:
            views = Views(images, spec.transforms()[which], number, seed)
            loader = view_loader(views, size, self.cfg.data.num_workers)
        channels_last = not self.cfg.performance.disable_channel_last
        features = extract_features(
            self.backbone, loader, self.device, channels_last, title, self.progress
        )
        report(images, title)
        return features


def load_task(cfg: DictConfig, **extraction: Any) -> Task:
    """Return backbone and images of a linear configuration, before it is checked.

    Args:
        cfg: such as ``linear.yaml`` composed with overrides.
        extraction: ``device``, ``extraction_batch_size`` and ``progress`` of the task.

    Raises:
        ValueError: the configuration cannot be used; the message is one sentence.
    """
    require_count("extraction_batch_size", extraction.get("extraction_batch_size", 1))
    cfg = checked(cfg)
    if cfg.data.format == "dali":
        # Features are extracted once: what DALI gains there is less than its start costs.
        cfg.data.format = "image_folder"
    cfg = parsed(cfg)
    backbone = pretrained_backbone(cfg).requires_grad_(False)
    return Task(cfg, backbone, *classifier_images(cfg), **extraction)
