"""Two real processes: gathering, losses and checkpoints."""

import json
import os
from pathlib import Path

import pytest
import torch
from host_internals import mocov3_loss_func, simclr_loss_func
from omegaconf import OmegaConf

SUPPORT = Path(__file__).resolve().parents[1] / "support"

PROGRAM = '''
import json
import sys
from pathlib import Path

import torch
from host_internals import (
    concat_all_gather_no_grad, gather, mocov3_loss_func, simclr_loss_func
)
from omegaconf import OmegaConf

from solo_margins import host
from solo_margins.data.datamodule import RunData
from solo_margins.training.checkpointing import RunCheckpointer


class Tiny(torch.nn.Module):
    num_features = 4

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.layer(x).mean(dim=(2, 3))


class Probe(host.pl.Callback):
    """Measures inside the process group that the trainer has opened."""

    def on_train_start(self, trainer, module):
        rank = trainer.global_rank
        generator = torch.Generator().manual_seed(3)
        z = torch.randn(8, 5, generator=generator, dtype=torch.float64)
        indexes = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
        mine = [i for i in range(8) if (i % 4) // 2 == rank]
        share = z[mine].clone().requires_grad_()
        loss = simclr_loss_func(share, indexes[mine], 0.3)
        loss.backward()
        gathered = gather(torch.full((2, 1), float(rank)))
        keys = concat_all_gather_no_grad(torch.full((2, 1), float(rank)))
        q, k = z[:4], z[4:]
        rows = slice(2 * rank, 2 * rank + 2)
        moco = mocov3_loss_func(q[rows], k[rows], 0.2)
        torch.save(
            {
                "loss": loss.detach(),
                "gradient": share.grad,
                "mine": mine,
                "gathered": gathered,
                "keys": keys,
                "moco": moco,
            },
            Path(sys.argv[2]) / f"rank{rank}.pt",
        )

    def on_fit_end(self, trainer, module):
        end = {
            "path": str(checkpointer.last_ckpt),
            "digest": [float(p.double().sum()) for p in module.parameters()],
        }
        Path(sys.argv[2], f"end{trainer.global_rank}.json").write_text(json.dumps(end))


host.BaseMethod._BACKBONES["tiny"] = lambda method=None, **kwargs: Tiny()
cfg = host.parse_pretrain_cfg(OmegaConf.load(sys.argv[1]))
checkpointer = RunCheckpointer(cfg)
trainer = host.pl.Trainer(
    accelerator="cpu",
    devices=cfg.devices,
    # Forked, so that solo-learn is imported once.
    strategy="ddp_fork",
    max_epochs=2,
    limit_train_batches=2,
    callbacks=[Probe(), checkpointer],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
host.pl.seed_everything(0)
model = host.METHODS[cfg.method](cfg)
trainer.fit(model, datamodule=RunData(cfg, pretraining=True))
'''


@pytest.fixture
def two_processes(raw_config, tmp_path, python):
    cfg = raw_config(
        "mocov3_margin",
        "backbone.name=tiny",
        "devices=2",
        "knn_eval.enabled=true",
        "optimizer.batch_size=4",
        f"checkpoint.dir={tmp_path / 'runs'}",
    )
    OmegaConf.save(cfg, tmp_path / "config.yaml")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    importable = {"PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{SUPPORT}"}
    python("-W", "ignore", program, tmp_path / "config.yaml", tmp_path, env=importable)
    return tmp_path


def test_two_processes_train_gather_and_save_as_one(two_processes):
    results = [torch.load(two_processes / f"rank{rank}.pt") for rank in range(2)]
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    expected_rows = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    for result in results:
        assert torch.equal(result["gathered"], expected_rows)
        assert torch.equal(result["keys"], expected_rows)

    # One process sees the mean of both losses, and its gradient is the mean of both gradients.
    whole = z.clone().requires_grad_()
    loss = simclr_loss_func(whole, torch.arange(4).repeat(2), 0.3)
    loss.backward()
    assert sum(r["loss"] for r in results).item() / 2 == pytest.approx(loss.item())
    for result in results:
        torch.testing.assert_close(result["gradient"] / 2, whole.grad[result["mine"]])
    one = mocov3_loss_func(z[:4], z[4:], 0.2)
    assert sum(r["moco"] for r in results).item() / 2 == pytest.approx(one.item())

    ends = [json.loads((two_processes / f"end{rank}.json").read_text()) for rank in range(2)]
    assert ends[0]["path"] == ends[1]["path"], "the ranks must agree on the folder"
    assert ends[0]["digest"] == pytest.approx(ends[1]["digest"])
    [saved] = (two_processes / "runs").rglob("*.ckpt")
    assert str(saved) == ends[0]["path"]
    assert torch.load(saved, weights_only=True)["epoch"] == 1
