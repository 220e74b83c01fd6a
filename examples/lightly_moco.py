"""MoCo of lightly with margins against a memory bank: one line of its example changes.

pip install lightly
python examples/lightly_moco.py --epochs 2
"""

import argparse
import copy

import torch
from digits import views
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import Tensor, nn
from torchvision.models import resnet18

from solo_margins.losses import MarginNTXentLoss, Margins


class MoCo(nn.Module):
    """As in lightly's documentation."""

    def __init__(self) -> None:
        super().__init__()
        resnet = resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1])
        self.projection_head = MoCoProjectionHead(512, 512, 128)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, x: Tensor) -> Tensor:
        """Return queries."""
        query: Tensor = self.projection_head(self.backbone(x).flatten(start_dim=1))
        return query

    def forward_momentum(self, x: Tensor) -> Tensor:
        """Return keys."""
        key: Tensor = self.projection_head_momentum(self.backbone_momentum(x).flatten(start_dim=1))
        return key.detach()


def main() -> None:
    """Train and print the loss of every epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=512, help="of the 1797 digits")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = MoCo()
    # Instead of criterion = NTXentLoss(temperature=0.1, memory_bank_size=(1024, 128))
    criterion = MarginNTXentLoss(
        temperature=0.1, margins=Margins(positive_scale=1.5), memory_bank_size=(1024, 128)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
    for epoch in range(arguments.epochs):
        total = 0.0
        loader = views(arguments.images)
        for x_query, x_key in loader:
            update_momentum(model.backbone, model.backbone_momentum, m=0.99)
            update_momentum(model.projection_head, model.projection_head_momentum, m=0.99)
            loss = criterion(model(x_query), model.forward_momentum(x_key))
            total += loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    main()
