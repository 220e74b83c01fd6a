"""MoCo of lightly with margins against a memory bank: one line of its example changes.

pip install lightly
python examples/lightly_moco.py --epochs 2 --lens outputs/moco
"""

import copy

import torch
from digits import train
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
    """Train."""
    torch.manual_seed(0)
    model = MoCo()
    # Instead of criterion = NTXentLoss(temperature=0.1, memory_bank_size=(1024, 128))
    criterion = MarginNTXentLoss(
        temperature=0.1, memory_bank_size=(1024, 128), margins=Margins(positive_scale=1.5)
    )

    def loss_of(x_query: Tensor, x_key: Tensor) -> Tensor:
        update_momentum(model.backbone, model.backbone_momentum, m=0.99)
        update_momentum(model.projection_head, model.projection_head_momentum, m=0.99)
        loss: Tensor = criterion(model(x_query), model.forward_momentum(x_key))
        return loss

    train(model, loss_of, str(__doc__))


if __name__ == "__main__":
    main()
