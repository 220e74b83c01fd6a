"""MoCo v3 of lightly's parts with margins: the loss between queries and keys is ours.

pip install lightly
python examples/lightly_mocov3.py --epochs 2 --lens outputs/mocov3
"""

import copy

import torch
from digits import train
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import Tensor, nn
from torchvision.models import resnet18

from solo_margins.losses import Margins, mocov3_margin_loss_func

TEMPERATURE = 0.2
MARGINS = Margins(angular=0.1, subtractive=0.4)  # the paper's for CIFAR-10


class MoCoV3(nn.Module):
    """A student with a predictor and a teacher without one, with the heads of lightly for v3."""

    def __init__(self) -> None:
        super().__init__()
        resnet = resnet18()
        self.backbone = nn.Sequential(*list(resnet.children())[:-1], nn.Flatten())
        self.projection_head = MoCoProjectionHead(512, 512, 128, num_layers=3, batch_norm=True)
        self.prediction_head = MoCoProjectionHead(128, 512, 128, num_layers=2, batch_norm=True)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, x: Tensor) -> Tensor:
        """Return queries."""
        query: Tensor = self.prediction_head(self.projection_head(self.backbone(x)))
        return query

    @torch.no_grad()
    def forward_momentum(self, x: Tensor) -> Tensor:
        """Return keys."""
        key: Tensor = self.projection_head_momentum(self.backbone_momentum(x))
        return key


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    model = MoCoV3()

    def loss_of(x0: Tensor, x1: Tensor) -> Tensor:
        update_momentum(model.backbone, model.backbone_momentum, m=0.99)
        update_momentum(model.projection_head, model.projection_head_momentum, m=0.99)
        query0, query1 = model(x0), model(x1)
        key0, key1 = model.forward_momentum(x0), model.forward_momentum(x1)
        # Every view is once the query and once the key.
        first = mocov3_margin_loss_func(query0, key1, TEMPERATURE, MARGINS)
        second = mocov3_margin_loss_func(query1, key0, TEMPERATURE, MARGINS)
        return first + second

    train(model, loss_of, str(__doc__))


if __name__ == "__main__":
    main()
