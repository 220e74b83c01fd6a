"""SimCLR of lightly with margins: one line of its example changes.

pip install lightly
python examples/lightly_simclr.py --epochs 2 --lens outputs/simclr
"""

import torch
from digits import train
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
    """Train."""
    torch.manual_seed(0)
    model = SimCLR()
    # Instead of criterion = NTXentLoss(temperature=0.5)
    criterion = MarginNTXentLoss(temperature=0.5, margins=Margins(positive_scale=1.5))

    def loss_of(x0: Tensor, x1: Tensor) -> Tensor:
        loss: Tensor = criterion(model(x0), model(x1))
        return loss

    train(model, loss_of, str(__doc__))


if __name__ == "__main__":
    main()
