"""SimCLR with margins in a plain PyTorch loop, on scikit-learn's digits.

python examples/plain_pytorch.py --epochs 10 --lens outputs/plain
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torchvision.transforms import v2 as transforms

from solo_margins.lens import Lens
from solo_margins.losses import MarginNTXentLoss, Margins

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(16, scale=(0.4, 1.0), antialias=True),
        transforms.RandomRotation(15),
        transforms.Lambda(lambda image: image + 0.1 * torch.randn_like(image)),
    ]
)


def main() -> None:
    """Train and print the loss of every epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lens", default="outputs/plain", help="folder for what the lens sees")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    images = torch.tensor(load_digits().images[:, None] / 16, dtype=torch.float32)
    encoder = nn.Sequential(
        nn.Conv2d(1, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    model = nn.Sequential(encoder, projector)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # The value is that of NT-Xent; scale and curvature act on the gradients of positives.
    criterion = MarginNTXentLoss(temperature=0.5, margins=Margins(positive_scale=1.5, curvature=1))
    lens = Lens(arguments.lens, every=5, backbone=encoder, projector=projector)
    for epoch in range(arguments.epochs):
        losses = []
        for batch in images[torch.randperm(len(images))].split(256):
            views = [torch.stack([augment(image) for image in batch]) for _ in range(2)]
            with lens.recording(model, epoch=epoch):
                loss = criterion(*map(model, views))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}", flush=True)
    lens.finish()


if __name__ == "__main__":
    main()
