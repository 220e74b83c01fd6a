"""What is particular to the registry's release."""

import pytest
import torch

from solo_margins import host

pytestmark = pytest.mark.skipif(host.FORM != "pypi", reason="the installed host is the repository")

EXTRA = {
    "barlow_twins": {"lamb": 0.005, "scale_loss": 0.02},
    "deepclusterv2": {"num_prototypes": [4], "kmeans_iters": 2},
    "mocov2plus": {"queue_size": 16},
    "nnbyol": {"queue_size": 16},
    "nnclr": {"queue_size": 16},
    "nnsiam": {"queue_size": 16},
    "ressl": {"temperature_q": 0.1, "temperature_k": 0.04, "queue_size": 16},
    "simsiam": {},
    "swav": {
        "num_prototypes": 8,
        "sk_iters": 3,
        "sk_epsilon": 0.05,
        "queue_size": 16,
        "epoch_queue_starts": 5,
        "freeze_prototypes_epochs": 1,
    },
    "vicreg": {"sim_loss_weight": 25.0, "var_loss_weight": 25.0, "cov_loss_weight": 1.0},
}


@pytest.mark.parametrize("name", EXTRA)
def test_the_releases_other_methods_train(config, loaders, trainer, name):
    cfg = config(name, "max_epochs=1")
    cfg.method_kwargs.update(EXTRA[name])
    model = host.METHODS[name](cfg)
    before = model.backbone.convolution.weight.detach().clone()
    run = trainer(cfg, limit_train_batches=3, limit_val_batches=2)
    run.fit(model, *loaders(cfg))
    assert run.global_step == 3
    assert not torch.equal(before, model.backbone.convolution.weight)
    assert "val_acc1" in run.callback_metrics


@pytest.mark.parametrize("name", ["dino", "wmse", "mae", "supcon", "vibcreg", "all4one"])
def test_a_method_that_the_release_lacks_names_the_form_that_has_it(name):
    assert name not in host.METHODS
    with pytest.raises(NotImplementedError, match=f"'{name}'.*repository") as error:
        host.METHODS[name]
    assert str(error.value).count(". ") == 0
    class_name = {v: k for k, v in host.OTHER_METHODS.items()}[name]
    with pytest.raises(NotImplementedError, match=name):
        getattr(host, class_name)
    with pytest.raises(KeyError):
        host.METHODS["nonsense"]


def test_a_backbone_that_the_release_lacks_names_the_form_that_has_it(config):
    cfg = config("simclr", "backbone.name=convnext_tiny")
    with pytest.raises(NotImplementedError, match=r"convnext_tiny.*repository"):
        host.SimCLR(cfg)


def test_a_setting_that_the_release_needs_is_named(config):
    with pytest.raises(ValueError, match=r"method_kwargs\.queue_size"):
        host.NNCLR(config("nnclr"))
