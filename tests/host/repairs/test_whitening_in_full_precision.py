"""W-MSE whitens features of any precision in float32 or better."""

import pytest
import torch
from solo.utils.whitening import Whitening2d


@pytest.fixture
def features():
    """Features that bfloat16 holds exactly, as it does not hold their covariance."""
    large = torch.arange(-8.0, 8.0)
    small = torch.tensor([1.0, -1.0]).repeat(8) / 16
    return torch.stack([large, large + small], dim=1)


@pytest.mark.parametrize("is_autocast", [True, False])
def test_half_precision_gives_what_full_precision_does(features, is_autocast):
    half = features.bfloat16().requires_grad_()
    assert torch.equal(half.float(), features)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_autocast):
        white = Whitening2d(2)(half)
    assert white.dtype == torch.float32
    assert torch.equal(white, Whitening2d(2)(features))
    covariance = torch.cov(white.T.detach().double())
    torch.testing.assert_close(covariance, torch.eye(2).double(), rtol=0, atol=0.01)
    white[:, 1].square().mean().backward()
    assert half.grad.isfinite().all()


def test_wider_features_stay_wide(features):
    assert Whitening2d(2)(features.double()).dtype == torch.float64
