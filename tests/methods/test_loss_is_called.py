"""A margin method whose training step goes past the margin loss says so at the first step."""

import pytest
import torch
from solo.methods import METHODS
from solo.methods.simclr import SimCLR

from solo_margins.methods.run_check import MarginLossNotCalledError
from solo_margins.methods.simclr_margin import SimCLRMargin


class Mixin:
    """Something of a user's that counts steps."""

    steps = 0

    def training_step(self, batch, batch_idx):
        self.steps += 1
        return super().training_step(batch, batch_idx)


class WithMixin(Mixin, SimCLRMargin):
    pass


class OwnLoss(SimCLRMargin):
    def nce_loss(self, z, indexes):
        return z.square().mean()


class HostsStep(SimCLRMargin):
    training_step = SimCLR.training_step


class CompiledLoss(SimCLRMargin):
    nce_loss = torch.compile(SimCLRMargin.nce_loss, backend="eager", fullgraph=True)


class CompiledPolarization(OwnLoss):
    with_polarization = torch.compile(OwnLoss.with_polarization, backend="eager")


@pytest.mark.parametrize("kind", [OwnLoss, HostsStep])
def test_a_first_step_without_the_margin_loss_is_an_error(train, kind, monkeypatch):
    monkeypatch.setitem(METHODS, "simclr_margin", kind)
    with pytest.raises(MarginLossNotCalledError, match="method=simclr_margin: the first training"):
        train("simclr_margin")


@pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="before torch 2.6 compiled code is not seen"
)
def test_a_compiled_loss_is_seen(train, largest_difference, monkeypatch):
    plain, _ = train("simclr_margin", "method_kwargs.margins.positive_scale=3")
    monkeypatch.setitem(METHODS, "simclr_margin", CompiledLoss)
    compiled, trainer = train("simclr_margin", "method_kwargs.margins.positive_scale=3")
    assert trainer.global_step == 3
    assert largest_difference(plain, compiled) < 1e-9


def test_the_penalty_is_not_the_margin_loss(train, monkeypatch):
    monkeypatch.setitem(METHODS, "simclr_margin", CompiledPolarization)
    with pytest.raises(MarginLossNotCalledError):
        train("simclr_margin", "method_kwargs.polarization.weight=1")


def test_a_mixin_may_come_first(train, largest_difference, monkeypatch):
    plain, _ = train("simclr_margin", "method_kwargs.margins.positive_scale=3")
    monkeypatch.setitem(METHODS, "simclr_margin", WithMixin)
    mixed, trainer = train("simclr_margin", "method_kwargs.margins.positive_scale=3")
    assert mixed.steps == trainer.global_step == 3
    assert largest_difference(plain, mixed) == 0.0
