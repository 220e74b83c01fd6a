"""What is evaluated: a pretrained backbone, and the labelled images that it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig

from solo_margins.data.datamodule import classifier_images
from solo_margins.data.folders import report
from solo_margins.data.image_spec import classifier_spec
from solo_margins.evaluation.features import Features, Views, extract_features, view_loader
from solo_margins.training.checked_config import checked
from solo_margins.training.probing import parsed, pretrained_backbone


@dataclass(frozen=True)
class Task:
    """A pretrained backbone with labelled images, at the image size of its pretraining."""

    cfg: DictConfig
    """The parsed linear configuration: learning rate scaled, number of classes known."""
    backbone: Any
    train: Any
    """Training images without a transform."""
    validation: Any

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
        crops, centre = classifier_spec(self.cfg).transforms()
        views = Views(images, crops if passes else centre, max(1, passes), self.cfg.seed)
        loader = view_loader(views, batch_size, self.cfg.data.num_workers)
        channels_last = not self.cfg.performance.disable_channel_last
        features = extract_features(self.backbone, loader, device, channels_last, title, progress)
        report(images, title)
        return features


def load_task(cfg: DictConfig) -> Task:
    """Return backbone and images of a linear configuration, before it is checked.

    Raises:
        ValueError: the configuration cannot be used; the message is one sentence.
    """
    cfg = checked(cfg)
    if cfg.data.format == "dali":
        # Features are extracted once: what DALI gains there is less than its start costs.
        cfg.data.format = "image_folder"
    cfg = parsed(cfg)
    backbone = pretrained_backbone(cfg).requires_grad_(False)
    return Task(cfg, backbone, *classifier_images(cfg))
