"""solo-learn's base classes without their faults, with checkpoints and callbacks of our runs.

solo-learn is not changed. What is wrong in its base classes is overridden here; each override says
what happens without it. Nothing here knows what a margin does.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf
from solo.methods.base import BaseMethod, BaseMomentumMethod
from solo.utils.momentum import MomentumUpdater
from torch import Tensor, nn

from solo_margins.backbones import add_timm_backbone, drop_null_kwargs
from solo_margins.cli import show_warnings
from solo_margins.config import read, setting, write
from solo_margins.devices import keep_contiguous
from solo_margins.learning_rates import optimizer_and_schedule
from solo_margins.lens.settings import LensSettings
from solo_margins.losses.checks import UP_TO_ONE, require_flag, require_number
from solo_margins.method_names import canonical_name
from solo_margins.methods.online_knn import OnlineKNN
from solo_margins.methods.run_check import MarginRunCheck
from solo_margins.methods.settings import setting_errors
from solo_margins.same_run import (
    SETTINGS_IN_CHECKPOINT,
    OtherRun,
    changed_settings,
    compared_settings,
    refuse_changes,
)

# What must be the same where a run goes on from a checkpoint, whichever program resumes it.
SETTINGS_OF_THE_LOSS = (
    "seed",
    "method_kwargs.margins",
    "method_kwargs.negatives",
    "method_kwargs.schedules",
    "method_kwargs.polarization",
)


class CheckpointRefused(OtherRun, CompactHydraException):
    """A run cannot go on from a checkpoint; Hydra prints the message without a trace."""


class CorrectedMethod(BaseMethod):
    """solo-learn's base class of a method, as margin methods need it."""

    def __init__(self, cfg: DictConfig) -> None:
        cfg.method = canonical_name(cfg.method)
        drop_null_kwargs(cfg)
        with setting_errors():
            # solo-learn asserts that the backbone is in its table.
            add_timm_backbone(str(cfg.backbone.name))
            self.lens_settings = read(cfg, "lens", LensSettings)
        # solo-learn's online kNN fails in its constructor with torchmetrics 1.0 and later, so that
        # solo-learn is told that there is none. Its steps feed ours.
        has_knn = bool(setting(cfg, "knn_eval.enabled", False))
        write(cfg, "knn_eval.enabled", False)
        super().__init__(cfg)
        self.cfg.knn_eval.enabled = self.knn_eval = has_knn
        if has_knn:
            with setting_errors():
                self.knn = OnlineKNN(self.cfg.knn_eval.k, self.cfg.knn_eval.distance_func)
        # Without it narrow networks end a process on a CPU by a segmentation fault.
        keep_contiguous(self, self.cfg)

    def configure_optimizers(self) -> Any:
        """Return optimizer and schedule, see `solo_margins.learning_rates`.

        Raises:
            MethodSettingError: there is no such schedule.
        """
        groups = self.learnable_params
        if self.exclude_bias_n_norm_wd:
            from solo.utils.misc import remove_bias_and_norm_from_weight_decay

            groups = remove_bias_and_norm_from_weight_decay(groups)
        with setting_errors():
            return optimizer_and_schedule(self, groups)

    def configure_callbacks(self) -> list[Any]:
        """Return the callbacks that a run of a margin method has in any program."""
        show_warnings()
        callbacks = list(super().configure_callbacks())
        settings = self.lens_settings
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


@dataclass(frozen=True)
class TeacherSettings:
    """How a momentum teacher follows the student.

    Args:
        base_tau: the part of itself that the teacher keeps in the first step, in [0, 1].
        final_tau: that of the last step, in [0, 1]. It may be the smaller one.
        classifier: whether the teacher has an online classifier, too.
    """

    base_tau: float
    final_tau: float
    classifier: bool

    def __post_init__(self) -> None:
        require_number("base_tau", self.base_tau, UP_TO_ONE)
        require_number("final_tau", self.final_tau, UP_TO_ONE)
        require_flag("classifier", self.classifier)


class CorrectedMomentumMethod(CorrectedMethod, BaseMomentumMethod):
    """solo-learn's base class of a method with a momentum teacher, as margin methods need it."""

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        momentum = self.cfg.momentum
        self.momentum_updater = TeacherUpdater(momentum.base_tau, momentum.final_tau)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the configuration with solo-learn's defaults, and check its ``momentum``.

        Raises:
            ValueError: a setting in ``momentum`` is unknown or out of range.
        """
        cfg = super().add_and_assert_specific_cfg(cfg)
        with setting_errors():
            read(cfg, "momentum", TeacherSettings)
        return cfg

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
