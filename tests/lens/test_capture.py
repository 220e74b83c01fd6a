"""What is captured of a step."""

import torch
from torch import nn

from solo_margins.lens.capture import capture
from solo_margins.losses import mocov3_margin_loss_func


class Model(nn.Module):
    """A student and a teacher, which share a backbone."""

    def __init__(self):
        super().__init__()
        self.backbone, self.projector = nn.Linear(4, 3), nn.Linear(3, 2)

    def step(self, x):
        query = self.projector(self.backbone(x))
        with torch.no_grad():
            key = self.projector(self.backbone(x + 1))
        return mocov3_margin_loss_func(query, key)


def test_features_projections_and_what_losses_compare(device):
    model, x = Model().to(device), torch.randn(6, 4, device=device)
    with capture(model) as captured:
        value = model.step(x)
    torch.testing.assert_close(value, model.step(x))
    # Without those of the teacher, which were made without gradients.
    [features], [projections], [compared] = (
        captured.features,
        captured.projections,
        captured.compared,
    )
    torch.testing.assert_close(features, model.backbone(x))
    torch.testing.assert_close(projections, model.projector(features))
    torch.testing.assert_close(compared.rows, nn.functional.normalize(projections, dim=1))
    assert not features.requires_grad
    assert not compared.rows.requires_grad


def test_the_parts_of_a_model_can_be_told():
    encoder, head = nn.Linear(4, 3), nn.Linear(3, 2)
    model = nn.Sequential(encoder, head)
    with capture(model) as captured:
        model(torch.randn(6, 4))
    assert (captured.features, captured.projections) == ([], [])
    with capture(model, encoder, head) as captured:
        model(torch.randn(6, 4))
    parts = captured.features + captured.projections
    assert [part.shape[1] for part in parts] == [3, 2]
