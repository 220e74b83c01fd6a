"""The paper's protocol as options: one direction, normalised heads, the loss's factor, ViTs."""

import pytest
import torch
from method_parents import needs
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS
from torch import nn

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    distance_polarization_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_margin_loss_func,
)

MARGINS = Margins(positive_scale=3.0, curvature=1.5, angular=0.1)
WITH_MARGINS = [
    "method_kwargs.margins.positive_scale=3",
    "method_kwargs.margins.curvature=1.5",
    "method_kwargs.margins.angular=0.1",
]


@pytest.fixture
def method(config, device):
    """A method in float64 that logs into a dictionary, and a batch of two views."""

    def make(name, *overrides):
        torch.manual_seed(0)
        model = METHODS[name](config(name, *overrides)).double().to(device)
        model.logged = {}
        model.log_dict = lambda values, **_: model.logged.update(values)
        model.log = lambda key, value, **_: model.logged.update({key: value})
        views = [torch.randn(8, 3, 16, 16, dtype=torch.float64).to(device) for _ in range(2)]
        numbers = torch.arange(8, device=device)
        return model, [numbers, views, numbers % 3]

    return make


def images_seen_by(network):
    """Return a list that grows by every batch of images that a network sees."""
    seen = []
    network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    return seen


@pytest.mark.parametrize("name", ["mocov3_margin", "byol_curv"])
def test_one_direction_shows_each_network_its_own_view_once(method, name):
    model, batch = method(name, "method_kwargs.symmetric=false")
    student, teacher = images_seen_by(model.backbone), images_seen_by(model.momentum_backbone)
    model.training_step(batch, 0).backward()
    strong, weak = batch[1]
    assert len(student) == len(teacher) == 1
    assert torch.equal(student[0], strong)
    assert torch.equal(teacher[0], weak)


@pytest.mark.parametrize("name", ["mocov3_margin", "byol_curv"])
def test_one_direction_is_the_loss_of_the_strong_view(method, name):
    model, batch = method(name, "method_kwargs.symmetric=false", *WITH_MARGINS)
    loss = model.training_step(batch, 0)
    strong, weak = batch[1]
    student, teacher = model(strong), model.momentum_forward(weak)
    if name == "byol_curv":
        expected = byol_curv_loss_func(student["p"], teacher["z"], MARGINS)
        logged = model.logged["train_neg_cos_sim"]
    else:
        expected = mocov3_margin_loss_func(student["q"], teacher["k"], 0.2, MARGINS)
        logged = model.logged["train_contrastive_loss"]
    assert logged.item() == pytest.approx(expected.item())
    assert loss.item() == pytest.approx((expected + model.logged["train_class_loss"]).item())


def test_one_direction_watches_both_classifiers_and_neighbours(method):
    settings = ["method_kwargs.symmetric=false", "momentum.classifier=true"]
    model, batch = method("mocov3_margin", *settings, "knn_eval.enabled=true")
    batch[2][:3] = -1  # unlabelled
    loss = model.training_step(batch, 0)
    names = ("train_contrastive_loss", "train_class_loss", "train_momentum_class_loss")
    assert loss.item() == pytest.approx(sum(model.logged[name].item() for name in names))
    assert {"train_acc1", "train_momentum_acc5"} <= model.logged.keys()
    assert len(torch.cat(model.knn.train_targets)) == 5


def test_one_direction_needs_two_views(config, raw_config, view):
    cfg = raw_config("mocov3_margin", "method_kwargs.symmetric=false")
    cfg.augmentations = [view(), view(crop_size=8, num_crops=2)]
    with pytest.raises(ValueError, match="one strong with one weak view, but augmentations make 4"):
        METHODS["mocov3_margin"](parse_pretrain_cfg(cfg))


def test_the_factor_of_mocov3_can_be_switched_off(method):
    with_factor, batch = method("mocov3_margin", *WITH_MARGINS)
    without, _ = method("mocov3_margin", *WITH_MARGINS, "method_kwargs.scale_by_temperature=false")
    with_factor.training_step(batch, 0)
    without.training_step(batch, 0)
    ratio = with_factor.logged["train_contrastive_loss"] / without.logged["train_contrastive_loss"]
    assert ratio.item() == pytest.approx(2 * with_factor.temperature)


@pytest.mark.parametrize("name", ["simclr_margin", "mocov2plus_margin", "supcon_margin"])
def test_heads_can_be_normalised_before_relu(method, name):
    queue = needs(name)
    plain, _ = method(name, *queue)
    model, batch = method(name, *queue, "method_kwargs.proj_batch_norm=true")
    kinds = [type(layer) for layer in model.projector]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    assert [type(layer) for layer in plain.projector] == [nn.Linear, nn.ReLU, nn.Linear]
    trained = {id(p) for group in model.learnable_params for p in group["params"]}
    assert {id(p) for p in model.projector.parameters()} <= trained
    if hasattr(model, "momentum_projector"):
        assert [type(layer) for layer in model.momentum_projector] == kinds
        assert not any(p.requires_grad for p in model.momentum_projector.parameters())
        assert all(
            map(torch.equal, model.projector.parameters(), model.momentum_projector.parameters())
        )
    model.training_step(batch, 0).backward()
    assert model.projector[1].weight.grad is not None


def test_the_head_of_simclr_can_end_in_batch_normalisation(train, tmp_path):
    """As SimCLR's own does on ImageNet: scaled, but not shifted."""
    options = ("method_kwargs.proj_batch_norm=true", "method_kwargs.proj_last_batch_norm=true")
    model, trainer = train("simclr_margin", *options)
    kinds = [type(layer) for layer in model.projector]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear, nn.BatchNorm1d]
    last = model.projector[-1]
    assert last.num_batches_tracked == 2 * trainer.global_step > 0
    assert not torch.equal(last.weight, torch.ones_like(last.weight))
    assert torch.equal(last.bias, torch.zeros_like(last.bias))
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    _, again = train("simclr_margin", *options, start=tmp_path / "three.ckpt", max_epochs=2)
    assert again.global_step == 6


@pytest.mark.repository
def test_a_vit_can_keep_its_random_patches(method):
    vit = ["backbone.name=vit_tiny", "backbone.kwargs={img_size: 16, patch_size: 8}"]
    model, batch = method("mocov3_margin", *vit, "method_kwargs.freeze_patch_embedding=true")
    model.training_step(batch, 0).backward()
    assert all(p.grad is None for p in model.backbone.patch_embed.parameters())
    assert model.backbone.blocks[0].attn.qkv.weight.grad is not None


NEGATIVES = {
    "standard": {},
    "debiased": {"tau_plus": 0.3},
    "hard": {"tau_plus": 0.3, "beta": 0.7},
    "gaussian": {"mean": 0.2, "width": 0.4},
}


def contrastive_loss_of(name, model, batch, queues, weights):
    """Return the contrastive loss of a step of a method from its outputs for two views."""
    out = [model(images) for images in batch[1]]
    z = [view["z"] for view in out]
    settings = (0.2, MARGINS)
    if name == "simclr_margin":
        return simclr_margin_loss_func(torch.cat(z), batch[0].repeat(2), *settings, **weights)
    if name == "mocov3_margin":
        keys = [model.momentum_forward(images)["k"] for images in batch[1]]
        pairs = ((out[0]["q"], keys[1]), (out[1]["q"], keys[0]))
        return sum(mocov3_margin_loss_func(q, k, *settings, **weights) for q, k in pairs)
    if name == "mocov2plus_margin":
        keys = [model.momentum_forward(images)["z"] for images in batch[1]]
        losses = [
            mocov2plus_margin_loss_func(z[i], keys[1 - i], queues[1 - i], *settings, **weights)
            for i in (0, 1)
        ]
        return sum(losses) / 2
    unit = torch.nn.functional.normalize
    neighbours = [queues[(unit(view, dim=1) @ queues.t()).argmax(dim=1)] for view in z]
    losses = [
        nnclr_margin_loss_func(neighbours[i], out[1 - i]["p"], *settings, **weights) for i in (0, 1)
    ]
    return sum(losses) / 2


LOGGED = {
    "simclr_margin": "train_nce_loss",
    "mocov3_margin": "train_contrastive_loss",
    "mocov2plus_margin": "train_nce_loss",
    "nnclr_margin": "train_nnclr_loss",
}


@pytest.mark.parametrize("kind", NEGATIVES)
@pytest.mark.parametrize("name", LOGGED)
def test_negatives(method, name, kind):
    wanted = [f"method_kwargs.negatives.{key}={value}" for key, value in NEGATIVES[kind].items()]
    wanted += [f"method_kwargs.negatives.kind={kind}", *WITH_MARGINS]
    model, batch = method(name, *needs(name), *wanted)
    queues = model.queue.clone() if hasattr(model, "queue") else None
    model.training_step(batch, 0)
    expected = contrastive_loss_of(name, model, batch, queues, NEGATIVES[kind])
    assert model.logged[LOGGED[name]].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("one_way", ["false", "true"])
def test_polarization_is_added_to_what_the_student_sees(method, one_way):
    symmetric = "false" if one_way == "true" else "true"
    band = "method_kwargs.polarization={weight: 3, lower: 0.05, upper: 0.6}"
    model, batch = method("mocov3_margin", f"method_kwargs.symmetric={symmetric}", band)
    plain, _ = method("mocov3_margin", f"method_kwargs.symmetric={symmetric}")
    model.trainer = type("OneProcess", (), {"world_size": 1})()
    loss, without = model.training_step(batch, 0), plain.training_step(batch, 0)
    views = batch[1][:1] if one_way == "true" else batch[1]
    z = torch.cat([plain(images)["z"] for images in views])
    penalty = distance_polarization_loss_func(z, 0.05, 0.6)
    assert penalty > 0
    assert model.logged["train_polarization_loss"].item() == pytest.approx(penalty.item())
    assert (loss - without).item() == pytest.approx(3 * penalty.item())
    unit = nn.functional.normalize(z, dim=1)
    distance = (1 - unit @ unit.T) / 2
    inside = (distance > 0.05) & (distance < 0.6)
    count = inside.fill_diagonal_(False).sum().item()
    assert model.logged["train_pairs_in_band"].item() == count > 0


def test_every_method_can_be_polarized(train, largest_difference, any_method):
    settings = needs(any_method)
    band = "method_kwargs.polarization={weight: 5, lower: 0.05, upper: 0.9}"
    polarized, trainer = train(any_method, *settings, band)
    assert trainer.callback_metrics["train_pairs_in_band"] > 0
    assert largest_difference(polarized, train(any_method, *settings)[0]) > 1e-7
