"""MoCo v3 of stable-pretraining with margins and the lens: a subclass replaces the loss.

pip install stable-pretraining
python examples/stable_pretraining_mocov3.py --epochs 2 --lens outputs/stable_mocov3
"""

import argparse
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from stable_pretraining.callbacks import TeacherStudentCallback
from stable_pretraining.methods import MoCov3
from stable_pretraining_simclr import two_views
from torch import nn
from torch.utils.data import DataLoader

from solo_margins.lens import Lens
from solo_margins.losses import Margins, mocov3_margin_loss_func


class MoCov3WithMargins(MoCov3):
    """MoCo v3 of stable-pretraining, with margins; without any it has the parent's loss."""

    margins = Margins(angular=0.1, subtractive=0.4)  # the paper's for CIFAR-10

    def forward(self, batch: dict[str, Any], stage: str) -> Any:
        """Return the parent's output of a batch, with our loss."""
        output = super().forward(*(view["image"] for view in batch["views"]))
        # Predictions and targets of both views, one after the other.
        query1, query2 = output.prediction.chunk(2)
        key1, key2 = output.target.chunk(2)
        first = mocov3_margin_loss_func(query1, key2, self.temperature, self.margins)
        second = mocov3_margin_loss_func(query2, key1, self.temperature, self.margins)
        # Ours is 2τ times the cross-entropy, as in MoCo v3's paper; stable-pretraining's has no 2τ.
        output.loss = (first + second) / (4 * self.temperature)
        self.log(f"{stage}/loss", output.loss, on_epoch=True)
        return output


def encoder() -> nn.Module:
    """Return a network for small images; stable-pretraining shows it one of 224 pixels, too."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lens", default="outputs/stable_mocov3", help="folder of the lens")
    arguments = parser.parse_args()
    lightning.seed_everything(0)
    images = torch.tensor(load_digits().images[:, None] / 16, dtype=torch.float32)
    module = MoCov3WithMargins(encoder(), projector_dims=(64, 64, 32), predictor_hidden_dim=64)
    module.optim = {"optimizer": {"type": "Adam", "lr": 1e-3}}
    # stable-pretraining calls the student inside of these, not these themselves.
    student = {"backbone": module.backbone.student, "projector": module.projector.student}
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        callbacks=[TeacherStudentCallback(), Lens(arguments.lens, every=5, **student)],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    batches = {"batch_size": 256, "shuffle": True, "drop_last": True}
    rgb = list(images.expand(-1, 3, -1, -1))
    trainer.fit(module, DataLoader(rgb, collate_fn=two_views, **batches))  # type: ignore[arg-type]
    print(f"loss {trainer.callback_metrics['fit/loss_epoch']:.4f}", flush=True)


if __name__ == "__main__":
    main()
