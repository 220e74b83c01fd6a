"""What all margin methods share, whatever method of solo-learn they derive from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from solo_margins import host
from solo_margins.config import read, setting, write
from solo_margins.losses import Margins
from solo_margins.losses.polarization import distance_polarization_with_count
from solo_margins.methods.schedules import (
    POLARIZATION_WEIGHT,
    Schedule,
    read_schedules,
    scheduled,
)
from solo_margins.methods.settings import Negatives, Polarization

# A recipe for data sets the heads of every method, so each accepts what another needs.
SHARED_SETTINGS = (
    "proj_output_dim",
    "proj_hidden_dim",
    "pred_hidden_dim",
    "temperature",
    "queue_size",
    "margins",
    "schedules",
    "polarization",
)


class MarginMethod:
    """Settings, schedules and the polarization penalty; comes before solo-learn's method.

    Extra cfg settings, all optional:
        method_kwargs:
            margins (dict): fields of :class:`solo_margins.losses.Margins`.
            schedules (dict): a field of ``margins``, or ``polarization_weight``, to its
                ``kind`` (constant, linear, cosine), ``from``, ``to`` and ``epochs``; see
                :class:`solo_margins.methods.schedules.Schedule`.
            polarization (dict): ``weight``, ``lower`` and ``upper`` of the distance polarization
                regulariser on the projections of every view that the student sees.
    """

    has_negatives: ClassVar[bool] = True
    """Whether positives compete with negatives; without, there is nothing to attenuate."""
    in_batch_negatives: ClassVar[bool] = True
    """Whether negatives, where there are any, are images of the same batch."""
    has_queue: ClassVar[bool] = False
    """Whether batches are put into a queue, whose size they must divide."""
    own_settings: ClassVar[tuple[str, ...]] = ()
    """Names in ``method_kwargs`` that only this method reads, besides ``SHARED_SETTINGS``."""

    margins: Margins
    """The margins of the current step."""
    polarization: Polarization
    """The polarization of the current step."""

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)  # type: ignore[call-arg]
        # Complete and checked: the parent's constructor calls add_and_assert_specific_cfg.
        kwargs: Any = self.cfg.method_kwargs
        self.margins = Margins(**kwargs.margins)
        self.polarization = Polarization(**kwargs.polarization)
        self.schedules = {field: Schedule.of(entry) for field, entry in kwargs.schedules.items()}
        # A penalty that grows from nothing is logged from the first step.
        self.is_polarized = self.polarization.weight > 0 or POLARIZATION_WEIGHT in self.schedules
        if kwargs.get("proj_batch_norm"):
            add_batchnorm(self.projector)
            if hasattr(self, "momentum_projector"):
                add_batchnorm(self.momentum_projector)
                host.initialize_momentum_params(self.projector, self.momentum_projector)

    # What the class of solo-learn provides.
    cfg: DictConfig
    trainer: Any
    projector: nn.Module
    max_epochs: int
    log: Callable[..., None]
    log_dict: Callable[..., None]

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the configuration with the defaults of the parent method and ours written out.

        Raises:
            ValueError: ``method_kwargs`` holds an unknown setting, or one that is impossible.
        """
        cfg = super().add_and_assert_specific_cfg(cfg)  # type: ignore[misc]
        known = (*SHARED_SETTINGS, *cls.own_settings)
        for name in cfg.method_kwargs:
            if name not in known:
                raise ValueError(
                    f"method_kwargs has no setting {name!r} for method={cfg.method}; "
                    f"its settings are {', '.join(known)}"
                )
        margins = read(cfg, "method_kwargs.margins", Margins)
        polarization = read(cfg, "method_kwargs.polarization", Polarization)
        schedules = read_schedules(
            setting(cfg, "method_kwargs.schedules"), margins, polarization, cfg.max_epochs
        )
        if not cls.has_negatives and (margins.attenuation != 0.0 or "attenuation" in schedules):
            raise ValueError(
                f"method_kwargs.margins.attenuation must be 0 for method={cfg.method}, which has "
                f"no negatives, got {margins.attenuation!r}"
            )
        if cls.has_queue:
            _check_queue(cfg)
        if "negatives" in cls.own_settings:
            negatives = read(cfg, "method_kwargs.negatives", Negatives)
            write(cfg, "method_kwargs.negatives", asdict(negatives))
        write(cfg, "method_kwargs.margins", asdict(margins))
        write(cfg, "method_kwargs.polarization", asdict(polarization))
        write(
            cfg,
            "method_kwargs.schedules",
            {field: schedule.settings() for field, schedule in schedules.items()},
        )
        return cfg

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
        """Set margins and polarization to what their schedules say for this step."""
        if self.schedules:
            epochs = self.trainer.global_step / self._steps_per_epoch()
            values = {field: schedule.at(epochs) for field, schedule in self.schedules.items()}
            self.margins, self.polarization = scheduled(self.margins, self.polarization, values)
            self.log_dict(
                {f"schedule_{field}": value for field, value in values.items()},
                on_step=True,
                on_epoch=False,
            )
        return super().on_train_batch_start(batch, batch_idx)  # type: ignore[misc]

    def _steps_per_epoch(self) -> float:
        batches = self.trainer.num_training_batches
        if math.isfinite(batches):
            return max(1, math.ceil(batches / self.trainer.accumulate_grad_batches))
        return max(1.0, self.trainer.estimated_stepping_batches / self.max_epochs)

    def with_polarization(self, loss: Tensor, projections: Sequence[Tensor]) -> Tensor:
        """Return a loss plus the weighted penalty on the distances between all projections."""
        if not self.is_polarized:
            return loss
        band = self.polarization
        penalty, count = distance_polarization_with_count(
            torch.cat(list(projections)), band.lower, band.upper
        )
        # Every process counts its own rows, and logging takes the mean.
        count = count * self.trainer.world_size
        self.log_dict(
            {"train_polarization_loss": penalty, "train_pairs_in_band": count.float()},
            on_epoch=True,
            sync_dist=True,
        )
        return loss + band.weight * penalty


def add_batchnorm(head: nn.Module) -> None:
    """Put batch normalisation before every ReLU of a head that has none there."""
    layers: list[nn.Module] = []
    for layer in head.children():
        if isinstance(layer, nn.ReLU) and isinstance(layers[-1], nn.Linear):
            layers.append(nn.BatchNorm1d(layers[-1].out_features))
        layers.append(layer)
    head._modules.clear()
    for place, layer in enumerate(layers):
        head.add_module(str(place), layer)


def _check_queue(cfg: DictConfig) -> None:
    """Refuse a queue that batches do not fill evenly, before solo-learn does in mid-training."""
    size = setting(cfg, "method_kwargs.queue_size")
    # Every process puts the batches of all of them into its queue.
    devices = setting(cfg, "devices", 1)
    processes = devices if isinstance(devices, int) else len(devices)
    processes *= setting(cfg, "num_nodes", 1)
    if size is not None and size % (cfg.optimizer.batch_size * processes):
        batch = f"optimizer.batch_size={cfg.optimizer.batch_size}"
        batch += f" times {processes} processes" if processes > 1 else ""
        raise ValueError(f"method_kwargs.queue_size must be a multiple of {batch}, got {size}")
