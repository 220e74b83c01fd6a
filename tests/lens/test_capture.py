"""What is captured of a step, and that nothing of the method stays changed."""

import sys

import pytest
import torch
from solo.methods import METHODS
from torch import nn

from solo_margins.lens.capture import capture
from solo_margins.versions import form


def vectors(rows=6):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


class Inherited(METHODS["byol"]):
    """A method of a user's, in a module of its own."""


@pytest.fixture
def byol(config):
    return Inherited(config("byol"))


def test_a_loss_of_the_host_reports_what_it_compares(byol):
    source = sys.modules[METHODS["byol"].__module__]
    loss = source.byol_loss_func
    p, z = vectors().requires_grad_(), vectors(6)
    how = {"simplified": False} if form() == "main" else {}
    with capture(byol) as captured:
        value = source.byol_loss_func(p, z, **how)
    assert source.byol_loss_func is loss, "restored"
    torch.testing.assert_close(value, loss(p, z))
    [seen] = captured.compared
    torch.testing.assert_close(seen.rows, nn.functional.normalize(p.detach(), dim=1))


def test_the_host_is_restored_after_an_error(byol):
    source = sys.modules[METHODS["byol"].__module__]
    before = dict(vars(source))

    def fail():
        with capture(byol):
            assert source.byol_loss_func is not before["byol_loss_func"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert dict(vars(source)) == before
    assert not byol.backbone._forward_hooks
    assert not byol.projector._forward_hooks


def simclr_loss_func(first, second, strength):
    """A user's loss that has the name of the host's, but other arguments."""
    return (first * second).sum() * strength


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(4, 3)

    def step(self, x):
        features = self.backbone(x)
        with torch.no_grad():
            self.backbone(x)
        return simclr_loss_func(features, features, strength=2.0)


def test_another_loss_of_the_same_name_is_left_alone():
    module, x = Own(), vectors()
    with capture(module) as captured:
        value = module.step(x)
    torch.testing.assert_close(value, module.step(x))
    assert captured.compared == []
    [features] = captured.features  # without those that were made without gradients
    torch.testing.assert_close(features, module.backbone(x))
    assert not features.requires_grad
