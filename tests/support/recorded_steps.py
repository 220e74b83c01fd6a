"""Trains methods in float64 by one process or several, and keeps what each step computed.

    python recorded_steps.py <folder>

The folder holds parsed configurations ``<name>.yaml``. Every rank writes ``<name>-<rank>.pt``.
"""

import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from omegaconf import OmegaConf

from solo_margins import registry


class Recorder(pl.Callback):
    """Keeps losses, gradients and the last state of a method."""

    def __init__(self, path=None):
        self.path = path
        self.losses = []
        self.gradients = []
        self.state = {}

    def on_before_backward(self, trainer, pl_module, loss):
        self.losses.append(loss.item())

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        gradients = {}
        for name, parameter in pl_module.named_parameters():
            if parameter.grad is not None:
                gradients[name] = parameter.grad.clone()
        self.gradients.append(gradients)

    def on_train_end(self, trainer, pl_module):
        self.state = {name: value.clone() for name, value in pl_module.state_dict().items()}
        if self.path is not None:
            content = {"losses": self.losses, "gradients": self.gradients, "state": self.state}
            torch.save(content, f"{self.path}-{trainer.global_rank}.pt")


def recorded(cfg, path=None):
    """Train an epoch of a parsed configuration and return its recorder."""
    from solo.methods import METHODS

    from solo_margins.data.datamodule import RunData

    pl.seed_everything(3)
    torch.set_default_dtype(torch.float64)
    model = METHODS[cfg.method](cfg)
    torch.set_default_dtype(torch.float32)
    recorder = Recorder(path)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=len(cfg.devices),
        strategy="auto" if len(cfg.devices) == 1 else "ddp_fork",
        precision="64-true",
        max_epochs=1,
        limit_val_batches=0,
        callbacks=[recorder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=RunData(cfg, pretraining=True))
    return recorder


if __name__ == "__main__":
    registry.register()
    torch.set_num_threads(1)
    for configuration in sorted(Path(sys.argv[1]).glob("*.yaml")):
        recorded(OmegaConf.load(configuration), configuration.with_suffix(""))
