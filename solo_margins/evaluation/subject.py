"""The backbone that is evaluated, and the images that it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils.data import Subset

from solo_margins import host
from solo_margins.evaluation.features import Features, Views, extract_features, view_loader
from solo_margins.host.skipped_images import report
from solo_margins.runner.checkpoints import find_checkpoint, pretrained_backbone
from solo_margins.runner.data import classification_loaders
from solo_margins.runner.probing import parse_linear
from solo_margins.runner.settings import own_copy


@dataclass(frozen=True)
class Subject:
    """A pretrained backbone with labelled images, at the image size of its pretraining."""

    cfg: DictConfig
    """The parsed linear configuration: learning rate scaled, number of classes known."""
    backbone: Any
    train: Any
    """Training images without a transform."""
    validation: Any
    crops: Callable[[Any], Tensor]
    """The random crops and flips of the linear recipe."""
    centre: Callable[[Any], Tensor]
    """The view that is validated on."""

    def features(
        self,
        images: Any,
        passes: int = 0,
        batch_size: int = 256,
        device: str | torch.device = "auto",
        title: str = "features",
        progress: bool = True,
    ) -> Features:
        """Return features of images: of random views in some passes, or of the centre view in one.

        Args:
            images: ``train`` or ``validation``.
            passes: number of passes of random views; 0 asks for the centre view.
            batch_size: views that the backbone sees at a time.
            device: where the backbone runs.
            title: what the progress bar calls it.
            progress: whether there is a progress bar.
        """
        transform = self.crops if passes else self.centre
        views = Views(images, transform, max(1, passes), self.cfg.seed)
        loader = view_loader(views, batch_size, self.cfg.data.num_workers)
        channels_last = not self.cfg.performance.disable_channel_last
        found = extract_features(self.backbone, loader, device, channels_last, title, progress)
        report(images, title)
        return found


def load_subject(cfg: DictConfig) -> Subject:
    """Return backbone and images of a linear configuration, before it is parsed.

    Raises:
        ValueError: the configuration cannot be used; the message is one sentence.
    """
    cfg = own_copy(cfg)
    if cfg.data.format == "dali":
        # Features are extracted once: what DALI gains there is less than its start costs.
        cfg.data.format = "image_folder"
    cfg, args = parse_linear(cfg)
    backbone = pretrained_backbone(cfg, find_checkpoint(cfg.pretrained_feature_extractor), args)
    crops, centre = host.prepare_classification_transforms(cfg.data.dataset)
    train, validation = classification_loaders(cfg)
    return Subject(
        cfg,
        backbone.requires_grad_(False),
        _bare(train.dataset),
        _bare(validation.dataset),
        crops,
        centre,
    )


def _bare(images: Any) -> Any:
    """Return a data set whose images come as they are stored."""
    innermost = images
    while isinstance(innermost, Subset):
        innermost = innermost.dataset
    innermost.transform = None
    return images
