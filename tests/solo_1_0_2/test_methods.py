"""The parents of our methods on the release: the repository's interface, the formulas' losses."""

import math

import pytest
import torch
from solo.args.pretrain import parse_cfg
from solo.losses.byol import byol_loss_func
from solo.losses.mocov3 import mocov3_loss_func
from solo.losses.simclr import simclr_loss_func
from solo.methods import METHODS
from solo.methods.base import BaseMethod, BaseMomentumMethod
from solo.methods.mocov3 import MoCoV3

from solo_margins.backbones import build_backbone

PARENTS = ["simclr", "byol", "mocov3"]
MOMENTUM_PARENTS = ["byol", "mocov3"]


def batch_of(cfg, size=6):
    generator = torch.Generator().manual_seed(1)
    crops = cfg.data.num_large_crops
    views = [torch.randn(size, 3, 16, 16, generator=generator) for _ in range(crops)]
    views += [
        torch.randn(size, 3, 8, 8, generator=generator) for _ in range(cfg.data.num_small_crops)
    ]
    return [torch.arange(size), views, torch.arange(size) % 3]


def untrained(name, cfg):
    torch.manual_seed(0)
    model = METHODS[name](cfg)
    model.log_dict = model.log = lambda *args, **kwargs: None
    return model


def cosines(a, b):
    rows = [
        [sum(x * y) / math.sqrt(sum(x * x) * sum(y * y)) for y in b.detach().double()]
        for x in a.detach().double()
    ]
    return torch.tensor(rows)


def naive_mocov3(query, key, temperature):
    logits = cosines(query, key) / temperature
    terms = [-row[i] + math.log(sum(math.exp(v) for v in row)) for i, row in enumerate(logits)]
    return 2 * temperature * sum(terms) / len(terms)


def naive_simclr(z, indexes, temperature):
    similar = torch.exp(cosines(z, z) / temperature)
    total = 0.0
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        positives = sum(similar[i, j] for j in others if indexes[j] == indexes[i])
        total -= math.log(positives / sum(similar[i, j] for j in others))
    return total / len(z)


def naive_byol(p, z):
    return 2 - 2 * cosines(p, z).diagonal().mean().item()


def test_losses_are_those_of_the_formulas():
    torch.manual_seed(0)
    a, b = torch.randn(5, 4), torch.randn(5, 4)
    indexes = torch.arange(5).repeat(2)
    assert mocov3_loss_func(a, b, 0.3).item() == pytest.approx(
        float(naive_mocov3(a, b, 0.3)), rel=1e-5
    )
    assert simclr_loss_func(torch.cat([a, b]), indexes, 0.2).item() == pytest.approx(
        naive_simclr(torch.cat([a, b]), indexes, 0.2), rel=1e-5
    )
    assert byol_loss_func(a, b).item() == pytest.approx(naive_byol(a, b), rel=1e-5)


@pytest.mark.parametrize("name", PARENTS)
def test_forward_and_parameter_groups(config, name):
    cfg = config(name)
    model = untrained(name, cfg)
    out = model(batch_of(cfg)[1][0])
    assert {"logits", "feats", "z"} <= out.keys()
    assert out["logits"].shape == (6, 3)
    assert out["feats"].shape == (6, 8)
    names = [group["name"] for group in model.learnable_params]
    assert names[:2] == ["backbone", "classifier"]
    assert "projector" in names
    assert any(key.startswith("backbone.") for key in model.state_dict())
    assert not any(key.startswith("encoder.") for key in model.state_dict())
    if name in MOMENTUM_PARENTS:
        pairs = model.momentum_pairs
        assert pairs[0] == (model.backbone, model.momentum_backbone)
        assert pairs[1] == (model.projector, model.momentum_projector)
        assert "feats" in model.momentum_forward(batch_of(cfg)[1][0])


@pytest.mark.parametrize("name", PARENTS)
def test_the_parents_training_step_hands_on_every_output(config, name):
    cfg = config(name)
    model = untrained(name, cfg)
    base = BaseMomentumMethod if name in MOMENTUM_PARENTS else BaseMethod
    out = base.training_step(model, batch_of(cfg), 0)
    assert out["loss"].ndim == 0
    for key in ("logits", "feats", "z"):
        assert len(out[key]) == 2, key
    if name in MOMENTUM_PARENTS:
        assert len(out["momentum_feats"]) == 2
        assert not out["momentum_feats"][0].requires_grad


@pytest.mark.parametrize("name", ["simclr", "byol", "mocov3"])
def test_the_training_loss_is_that_of_the_formula(config, name):
    cfg = config(name)
    model = untrained(name, cfg).double()
    indexes, views, targets = batch_of(cfg)
    views = [view.double() for view in views]
    loss = model.training_step([indexes, views, targets], 0)

    outs = [untrained(name, cfg).double()(view) for view in views]
    expected = sum(torch.nn.functional.cross_entropy(o["logits"], targets) for o in outs) / 2
    if name == "simclr":
        z = torch.cat([out["z"] for out in outs])
        expected += naive_simclr(z, indexes.repeat(2), 0.2)
    else:
        momentum = [untrained(name, cfg).double().momentum_forward(view) for view in views]
        if name == "byol":
            expected += naive_byol(outs[0]["p"], momentum[1]["z"])
            expected += naive_byol(outs[1]["p"], momentum[0]["z"])
        else:
            expected += naive_mocov3(outs[0]["q"], momentum[1]["k"], 0.2)
            expected += naive_mocov3(outs[1]["q"], momentum[0]["k"], 0.2)
    assert loss.item() == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("name", ["simclr", "byol"])
def test_small_crops_take_part(config, raw_config, view, name):
    cfg = raw_config(name)
    cfg.augmentations = [view(16, 2), view(8, 3)]
    cfg = parse_cfg(cfg)
    assert (cfg.data.num_large_crops, cfg.data.num_small_crops) == (2, 3)
    model = untrained(name, cfg).double()
    indexes, views, targets = batch_of(cfg)
    loss = model.training_step([indexes, [v.double() for v in views], targets], 0)

    fresh = untrained(name, cfg).double()
    outs = [fresh(v.double()) for v in views[:2]]
    outs += [fresh.multicrop_forward(v.double()) for v in views[2:]]
    expected = sum(torch.nn.functional.cross_entropy(o["logits"], targets) for o in outs[:2]) / 2
    if name == "simclr":
        z = torch.cat([out["z"] for out in outs])
        # With several positives, their probabilities add up.
        expected += naive_simclr(z, indexes.repeat(5), 0.2)
    else:
        keys = [fresh.momentum_forward(v.double())["z"] for v in views[:2]]
        for i, key in enumerate(keys):
            expected += sum(naive_byol(o["p"], key) for j, o in enumerate(outs) if i != j)
    assert loss.item() == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_residual_networks_lose_their_classifier(config, name):
    cfg = config("mocov3", f"backbone.name={name}")
    model = untrained("mocov3", cfg)
    assert model.features_dim == {"resnet18": 512, "resnet50": 2048}[name]
    assert isinstance(model.backbone.fc, torch.nn.Identity)
    assert model.backbone.conv1.kernel_size == (7, 7)
    cfg.data.dataset = "cifar10"
    assert build_backbone(cfg).conv1.kernel_size == (3, 3)


def test_a_missing_setting_is_named(config, raw_config):
    cfg = config("mocov3")
    cfg.method_kwargs.temperature = "???"
    with pytest.raises(Exception, match="temperature"):
        MoCoV3(cfg)
