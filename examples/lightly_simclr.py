"""SimCLR of lightly with margins: one line of its example changes.

pip install lightly
python examples/lightly_simclr.py --epochs 2
"""

import argparse

import torch
from digits import views
from lightly.models.modules import SimCLRProjectionHead
from torch import Tensor, nn
from torchvision.models import resnet18

from solo_margins.losses import MarginNTXentLoss, Margins


class SimCLR(nn.Module):
    """As in lightly's documentation."""

    def __init__(self) -> None:
        super().__init__()
        resnet = resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = SimCLRProjectionHead(512, 512, 128)

    def forward(self, x: Tensor) -> Tensor:
        """Return projections."""
        projections: Tensor = self.projection_head(self.backbone(x).flatten(start_dim=1))
        return projections


def main() -> None:
    """Train and print the loss of every epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=512, help="of the 1797 digits")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = SimCLR()
    # Instead of criterion = NTXentLoss(temperature=0.5)
    criterion = MarginNTXentLoss(temperature=0.5, margins=Margins(positive_scale=1.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    for epoch in range(arguments.epochs):
        total = 0.0
        loader = views(arguments.images)
        for x0, x1 in loader:
            loss = criterion(model(x0), model(x1))
            total += loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
