"""The base classes of all margin methods: settings, schedules, polarization, one direction.

solo-learn is not changed for them. What is wrong in its base classes is overridden here; each
override says what happens without it.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf
from solo.methods.base import BaseMethod, BaseMomentumMethod
from solo.utils.momentum import MomentumUpdater, initialize_momentum_params
from torch import Tensor, nn

from solo_margins.backbones import add_timm_backbone
from solo_margins.cli import show_warnings
from solo_margins.config import known_settings, read, setting, write
from solo_margins.devices import keep_contiguous
from solo_margins.learning_rates import optimizer_and_schedule
from solo_margins.lens.settings import LensSettings
from solo_margins.losses import Margins, aligned_temperature, aligned_temperature_by_indexes
from solo_margins.losses.checks import require_flag
from solo_margins.losses.polarization import distance_polarization_with_count
from solo_margins.methods.online_knn import OnlineKNN
from solo_margins.methods.queues import neighbours_then_enqueue
from solo_margins.methods.run_check import MarginRunCheck
from solo_margins.methods.settings import MarginSettings, Polarization, Schedule
from solo_margins.same_run import (
    SETTINGS_IN_CHECKPOINT,
    OtherRun,
    changed_settings,
    compared_settings,
    refuse_changes,
)

# What ``method_kwargs`` may hold for every margin method.
SHARED_SETTINGS = ("margins", "schedules", "polarization")

# What must be the same where a run goes on from a checkpoint, whichever program resumes it.
SETTINGS_OF_THE_LOSS = (
    "seed",
    "method_kwargs.margins",
    "method_kwargs.negatives",
    "method_kwargs.schedules",
    "method_kwargs.polarization",
)


class MethodSettingError(ValueError, CompactHydraException):
    """A setting of a method that the user can mend; Hydra prints its message without a trace."""


class CheckpointRefused(OtherRun, CompactHydraException):
    """A run cannot go on from a checkpoint; Hydra prints the message without a trace."""


@contextmanager
def setting_errors() -> Iterator[None]:
    """Turn a ``ValueError`` into one that Hydra prints as one sentence, also in other programs."""
    try:
        yield
    except ValueError as error:
        raise MethodSettingError(str(error)) from error


class MarginMethod(BaseMethod):
    """Settings, schedules and the polarization penalty; the first base class of a method.

    Extra cfg settings, all optional:
        method_kwargs:
            margins (dict): fields of :class:`solo_margins.losses.Margins`.
            schedules (dict): a field of ``margins``, ``temperature`` or ``polarization_weight``,
                to its ``kind`` (constant, linear, cosine, cycle), ``from``, ``to`` and ``epochs``;
                see :class:`solo_margins.methods.settings.Schedule`. A ``temperature`` can have
                the kind alignment with ``factor`` and ``reference``; see
                :class:`solo_margins.methods.settings.Alignment`.
            polarization (dict): ``weight``, ``lower`` and ``upper`` of the distance polarization
                regulariser on the projections of every view that the student sees.
    """

    # Whether positives compete with negatives; attenuation needs them.
    has_negatives: ClassVar[bool] = True
    # Whether the negatives, if any, are images of the same batch.
    in_batch_negatives: ClassVar[bool] = True
    # Whether batches go into a queue, whose size must be a multiple of theirs.
    has_queue: ClassVar[bool] = False
    # Names in ``method_kwargs`` that this method reads besides ``SHARED_SETTINGS``.
    own_settings: ClassVar[tuple[str, ...]] = ()

    margins: Margins  # of the current step
    polarization: Polarization  # of the current step
    temperature: Any  # of the current step, a number; one that follows the positives is a tensor

    def __init__(self, cfg: DictConfig) -> None:
        # solo-learn's online kNN fails in its constructor with torchmetrics 1.0 and later, so that
        # solo-learn is told that there is none. Its steps feed ours.
        has_knn = bool(setting(cfg, "knn_eval.enabled", False))
        write(cfg, "knn_eval.enabled", False)
        super().__init__(cfg)
        self.cfg.knn_eval.enabled = self.knn_eval = has_knn
        with setting_errors():
            if has_knn:
                self.knn = OnlineKNN(self.cfg.knn_eval.k, self.cfg.knn_eval.distance_func)
            self.margin_settings = settings = MarginSettings.read(self.cfg)
        self.margins, self.polarization = settings.margins, settings.polarization
        self.negatives = settings.negatives
        self.scheduled: dict[str, Any] = {}  # fields to their values in the current step
        # A penalty that grows from nothing is logged from the first step.
        is_scheduled = "polarization_weight" in settings.schedules
        self.is_polarized = is_scheduled or self.polarization.weight > 0
        if self.cfg.method_kwargs.get("proj_batch_norm"):
            add_batchnorm(self.projector)
        # Without it narrow networks end a process on a CPU by a segmentation fault.
        keep_contiguous(self, self.cfg)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the configuration completed by the defaults of the parent method and ours.

        Raises:
            ValueError: a setting in ``method_kwargs`` or ``lens`` is unknown or out of range.
        """
        with setting_errors():
            # solo-learn asserts that the backbone is in its table.
            add_timm_backbone(str(cfg.backbone.name))
            return cls.checked_cfg(super().add_and_assert_specific_cfg(cfg))

    @classmethod
    def checked_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return a configuration with our settings checked and complete."""
        # The callback reads them, but not before images are loaded.
        read(cfg, "lens", LensSettings)
        known = (*SHARED_SETTINGS, *cls.own_settings)
        known_settings(f"method_kwargs of method={cfg.method}", cfg.method_kwargs, known)
        settings = MarginSettings.read(cfg)
        scheduled = settings.schedules.keys() & {"attenuation", "temperature"}
        if not cls.has_negatives and (settings.margins.attenuation != 0.0 or scheduled):
            raise ValueError(
                f"method={cfg.method} has no negatives: leave out method_kwargs.margins.attenuation"
                " and method_kwargs.schedules of attenuation and temperature"
            )
        if cls.has_queue:
            _check_queue(cfg)
        for group, content in settings.as_config().items():
            if group in known:
                write(cfg, f"method_kwargs.{group}", content)
        return cfg

    def configure_optimizers(self) -> Any:
        """Return optimizer and schedule, see :mod:`solo_margins.learning_rates`."""
        groups = self.learnable_params
        if self.exclude_bias_n_norm_wd:
            from solo.utils.misc import remove_bias_and_norm_from_weight_decay

            groups = remove_bias_and_norm_from_weight_decay(groups)
        return optimizer_and_schedule(self, groups)

    def configure_callbacks(self) -> list[Any]:
        """Return the callbacks that a run of a margin method has in any program."""
        show_warnings()
        callbacks = list(super().configure_callbacks())
        settings = read(self.cfg, "lens", LensSettings)
        if settings.enabled:
            from solo_margins.lens import Lens

            callbacks.append(Lens(every=settings.every, on_collapse=settings.on_collapse))
        # Last: when it raises another error, all others have heard of the first one.
        callbacks.append(MarginRunCheck())
        # A second fit or a validation goes on with those of the first.
        present = {type(callback) for callback in self.trainer.callbacks}
        return [callback for callback in callbacks if type(callback) not in present]

    def _base_shared_step(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the outputs of a view, and loss and accuracies of the online classifier.

        solo-learn's own makes the classifier's weights NaN where no image of a batch has a label,
        and counts images without a label as wrong.
        """
        out = self(X)
        out.update(classification(out["logits"], targets))
        return out

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save what the checkpoint was trained with."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[SETTINGS_IN_CHECKPOINT] = self._compared_settings()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to go on from a checkpoint with another loss or seed, in any program.

        Raises:
            CheckpointRefused: the settings differ, and ``resume_with_changes`` is not true.
        """
        super().on_load_checkpoint(checkpoint)
        # Without a trainer, or in a validation, it is read for its weights alone.
        is_resumed = self._trainer is not None and self.trainer.state.fn == "fit"
        before = checkpoint.get(SETTINGS_IN_CHECKPOINT)
        if not is_resumed or before is None or setting(self.cfg, "resume_with_changes", False):
            return
        changes = changed_settings(before, self._compared_settings())
        of_the_loss = {
            key: values for key, values in changes.items() if key.startswith(SETTINGS_OF_THE_LOSS)
        }
        try:
            refuse_changes(f"The checkpoint {self.trainer.ckpt_path}", of_the_loss)
        except OtherRun as error:
            raise CheckpointRefused(str(error)) from error

    def _compared_settings(self) -> dict[str, Any]:
        configuration: Any = OmegaConf.to_container(self.cfg, resolve=True)
        return compared_settings(configuration)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
        """Set margins, temperature and polarization to their scheduled values."""
        schedules = self.margin_settings.schedules
        if schedules:
            steps_per_epoch = self._steps_per_epoch()
            epochs = self.trainer.global_step / steps_per_epoch
            # By max_epochs or by max_steps, whichever ends the run.
            length = self.trainer.estimated_stepping_batches / steps_per_epoch
            values = {
                name: schedule.at(epochs, length)
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


class MarginMomentumMethod(MarginMethod, BaseMomentumMethod):
    """A margin method with a momentum teacher; the first base class of such a method."""

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        momentum = self.cfg.momentum
        self.momentum_updater = TeacherUpdater(momentum.base_tau, momentum.final_tau)
        if self.cfg.method_kwargs.get("proj_batch_norm"):
            add_batchnorm(self.momentum_projector)
            initialize_momentum_params(self.projector, self.momentum_projector)

    def on_train_start(self) -> None:
        """Continue the schedule of tau of a resumed run.

        solo-learn's own begins again: the first update after resuming uses the initial tau.
        """
        super().on_train_start()
        self.last_step = self.trainer.global_step
        if self.last_step > 0:
            steps = self.trainer.estimated_stepping_batches
            self.momentum_updater.update_tau(cur_step=self.last_step, max_steps=steps)

    def _shared_step_momentum(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return the teacher's outputs, and loss and accuracies of its classifier, if it has one.

        solo-learn's own fails with fewer than five classes and where no image has a label.
        """
        out = self.momentum_forward(X)
        if self.momentum_classifier is not None:
            out["logits"] = self.momentum_classifier(out["feats"])
            out.update(classification(out["logits"], targets))
        return out


class TeacherUpdater(MomentumUpdater):
    """Moves a momentum network as solo-learn does, but all its weights at once and in place."""

    @torch.no_grad()
    def update(self, online_net: nn.Module, momentum_net: nn.Module) -> None:
        """Move the weights of a momentum network towards those of the student."""
        teacher: list[Tensor] = list(momentum_net.parameters())
        student: list[Tensor] = list(online_net.parameters())
        torch._foreach_lerp_(teacher, student, 1 - self.cur_tau)


class OneDirection(MarginMomentumMethod):
    """A method with a teacher that can compare the first view with the second only.

    The student then sees the first view alone and the teacher the second, which halves the work of
    a step.

    Extra cfg settings:
        method_kwargs:
            symmetric (bool): compare in both directions, as solo-learn does. Defaults to true.
    """

    own_settings: ClassVar[tuple[str, ...]] = (
        "proj_hidden_dim",
        "proj_output_dim",
        "pred_hidden_dim",
        "symmetric",
    )

    @classmethod
    def checked_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return a configuration with our settings checked and complete."""
        cfg = super().checked_cfg(cfg)
        key = "method_kwargs.symmetric"
        symmetric = require_flag(key, setting(cfg, key, True))
        views = cfg.data.num_large_crops + cfg.data.num_small_crops
        if not symmetric and views != 2:
            raise ValueError(
                "method_kwargs.symmetric=false compares one strong with one weak view, but "
                f"augmentations make {views} views: check their num_crops"
            )
        write(cfg, key, symmetric)
        return cfg

    def one_direction_step(self, batch: Any) -> dict[str, Any]:
        """Return the output of solo-learn's base step for one strong and one weak view.

        Outputs of the student are lists of one, as are those of the teacher (``momentum_*``);
        ``loss`` is that of the online classifiers.
        """
        _, (strong, weak), targets = batch
        student = self.base_training_step(strong, targets)
        teacher = self._shared_step_momentum(weak, targets)
        classified = {"train_": student}
        if self.momentum_classifier is not None:
            classified["train_momentum_"] = teacher
        for prefix, out in classified.items():
            named = {f"{prefix}{name}": out[name] for name in ("acc1", "acc5")}
            self.log_step(**named, **{f"{prefix}class_loss": out["loss"]})
        if self.knn_eval:
            labelled = targets != -1
            features = student["feats"].detach()[labelled]
            self.knn(train_features=features, train_targets=targets[labelled])
        outputs = {name: [value] for name, value in student.items()}
        outputs |= {f"momentum_{name}": [value] for name, value in teacher.items()}
        return {**outputs, "loss": sum(out["loss"] for out in classified.values())}


def classification(logits: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return ``loss``, ``acc1`` and ``acc5`` of a classifier.

    Args:
        logits: (N, classes).
        targets: (N,) labels; images with -1 have none and do not count.
    """
    number = (targets != -1).sum().clamp(min=1)
    # Not reduction="mean", which is NaN where there is no label.
    loss = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum") / number
    ranking = logits.topk(min(5, logits.size(1))).indices
    # No class is called -1, so that unlabelled images add no hits.
    hits = (ranking == targets[:, None]).float()
    return {
        "loss": loss,
        "acc1": 100 * hits[:, :1].sum().reshape(1) / number,
        "acc5": 100 * hits.sum().reshape(1) / number,
    }


def add_batchnorm(head: nn.Module) -> None:
    """Insert batch normalisation before every ReLU that follows a linear layer."""
    layers: list[nn.Module] = []
    for layer in head.children():
        if isinstance(layer, nn.ReLU) and isinstance(layers[-1], nn.Linear):
            layers.append(nn.BatchNorm1d(layers[-1].out_features))
        layers.append(layer)
    head._modules.update(nn.Sequential(*layers)._modules)


def _check_queue(cfg: DictConfig) -> None:
    """Raise ``ValueError`` unless batches fill the queue evenly; solo-learn fails only later."""
    size = setting(cfg, "method_kwargs.queue_size")
    # The queue of every process takes the batches of all processes.
    devices = setting(cfg, "devices", 1)
    processes = devices if isinstance(devices, int) else len(devices)
    processes *= setting(cfg, "num_nodes", 1)
    if size is not None and size % (cfg.optimizer.batch_size * processes):
        batch = f"optimizer.batch_size={cfg.optimizer.batch_size}"
        batch += f" times {processes} processes" if processes > 1 else ""
        raise ValueError(f"method_kwargs.queue_size must be a multiple of {batch}, got {size}")
