"""Configurations whose images are found, and trainers at a rank and position of a run."""

import lightning.pytorch as pl
import pytest
from omegaconf import OmegaConf
from solo.args.linear import parse_cfg as parse_linear_cfg

from solo_margins.data.dataset_paths import resolve
from solo_margins.data.image_statistics import statistics_of


@pytest.fixture
def named_config(raw_config, view):
    """A pretraining configuration with a data set's name; its images are found."""

    def make(name, path, *overrides):
        cfg = raw_config("simclr", "data.val_path=null", "data.download=false", *overrides)
        if name is not None:
            cfg.data.name = name
        cfg.data.train_path = None if path is None else str(path)
        mean, std = statistics_of(name, {})
        cfg.augmentations = [view(16, mean=list(mean), std=list(std))]
        resolve(cfg, pretraining=True)
        return cfg

    return make


@pytest.fixture
def linear_config(raw_config):
    """A parsed linear configuration of the small images at 16 pixels."""

    def make(*overrides, augmentations=None):
        cfg = raw_config("mocov3", *overrides)
        del cfg.method, cfg.augmentations, cfg.momentum
        cfg.pretrained_feature_extractor = "pretrained.ckpt"
        if augmentations is not False:
            cfg.data.augmentations = augmentations or {"crop_size": 16}
        resolve(cfg, pretraining=False)
        return parse_linear_cfg(cfg)

    return make


@pytest.fixture
def at(trainer, monkeypatch):
    """A real trainer on one of several ranks, after some batches."""
    # A trainer sets it, for the whole process.
    monkeypatch.setattr(pl.utilities.rank_zero_only, "rank", 0)

    def make(rank=0, ranks=1, completed=0, machines=1):
        local = ranks // machines
        environment = {"NODE_RANK": rank // local, "LOCAL_RANK": rank % local}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
        for name, value in environment.items():
            monkeypatch.setenv(name, str(value))
        cfg = OmegaConf.create({"devices": local, "max_epochs": 9})
        cfg.strategy = "ddp" if ranks > 1 else "auto"
        made = trainer(cfg, num_nodes=machines)
        assert (made.global_rank, made.world_size) == (rank, ranks)
        made.fit_loop.epoch_loop.batch_progress.total.completed = completed
        return made

    return make
