"""Real checkpoints to evaluate."""

import pytest
from omegaconf import OmegaConf

from solo_margins import training
from solo_margins.resolvers import composed


def quiet(name, *overrides):
    """Return one of our configurations for this process and without output."""
    calm = ["accelerator=cpu", "+enable_progress_bar=false", "+enable_model_summary=false"]
    return composed(name, [*calm, "data.num_workers=0", *overrides])


@pytest.fixture
def configured():
    """Compose one of our configurations."""
    return quiet


@pytest.fixture(scope="session")
def digits_checkpoint(tmp_path_factory):
    """A backbone that has seen a few batches of digits."""
    folder = tmp_path_factory.mktemp("digits")
    cfg = quiet(
        *("simclr_margin.yaml", "max_epochs=1", "limit_train_batches=3", "limit_val_batches=1"),
        *("optimizer.batch_size=32", f"checkpoint.dir={folder}"),
    )
    return training.pretrain(cfg).checkpoint


@pytest.fixture
def foreign_checkpoint(raw_config):
    """A backbone of somebody else's configuration, without a name for its data."""
    cfg = raw_config("simclr_margin", "max_epochs=1", "scheduler.warmup_epochs=0")
    del cfg["devices"], cfg["accelerator"]
    OmegaConf.update(cfg, "enable_progress_bar", False, force_add=True)
    OmegaConf.update(cfg, "enable_model_summary", False, force_add=True)
    return training.pretrain(cfg).checkpoint


@pytest.fixture
def cifar10_checkpoint(stored, tmp_path):
    """Pretrain a backbone on small CIFAR-10 files for a step or two."""

    def make(backbone):
        cfg = quiet(
            *("mocov3_margin.yaml", "data=cifar10", "variant=baseline", "max_epochs=1"),
            *(f"data.train_path={stored('cifar10', 'files')}", f"checkpoint.dir={tmp_path}"),
            *(f"backbone.name={backbone}", "optimizer.batch_size=8", "limit_train_batches=1"),
            *("method_kwargs.proj_hidden_dim=16", "method_kwargs.pred_hidden_dim=16"),
            *("scheduler.warmup_epochs=0", "limit_val_batches=0"),
        )
        return training.pretrain(cfg).checkpoint

    return make


@pytest.fixture
def slow_probe(tmp_path):
    """Probe by the function behind ``main_linear.py``."""

    def run(checkpoint, *overrides):
        given = [f"pretrained_feature_extractor={checkpoint}", f"checkpoint.dir={tmp_path}"]
        return training.linear(quiet("linear.yaml", *given, "max_epochs=1", *overrides))

    return run
