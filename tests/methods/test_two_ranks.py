"""Two real processes: what methods log, train and save together."""

import json

import pytest
import torch
from omegaconf import OmegaConf

LOWER, UPPER = 0.05, 0.6

PROGRAM = '''
import json
import sys
from pathlib import Path

import lightning.pytorch as pl
import solo_margins
import torch
from omegaconf import OmegaConf

solo_margins.register()

from solo.args.pretrain import parse_cfg
from solo.methods.base import BaseMethod

from solo_margins.data.datamodule import RunData
from solo_margins.methods.byol_curv import BYOLCurv


class Tiny(torch.nn.Module):
    num_features = 4

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.layer(x).mean(dim=(2, 3))


class Noting(BYOLCurv):
    """Notes what this rank alone has computed."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.noted = []
        self.vectors = []

    def with_polarization(self, loss, projections):
        self.vectors.append(torch.cat(list(projections)).tolist())
        return super().with_polarization(loss, projections)

    def log_step(self, **metrics):
        super().log_step(**metrics)
        self.noted.append({name: float(value) for name, value in metrics.items()})

    def on_train_end(self):
        metrics = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        digest = [float(p.double().sum()) for p in self.parameters()]
        content = {"noted": self.noted, "metrics": metrics, "digest": digest}
        content["vectors"] = self.vectors
        Path(sys.argv[2], f"rank{self.global_rank}.json").write_text(json.dumps(content))


BaseMethod._BACKBONES["tiny"] = lambda method=None, **kwargs: Tiny()
cfg = parse_cfg(OmegaConf.load(sys.argv[1]))
pl.seed_everything(0)
trainer = pl.Trainer(
    accelerator="cpu",
    devices=len(cfg.devices),
    # Forked, so that solo-learn is imported once.
    strategy="ddp_fork",
    max_epochs=1,
    limit_train_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Noting(cfg), datamodule=RunData(cfg, pretraining=True))
'''


@pytest.fixture
def ranks(raw_config, tmp_path, python):
    """What each of two ranks has noted."""
    cfg = raw_config(
        "byol_curv",
        "backbone.name=tiny",
        "devices='02'",
        "knn_eval.enabled=true",
        "optimizer.batch_size=4",
        f"method_kwargs.polarization={{weight: 1, lower: {LOWER}, upper: {UPPER}}}",
    )
    OmegaConf.save(cfg, tmp_path / "config.yaml")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    python("-W", "ignore", program, tmp_path / "config.yaml", tmp_path)
    return [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_what_is_logged_is_the_mean_over_both_ranks(ranks):
    first, second = ranks
    assert first["digest"] == pytest.approx(second["digest"])
    assert first["metrics"] == pytest.approx(second["metrics"])
    names = ["train_neg_cos_sim", "train_z_std", "train_polarization_loss", "train_pairs_in_band"]
    for name in names:
        values = [[step[name] for step in rank["noted"] if name in step] for rank in ranks]
        own, other = values
        assert len(own) == len(other) == 2
        assert own != other
        mean = torch.tensor(values).mean().item()
        assert first["metrics"][f"{name}_epoch"] == pytest.approx(mean, rel=1e-4), name
    assert 0 <= first["metrics"]["val_knn_acc1"] <= 100


def test_pairs_in_the_band_are_those_of_all_ranks(ranks):
    counts = []
    for first, second in zip(ranks[0]["vectors"], ranks[1]["vectors"], strict=True):
        unit = torch.nn.functional.normalize(torch.tensor([*first, *second]).double())
        distances = (1 - unit @ unit.T) / 2
        inside = (distances > LOWER) & (distances < UPPER)
        counts.append(inside.fill_diagonal_(False).sum().item())
    assert sum(counts) > 0
    logged = ranks[0]["metrics"]["train_pairs_in_band_epoch"]
    assert logged == pytest.approx(sum(counts) / len(counts))
