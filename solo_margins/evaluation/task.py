"""What is evaluated: a pretrained backbone, and the labelled images that it is shown.

The evaluation commands name both by ``key=value`` arguments on top of ``linear.yaml``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins import resolvers, results
from solo_margins.config import setting
from solo_margins.data.datamodule import classifier_images
from solo_margins.data.dataset_paths import OURS
from solo_margins.data.folders import report
from solo_margins.data.image_spec import classifier_spec
from solo_margins.evaluation.features import (
    Features,
    Views,
    choose_device,
    extract_features,
    view_loader,
)
from solo_margins.losses.checks import require_choice, require_count
from solo_margins.training.checked_config import checked_probe
from solo_margins.training.linear import parsed_probe, pretrained_backbone
from solo_margins.training.results_log import planned_record
from solo_margins.versions import versions

# Settings whose values are not interpreted: any character may be part of a path.
PATHS = ("pretrained_feature_extractor", "data.train_path", "data.val_path", "results")

# Settings of ``linear.yaml`` that say which backbone is shown which images.
WHAT_TO_EVALUATE = (
    "data",
    "data.name",
    "data.dataset",
    "data.format",
    "data.download",
    "data.on_error",
    "data.fraction",
    "data.num_workers",
    "data.unlabelled_folder",
    "data.augmentations.crop_size",
    "data.augmentations.mean",
    "data.augmentations.std",
    "backbone.name",
    "backbone.kwargs",
    "pretrain_method",
    "performance.disable_channel_last",
    "seed",
)


@dataclass(frozen=True)
class Task:
    """A pretrained backbone with labelled images, at the image size of its pretraining.

    Attributes:
        cfg: the parsed linear configuration: learning rate scaled, number of classes known.
        planned: the record of the evaluation without figures, None where ``results`` names no file.
        backbone: with the checkpoint's weights.
        train: training images without a transform.
        validation: validation images without a transform.
        device: where the backbone runs.
        extraction_batch_size: views that the backbone sees at a time.
        progress: whether there are progress bars.
    """

    cfg: DictConfig
    planned: results.Record | None
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

    def record(
        self, kind: str, own: Mapping[str, Any], figures: Mapping[str, float], seconds: float
    ) -> None:
        """Append a line to the file that ``results`` names, if it does.

        Args:
            kind: what the evaluation is, such as ``"knn"``.
            own: settings of the command that the configuration does not have.
            figures: what was measured.
            seconds: how long that took.
        """
        if self.planned is None:
            return
        finished = replace(
            self.planned,
            kind=kind,
            settings={**self.planned.settings, **own},
            figures=dict(figures),
            seconds=seconds,
            versions=versions(),
            finished=results.now(),
        )
        results.append(self.cfg.results, finished)
        print(f"Results: {self.cfg.results}", flush=True)

    def _features(self, images: Any, title: str, passes: int = 0) -> Features:
        spec = classifier_spec(self.cfg)
        number = max(1, passes)
        size = self.extraction_batch_size
        if self.cfg.data.format == "tensors":
            from solo_margins.data import batch_views, tensors

            crops, centre = batch_views.classifier_views(spec)
            view = crops if passes else centre
            device = choose_device(self.device)
            of_batches = tensors.TensorViews(images, view, number, self.cfg.seed, device)
            loader = tensors.view_loader(of_batches, size)
        else:
            crop_transform, centre_transform = spec.transforms()
            transform = crop_transform if passes else centre_transform
            views = Views(images, transform, number, self.cfg.seed)
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
    # Features are extracted once: what DALI gains there is less than its start costs.
    cfg = checked_probe(cfg, reads_by_dali=False)
    planned = None
    if setting(cfg, "results") is not None:
        results.check_appendable(cfg.results)
        # Before solo-learn scales the learning rate.
        planned = planned_record("linear", cfg)
    cfg = parsed_probe(cfg)
    backbone = pretrained_backbone(cfg).requires_grad_(False)
    train, validation = classifier_images(cfg)
    return Task(cfg, planned, backbone, train, validation, **extraction)


def parse(
    arguments: Iterable[str], own: Mapping[str, Any], applicable: Sequence[str] = ()
) -> tuple[DictConfig, dict[str, Any]]:
    """Return ``linear.yaml`` with the arguments applied, and the command's own settings.

    Without ``data=…`` the images are those of the pretraining.

    Args:
        arguments: ``key=value`` each.
        own: settings of the command that ``linear.yaml`` does not have, with their defaults;
            ``device`` and ``extraction_batch_size`` are added to them.
        applicable: names of settings of ``linear.yaml`` that apply, besides which backbone and
            images.

    Raises:
        ValueError: an argument is unknown or cannot be used; the message is one sentence.
    """
    options = OmegaConf.create({**own, "device": "auto", "extraction_batch_size": 256})
    of_linear = [*WHAT_TO_EVALUATE, *applicable]
    known = [*PATHS, *of_linear, *map(str, options), "label_fraction"]
    values: dict[str, str] = {}
    for argument in arguments:
        key, is_setting, value = argument.partition("=")
        if not is_setting or key not in known:
            words = "is not a setting of the form key=value: the keys are"
            raise ValueError(f"{argument!r} {words} {', '.join(known)}.")
        values["data.fraction" if key == "label_fraction" else key] = value
    if values.get(PATHS[0], "null") in ("", "null"):
        raise ValueError("Name what to evaluate: pretrained_feature_extractor=<checkpoint>.")
    data = values.pop("data", "") or values.get("data.name", "")
    overrides = []
    if data not in ("", "null"):
        require_choice("data", data, OURS)
        overrides = [f"data={data}"]
    cfg = resolvers.composed("linear.yaml", overrides)
    for key, value in values.items():
        if key in PATHS:
            OmegaConf.update(cfg, key, None if value in ("", "null") else value)
            continue
        try:
            (options if key in options else cfg).merge_with_dotlist([f"{key}={value}"])
        # The parser's own errors fill several lines.
        except Exception:
            raise ValueError(f"{key} must be a value in YAML's notation, got {value!r}.") from None
    return cfg, {str(name): options[name] for name in options}
