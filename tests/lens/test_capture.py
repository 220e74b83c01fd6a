"""What is captured of a step, and that nothing of the method stays changed."""

import sys

import pytest
import torch
from torch import nn

from solo_margins import host
from solo_margins.lens.capture import capture


def vectors(rows=6):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


class Inherited(host.METHODS["byol"]):
    """A method of a user's, in a module of its own."""


@pytest.fixture
def byol(config):
    return Inherited(config("byol"))


def test_a_loss_of_the_host_reports_what_it_compares(byol):
    source = sys.modules[host.METHODS["byol"].__module__]
    loss = source.byol_loss_func
    p, z = vectors().requires_grad_(), vectors(6)
    how = {"simplified": False} if host.form() == "main" else {}
    with capture(byol) as captured:
        value = source.byol_loss_func(p, z, **how)
    assert source.byol_loss_func is loss, "restored"
    torch.testing.assert_close(value, loss(p, z))
    [seen] = captured.compared
    torch.testing.assert_close(seen.rows, nn.functional.normalize(p.detach(), dim=1))


def test_the_host_is_restored_after_an_error(byol):
    source = sys.modules[host.METHODS["byol"].__module__]
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


WITHOUT_SOLO_LEARN = """
import json, logging, sys
from pathlib import Path
sys.modules["solo"] = None
import torch
import lightning.pytorch as pl
from solo_margins.lens import records
from solo_margins.lens.callback import Lens
from solo_margins.lens.settings import LensSettings
from solo_margins.losses import mocov3_margin_loss_func

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(8, 4)
    def training_step(self, batch, index):
        return mocov3_margin_loss_func(self.backbone(batch[0]), self.backbone(batch[0] + 1))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

images = torch.utils.data.TensorDataset(torch.randn(16, 8))
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
lens = Lens(LensSettings(enabled=True, every=2), Path("run"))
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[lens], enable_checkpointing=False, **quiet
)
trainer.fit(Module(), torch.utils.data.DataLoader(images, batch_size=4))
run = records.read(Path("run"))
print(json.dumps([run.header["method"], [sorted(seen.scalars) for seen in run.observations]]))
"""


def test_the_callback_works_without_solo_learn(answer):
    method, (first, second) = answer(WITHOUT_SOLO_LEARN)
    assert method == "Module"
    assert first == second
    assert {"q", "positive_angle", "effective_rank"} <= set(first)
