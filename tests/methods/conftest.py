"""Methods in real trainers, in float64 and from one seed."""

import lightning.pytorch as pl
import pytest
import torch
from method_parents import PARENTS
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS


def pytest_generate_tests(metafunc):
    if "any_method" in metafunc.fixturenames:
        metafunc.parametrize("any_method", PARENTS)


@pytest.fixture
def train(raw_config, loaders, trainer):
    """Train three steps in float64 from one seed and return the method and its trainer."""

    def run(method, *overrides, start=None, views=None, model=None, **settings):
        cfg = raw_config(method, "max_epochs=1", *overrides)
        if views is not None:
            cfg.augmentations = views
        cfg = parse_pretrain_cfg(cfg)
        if model is None:
            pl.seed_everything(3)
            # Not .double() afterwards: a queue that was normalised in float32 is no longer unit.
            torch.set_default_dtype(torch.float64)
            model = METHODS[method](cfg)
            torch.set_default_dtype(torch.float32)
        pl.seed_everything(4)
        train_loader, _ = loaders(cfg)
        options = {"precision": "64-true", "limit_train_batches": 3, "limit_val_batches": 0}
        lightning = trainer(cfg, **{**options, **settings})
        lightning.fit(model, train_loader, ckpt_path=start)
        return model, lightning

    return run


@pytest.fixture
def largest_difference():
    """Compare two methods weight by weight."""

    def compare(one, other):
        first, second = one.state_dict(), other.state_dict()
        assert first.keys() == second.keys()
        return max((first[key] - second[key]).abs().max().item() for key in first)

    return compare
