"""The base classes of all margin methods: settings, schedules, polarization, one direction."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig, OmegaConf
from solo.utils.momentum import initialize_momentum_params
from torch import Tensor, nn

from solo_margins.config import device_numbers, setting, write
from solo_margins.losses.alignment import aligned_temperature, aligned_temperature_by_indexes
from solo_margins.losses.margins import Margins
from solo_margins.losses.polarization import distance_polarization_with_count
from solo_margins.methods.corrected import CorrectedMethod, CorrectedMomentumMethod
from solo_margins.methods.parts import encode_in_parts, require_equal_parts
from solo_margins.methods.queues import neighbours_then_enqueue
from solo_margins.methods.settings import (
    MarginSettings,
    Polarization,
    Schedule,
    setting_errors,
    take_short_margins,
)

# What ``method_kwargs`` may hold for every margin method.
SHARED_SETTINGS = ("margins", "schedules", "polarization", "simulated_ranks")


class MarginMethod(CorrectedMethod):
    """Settings, schedules and the polarization penalty; the first base class of a method.

    solo-learn's method, such as ``MoCoV3``, is the second one: by Python's method resolution order
    ``super()`` here and in ``corrected.py`` reaches that class before ``BaseMethod``.

    Extra cfg settings, all optional:

    - `method_kwargs`:
        - `margins` (dict): fields of `solo_margins.losses.Margins`; ``scaling`` is a name or
            has a ``_target_``, see `solo_margins.scalings`.
        - `schedules` (dict): a field of ``margins``, ``temperature`` or ``polarization_weight``,
            to its ``kind`` (constant, linear, cosine, log, cycle), ``from``, ``to`` and
            ``epochs``; see `solo_margins.methods.settings.Schedule`. A ``temperature``
            can have the kind alignment with ``factor`` and ``reference``; see
            `solo_margins.methods.settings.Alignment`.
        - `polarization` (dict): ``weight``, ``lower`` and ``upper`` of the distance polarization
            regulariser on the projections of every view that the student sees.
        - `simulated_ranks` (int): encode each batch in so many parts of the same size, each with
            its own batch statistics, as so many devices would; see
            `solo_margins.methods.parts`. Losses see the whole batch, and the activations
            of one part are in memory. Defaults to 1.
    """

    # Whether positives compete with negatives; attenuation needs them.
    has_negatives: ClassVar[bool] = True
    # Whether the negatives, if any, are images of the same batch.
    in_batch_negatives: ClassVar[bool] = True
    # Whether it compares exactly two large crops.
    compares_two_crops: ClassVar[bool] = True
    # Whether batches go into a queue, whose size must be a multiple of theirs.
    has_queue: ClassVar[bool] = False
    # Fields of the margins that ``margins_for`` computes, whatever the settings are: those must not
    # set or schedule them.
    margins_by_row: ClassVar[tuple[str, ...]] = ()
    # Names in ``method_kwargs`` that this method reads besides ``SHARED_SETTINGS``.
    own_settings: ClassVar[tuple[str, ...]] = ()

    margins: Margins  # of the current step
    polarization: Polarization  # of the current step
    temperature: Any  # of the current step, a number; one that follows the positives is a tensor
    is_recomputing = False  # a part of a batch, in the backward pass

    def __init__(self, cfg: DictConfig) -> None:
        with setting_errors():
            settings = self.read_settings(cfg)
        super().__init__(cfg)
        self.margin_settings = settings
        self.margins, self.polarization = settings.margins, settings.polarization
        self.negatives = settings.negatives
        self.simulated_ranks = settings.simulated_ranks
        self.scheduled: dict[str, Any] = {}  # fields to their values in the current step
        # A penalty that grows from nothing is logged from the first step.
        is_scheduled = "polarization_weight" in settings.schedules
        self.is_polarized = is_scheduled or self.polarization.weight > 0
        if settings.proj_batch_norm:
            add_batchnorm(self.projector)

    @classmethod
    def read_settings(cls, cfg: DictConfig) -> MarginSettings:
        """Return the settings of a configuration, which gets the values of those that it lacks.

        Nothing else reads them. The constructor calls it; our program also does before it resumes,
        to compare a run's settings with those of its checkpoint.

        Raises:
            ValueError: a setting in ``method_kwargs`` or ``momentum`` is unknown or out of range.
        """
        # The defaults of solo-learn's method; the constructor of its BaseMethod sets them again.
        cls.add_and_assert_specific_cfg(cfg)
        # solo-learn writes args.json as it is, with references in place of values.
        OmegaConf.resolve(cfg)
        take_short_margins(cfg)
        cfg.pop("margins", None)
        known = (*SHARED_SETTINGS, *cls.own_settings)
        settings = MarginSettings.read(cfg, known, cls.has_negatives)
        settings.refuse_idle_settings(cls.margins_by_row)
        for name in cls.margins_by_row:
            is_set = getattr(settings.margins, name) != getattr(Margins, name)
            if is_set or name in settings.schedules:
                raise ValueError(
                    f"method_kwargs.margins.{name} and method_kwargs.schedules.{name} have no "
                    f"effect: method={cfg.method} computes {name} for every row"
                )
        if cls.has_queue:
            _check_queue(cfg)
        batch_size, parts = cfg.optimizer.batch_size, settings.simulated_ranks
        if batch_size % parts != 0:
            raise ValueError(
                f"optimizer.batch_size must be a multiple of method_kwargs.simulated_ranks={parts},"
                f" got {batch_size}"
            )
        for name, content in settings.as_config().items():
            if name in known and content is not None:
                write(cfg, f"method_kwargs.{name}", content)
        return settings

    def forward(self, X: Tensor) -> dict[str, Any]:
        """Return the outputs of a view."""
        return self.in_parts(super().forward, X)

    def multicrop_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the outputs of a small crop."""
        return self.in_parts(super().multicrop_forward, X)

    def in_parts(self, encode: Callable[[Tensor], dict[str, Any]], X: Tensor) -> dict[str, Any]:
        """Return what ``encode`` makes of a view, in training by each of the simulated ranks."""
        if not self.training or self.simulated_ranks == 1:
            return encode(X)
        with setting_errors():
            require_equal_parts(len(X), self.simulated_ranks)
        return encode_in_parts(encode, X, self.simulated_ranks, self)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
        """Set margins, temperature and polarization to their scheduled values."""
        schedules = self.margin_settings.schedules
        if schedules:
            steps_per_epoch = self._steps_per_epoch()
            epochs = self.trainer.global_step / steps_per_epoch
            # By max_epochs or by max_steps, whichever ends the run.
            length = self.trainer.estimated_stepping_batches / steps_per_epoch
            values = {
                name: schedule.at(epochs, length, steps_per_epoch)
                for name, schedule in schedules.items()
                if isinstance(schedule, Schedule)
            }
            self.scheduled = values
            settings = self.margin_settings.with_values(values)
            self.margins, self.polarization = settings.margins, settings.polarization
            if "temperature" in values:
                self.temperature = values["temperature"]
        return super().on_train_batch_start(batch, batch_idx)

    def on_before_backward(self, loss: Tensor) -> None:
        """Log scheduled values, among them a temperature that follows the positives."""
        numbers = {f"schedule_{name}": value for name, value in self.scheduled.items()}
        if self.margin_settings.alignment is not None:
            numbers["schedule_temperature"] = self.temperature
        self.log_dict(numbers, on_step=True, on_epoch=False)
        super().on_before_backward(loss)

    def margins_for(self, rows: Tensor) -> Margins:
        """Return the margins of one call of the loss: those of this step.

        A subclass can give each row numbers of its own, see ``margins_by_row``: tensors (N,) for
        ``angular``, ``subtractive`` and ``positive_scale`` of `Margins`.

        Args:
            rows: (N, D) what the student computed for the rows of the loss, not normalised:
                queries, predictions or projections.
        """
        return self.margins

    def temperature_for(
        self, query: Tensor, key: Tensor, is_positive: Tensor | None = None
    ) -> float | Tensor:
        """Return the temperature of a loss whose positives are row i of both, those that count."""
        alignment = self.margin_settings.alignment
        if alignment is not None:
            self.temperature = aligned_temperature(
                query, key, alignment.base, alignment.factor, alignment.reference, is_positive
            )
        return self.temperature

    def temperature_by_indexes(self, z: Tensor, indexes: Tensor | int) -> float | Tensor:
        """Return the temperature of a loss whose positives are the rows with the same index."""
        alignment = self.margin_settings.alignment
        if alignment is not None:
            self.temperature = aligned_temperature_by_indexes(
                z, indexes, alignment.base, alignment.factor, alignment.reference
            )
        return self.temperature

    def _steps_per_epoch(self) -> float:
        batches = self.trainer.num_training_batches
        if math.isfinite(batches):
            return max(1, math.ceil(batches / self.trainer.accumulate_grad_batches))
        return max(1.0, self.trainer.estimated_stepping_batches / self.max_epochs)

    def log_step(self, **metrics: Any) -> None:
        """Log metrics of a training step and their means over the epoch, over all ranks."""
        self.log_dict(metrics, on_epoch=True, sync_dist=True)

    def neighbours(self, z1: Tensor, z2: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest neighbours of two views in a queue, then add the first view to it."""
        neighbours1, neighbours2, accuracy = neighbours_then_enqueue(self, z1, z2, targets)
        self.log_step(train_nn_acc=accuracy)
        return neighbours1, neighbours2

    def with_polarization(self, loss: Tensor, projections: Sequence[Tensor]) -> Tensor:
        """Return a loss plus the weighted polarization penalty on all projections."""
        if not self.is_polarized:
            return loss
        band, z = self.polarization, torch.cat(list(projections))
        penalty, count = distance_polarization_with_count(z, band.lower, band.upper)
        # Every rank counts its own rows, and logging takes the mean.
        count = count * self.trainer.world_size
        self.log_step(train_polarization_loss=penalty, train_pairs_in_band=count.float())
        return loss + band.weight * penalty


class MarginMomentumMethod(MarginMethod, CorrectedMomentumMethod):
    """A margin method with a momentum teacher; the first base class of such a method."""

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        if self.margin_settings.proj_batch_norm:
            add_batchnorm(self.momentum_projector)
            initialize_momentum_params(self.projector, self.momentum_projector)

    @torch.no_grad()
    def momentum_forward(self, X: Tensor) -> dict[str, Any]:
        """Return the teacher's outputs of a view; its batch statistics are those of a part, too."""
        return self.in_parts(super().momentum_forward, X)


class OneDirection(MarginMomentumMethod):
    """A method with a teacher that can compare the first view with the second only.

    The student then sees the first view alone and the teacher the second, which halves the work of
    a step.

    Extra cfg settings:

    - `method_kwargs`:
        - `symmetric` (bool): compare in both directions, as solo-learn does. Defaults to true.
    """

    own_settings: ClassVar[tuple[str, ...]] = (
        "proj_hidden_dim",
        "proj_output_dim",
        "pred_hidden_dim",
        "symmetric",
    )

    @classmethod
    def read_settings(cls, cfg: DictConfig) -> MarginSettings:
        """Return the settings of a configuration, which gets the values of those that it lacks."""
        settings = super().read_settings(cfg)
        views = cfg.data.num_large_crops + cfg.data.num_small_crops
        if not settings.symmetric and views != 2:
            raise ValueError(
                "method_kwargs.symmetric=false compares one strong with one weak view, but "
                f"augmentations make {views} views: check their num_crops"
            )
        return settings

    def one_direction_step(self, batch: Any) -> dict[str, Any]:
        """Return the output of solo-learn's base step for one strong and one weak view.

        Outputs of the student are lists of one, as are those of the teacher (``momentum_*``);
        ``loss`` is that of the online classifiers.
        """
        _, (strong, weak), targets = batch
        student = self.base_training_step(strong, targets)
        teacher = self._shared_step_momentum(weak, targets)
        loss = student["loss"]
        self.log_step(
            train_class_loss=student["loss"],
            train_acc1=student["acc1"],
            train_acc5=student["acc5"],
        )
        if self.momentum_classifier is not None:
            loss = loss + teacher["loss"]
            self.log_step(
                train_momentum_class_loss=teacher["loss"],
                train_momentum_acc1=teacher["acc1"],
                train_momentum_acc5=teacher["acc5"],
            )
        if self.knn_eval:
            labelled = targets != -1
            features = student["feats"].detach()[labelled]
            self.knn(train_features=features, train_targets=targets[labelled])
        outputs: dict[str, Any] = {}
        for name, value in student.items():
            outputs[name] = [value]
        for name, value in teacher.items():
            outputs[f"momentum_{name}"] = [value]
        outputs["loss"] = loss
        return outputs


def add_batchnorm(head: nn.Module) -> None:
    """Insert batch normalisation before every ReLU that follows a linear layer."""
    layers: list[nn.Module] = []
    for layer in head.children():
        if isinstance(layer, nn.ReLU) and isinstance(layers[-1], nn.Linear):
            layers.append(nn.BatchNorm1d(layers[-1].out_features))
        layers.append(layer)
    for place, layer in enumerate(layers):
        head.add_module(str(place), layer)


def _check_queue(cfg: DictConfig) -> None:
    """Raise ``ValueError`` unless batches fill the queue evenly; solo-learn fails only later."""
    size = setting(cfg, "method_kwargs.queue_size")
    # The queue of every process takes the batches of all processes.
    processes = len(device_numbers(setting(cfg, "devices")))
    processes *= setting(cfg, "num_nodes", 1)
    if size is not None and size % (cfg.optimizer.batch_size * processes):
        batch = f"optimizer.batch_size={cfg.optimizer.batch_size}"
        batch += f" times {processes} processes" if processes > 1 else ""
        raise ValueError(f"method_kwargs.queue_size must be a multiple of {batch}, got {size}")
