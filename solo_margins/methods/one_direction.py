"""Methods that can compare in one direction: student on the strong view, teacher on the weak."""

from typing import Any, ClassVar

import torch
from omegaconf import DictConfig

from solo_margins.config import setting, write
from solo_margins.losses.checks import require_flag
from solo_margins.methods.margin_method import MarginMethod


class OneDirection(MarginMethod):
    """A method with a teacher that can compare the first view with the second only.

    The student then sees the first view alone and the teacher the second, which halves the work of
    a step.

    Extra cfg settings:
        method_kwargs:
            symmetric (bool): compare in both directions, as solo-learn does. Defaults to true.
    """

    own_settings: ClassVar[tuple[str, ...]] = ("symmetric",)

    @classmethod
    def add_and_assert_specific_cfg(cls, cfg: DictConfig) -> DictConfig:
        """Return the completed configuration; see :class:`MarginMethod`."""
        cfg = super().add_and_assert_specific_cfg(cfg)
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
        class_loss = student["loss"]
        classified = {"train_": student}
        if self.momentum_classifier is not None:
            class_loss = class_loss + teacher["loss"]
            classified["train_momentum_"] = teacher
        for prefix, out in classified.items():
            named = {f"{prefix}{name}": out[name] for name in ("acc1", "acc5")}
            self.log_step(**named, **{f"{prefix}class_loss": out["loss"]})
        if self.knn_eval:
            labelled = targets != -1
            with torch.no_grad():
                self.knn(
                    train_features=student["feats"][labelled].detach(),
                    train_targets=targets[labelled],
                )
        outputs = {name: [value] for name, value in student.items()}
        outputs |= {f"momentum_{name}": [value] for name, value in teacher.items()}
        return {**outputs, "loss": class_loss}
