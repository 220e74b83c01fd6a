"""SimCLR of stable-pretraining with margins and the lens: the loss and a callback change.

pip install stable-pretraining
python examples/stable_pretraining_simclr.py --epochs 2 --lens outputs/stable
"""

import argparse

import lightning
import stable_pretraining as spt
import torch
from sklearn.datasets import load_digits
from stable_pretraining.forward import simclr
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2 as transforms

from solo_margins.lens import Lens
from solo_margins.losses import MarginNTXentLoss, Margins

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(16, scale=(0.4, 1.0), antialias=True),
        transforms.RandomRotation(15),
    ]
)


def two_views(images: list[Tensor]) -> dict[str, list[dict[str, Tensor]]]:
    """Return a batch as stable-pretraining expects it."""
    views = [torch.stack([augment(image) for image in images]) for _ in range(2)]
    return {"views": [{"image": view} for view in views]}


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lens", default="outputs/stable", help="folder for what the lens sees")
    arguments = parser.parse_args()
    lightning.seed_everything(0)
    images = torch.tensor(load_digits().images[:, None] / 16, dtype=torch.float32)
    module = spt.Module(
        forward=simclr,
        backbone=nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64)),
        projector=nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)),
        # Instead of simclr_loss=spt.losses.NTXEntLoss(temperature=0.5)
        simclr_loss=MarginNTXentLoss(temperature=0.5, margins=Margins(positive_scale=1.5)),
        optim={"optimizer": {"type": "Adam", "lr": 1e-3}},
    )
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        callbacks=[Lens(arguments.lens, every=5)],
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    batches = {"batch_size": 256, "shuffle": True, "drop_last": True}
    trainer.fit(module, DataLoader(list(images), collate_fn=two_views, **batches))  # type: ignore
    print(f"loss {trainer.callback_metrics['fit/loss_epoch']:.4f}", flush=True)


if __name__ == "__main__":
    main()
