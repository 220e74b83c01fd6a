"""What all margin methods share, whatever method of solo-learn they derive from."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from solo_margins import host
from solo_margins.host.training_step import step_with_losses
from solo_margins.lens.settings import lens_settings
from solo_margins.losses import Margins
from solo_margins.losses.polarization import distance_polarization_with_count
from solo_margins.methods.schedules import FIELDS, POLARIZATION_WEIGHT, Schedule, schedules_from
from solo_margins.methods.settings import Polarization, margins_from, polarization_from
from solo_margins.methods.variants import announce_default, settle_variant
from solo_margins.numerics.settings import numerics_settings

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
    """Gives a method of solo-learn margins; written before that method among the bases.

    A training step is the one of solo-learn's method, with its loss replaced by one with margins.
    With default settings it is that method itself.

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
    negatives_are_of_the_batch: ClassVar[bool] = True
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
        kwargs = self.cfg.method_kwargs
        self.margins = margins_from(kwargs.margins)
        self.polarization = polarization_from(kwargs.get("polarization"))
        self.schedules = _schedules_from(self.cfg, self.margins, self.polarization)
        # A penalty that grows from nothing is logged from the first step.
        self.is_polarized = self.polarization.weight > 0 or POLARIZATION_WEIGHT in self.schedules
        self.student_projections: list[Tensor] = []
        if kwargs.get("proj_batch_norm"):
            normalise_hidden_layers(self.projector)
            if hasattr(self, "momentum_projector"):
                normalise_hidden_layers(self.momentum_projector)
                host.initialize_momentum_params(self.projector, self.momentum_projector)

    # What the class of solo-learn provides.
    cfg: DictConfig
    trainer: Any
    projector: nn.Module
    num_crops: int
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
        settle_variant(cfg)
        margins = margins_from(_given(cfg, "margins"))
        polarization = polarization_from(_given(cfg, "polarization"))
        schedules = _schedules_from(cfg, margins, polarization)
        if not cls.has_negatives and (margins.attenuation != 0.0 or "attenuation" in schedules):
            raise ValueError(
                f"method_kwargs.margins.attenuation must be 0 for method={cfg.method}, which has "
                f"no negatives, got {margins.attenuation!r}"
            )
        for name, value in (("margins", margins), ("polarization", polarization)):
            OmegaConf.update(cfg, f"method_kwargs.{name}", asdict(value), force_add=True)
        if cls.has_queue:
            _check_queue(cfg)
        announce_default(cfg)
        # A mistake there is found before anything is loaded.
        lens_settings(cfg)
        numerics_settings(cfg)
        return cfg

    def on_fit_end(self) -> None:
        """Refuse a training without a step, as solo-learn's program would end well.

        Raises:
            ValueError: the batch is larger than the training images, so that none was complete.
        """
        super().on_fit_end()  # type: ignore[misc]
        trainer = self.trainer
        if trainer.num_training_batches == 0 and trainer.limit_train_batches != 0:
            processes = f" times {trainer.world_size} processes" if trainer.world_size > 1 else ""
            raise ValueError(
                f"Nothing was trained: optimizer.batch_size={self.cfg.optimizer.batch_size}"
                f"{processes} exceeds the number of training images of "
                f"data.train_path={self.cfg.data.train_path}."
            )

    def configure_callbacks(self) -> list[Any]:
        """Return what watches a training and nobody has brought, as solo-learn's program."""
        # Their base class comes from the host, which imports this module while it loads.
        from solo_margins.lens.callback import Lens
        from solo_margins.methods.loss_check import MarginLossCheck
        from solo_margins.numerics.callback import FiniteSteps

        present = {type(callback) for callback in self.trainer.callbacks}
        added: list[Any] = [MarginLossCheck()]
        if FiniteSteps not in present:
            added.append(FiniteSteps(numerics_settings(self.cfg)))
        settings = lens_settings(self.cfg)
        if settings.enabled and Lens not in present:
            added.append(Lens(settings))
        return added

    def replaced_losses(self) -> Mapping[str, Callable[..., Tensor]]:
        """Return, by the name of solo-learn's loss, what the training step calls instead."""
        raise NotImplementedError

    def parent_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the total loss of solo-learn's own training step, with our losses in it."""
        step = step_with_losses(self.parent_method(), self.replaced_losses())
        loss: Tensor = step(self, batch, batch_idx)
        return loss

    @classmethod
    def parent_method(cls) -> Any:
        """Return the class of solo-learn's method that this one derives from.

        It comes after ``MarginMethod`` among the bases; a mixin may come before or between.
        """
        after = cls.__mro__[cls.__mro__.index(MarginMethod) + 1 :]
        return next(base for base in after if issubclass(base, host.BaseMethod))

    def training_step(self, batch: Sequence[Any], batch_idx: int) -> Tensor:
        """Return the loss with margins plus the penalty on distances and the classifier's loss."""
        self._follow_schedules()
        with _outputs_of(self.projector) as self.student_projections:
            loss = self.parent_step(batch, batch_idx)
        # Some steps project a view more than once; the last time is the one they compare.
        projections = self.student_projections[-self.num_crops :]
        self.student_projections = []
        return loss + self._polarization_loss(projections) if self.is_polarized else loss

    def _polarization_loss(self, projections: list[Tensor]) -> Tensor:
        band = self.polarization
        penalty, count = distance_polarization_with_count(
            torch.cat(projections), band.lower, band.upper
        )
        # Every process counts its own rows, and logging takes the mean.
        count = count * self.trainer.world_size
        self.log_dict(
            {"train_polarization_loss": penalty, "train_pairs_in_band": count.float()},
            on_epoch=True,
            sync_dist=True,
        )
        return band.weight * penalty

    def _follow_schedules(self) -> None:
        if not self.schedules:
            return
        epochs = self.trainer.global_step / self._steps_per_epoch()
        values = {field: schedule.at(epochs) for field, schedule in self.schedules.items()}
        self.log_dict(
            {f"schedule_{field}": value for field, value in values.items()},
            on_step=True,
            on_epoch=False,
        )
        if POLARIZATION_WEIGHT in values:
            self.polarization = replace(self.polarization, weight=values.pop(POLARIZATION_WEIGHT))
        self.margins = _with(self.margins, values)

    def _steps_per_epoch(self) -> float:
        batches = self.trainer.num_training_batches
        if math.isfinite(batches):
            return max(1, math.ceil(batches / self.trainer.accumulate_grad_batches))
        return max(1.0, self.trainer.estimated_stepping_batches / self.max_epochs)


def normalise_hidden_layers(head: nn.Module) -> None:
    """Put batch normalisation before every ReLU of a head that has none there."""
    layers: list[nn.Module] = []
    for layer in head.children():
        if isinstance(layer, nn.ReLU) and isinstance(layers[-1], nn.Linear):
            layers.append(nn.BatchNorm1d(layers[-1].out_features))
        layers.append(layer)
    head._modules.clear()
    for place, layer in enumerate(layers):
        head.add_module(str(place), layer)


def _with(margins: Margins, values: Mapping[str, Any]) -> Margins:
    return replace(margins, **values)


def _given(cfg: DictConfig, name: str) -> Any:
    return OmegaConf.select(cfg, f"method_kwargs.{name}", default=None)


def _schedules_from(
    cfg: DictConfig, margins: Margins, polarization: Polarization
) -> dict[str, Schedule]:
    """Return the schedules, both ends of each a possible setting."""
    values = {**asdict(margins), POLARIZATION_WEIGHT: polarization.weight}
    schedules = schedules_from(
        _given(cfg, "schedules"), {field: values[field] for field in FIELDS}, cfg.max_epochs
    )
    for field, schedule in schedules.items():
        for key, end in (("from", schedule.start), ("to", schedule.end)):
            try:
                if field == POLARIZATION_WEIGHT:
                    replace(polarization, weight=end)
                else:
                    _with(margins, {field: end})
            except ValueError as reason:
                # "positive_scale must be a number > 0, got 0.0"
                _, _, complaint = str(reason).partition(" ")
                raise ValueError(f"method_kwargs.schedules.{field}.{key} {complaint}") from None
    return schedules


def _check_queue(cfg: DictConfig) -> None:
    """Refuse a queue that batches do not fill evenly, before solo-learn does in mid-training."""
    size = _given(cfg, "queue_size")
    # Every process puts the batches of all of them into its queue.
    devices = OmegaConf.select(cfg, "devices", default=None) or 1
    processes = devices if isinstance(devices, int) else len(devices)
    processes *= OmegaConf.select(cfg, "num_nodes", default=None) or 1
    if size is not None and size % (cfg.optimizer.batch_size * processes):
        batch = f"optimizer.batch_size={cfg.optimizer.batch_size}"
        batch += f" times {processes} processes" if processes > 1 else ""
        raise ValueError(f"method_kwargs.queue_size must be a multiple of {batch}, got {size}")


@contextmanager
def _outputs_of(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what a network returns while the block runs."""
    outputs: list[Tensor] = []
    handle = module.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    try:
        yield outputs
    finally:
        handle.remove()
