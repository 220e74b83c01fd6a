"""Methods have one interface in both versions, train, and have the losses of their formulas."""

import math
from itertools import pairwise

import pytest
import torch
from host_internals import (
    BaseMomentumMethod,
    byol_loss_func,
    mocov3_loss_func,
    needs_the_repository,
    simclr_loss_func,
)

from solo_margins import host

METHODS = ["simclr", "byol", "mocov3", "simclr_margin", "byol_curv", "mocov3_margin"]
MOMENTUM_METHODS = [name for name in METHODS if "simclr" not in name]


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
    model = host.METHODS[name](cfg)
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


@pytest.mark.parametrize("name", METHODS)
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
    if name in MOMENTUM_METHODS:
        pairs = model.momentum_pairs
        assert pairs[0] == (model.backbone, model.momentum_backbone)
        assert pairs[1] == (model.projector, model.momentum_projector)
        assert "feats" in model.momentum_forward(batch_of(cfg)[1][0])


@pytest.mark.parametrize("name", METHODS)
def test_the_parents_training_step_hands_on_every_output(config, name):
    cfg = config(name, "momentum.classifier=true")
    model = untrained(name, cfg)
    base = BaseMomentumMethod if name in MOMENTUM_METHODS else host.BaseMethod
    out = base.training_step(model, batch_of(cfg), 0)
    assert out["loss"].ndim == 0
    for key in ("logits", "feats", "z"):
        assert len(out[key]) == 2, key
    if name in MOMENTUM_METHODS:
        assert len(out["momentum_feats"]) == 2
        assert not out["momentum_feats"][0].requires_grad
        assert {"momentum_loss", "momentum_acc1", "momentum_acc5"} <= out.keys()


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
    cfg = host.parse_pretrain_cfg(cfg)
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


@pytest.mark.parametrize("accumulate", [1, 2])
def test_momentum_and_tau_follow_their_formulas(config, loaders, trainer, accumulate):
    cfg = config("mocov3", f"accumulate_grad_batches={accumulate}", "max_epochs=2")
    model = host.MoCoV3(cfg)
    history = []

    class Watch(host.pl.Callback):
        def on_before_zero_grad(self, trainer, module, optimizer):
            history.append((trainer.global_step, _weights(module), None))

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            history.append((trainer.global_step, _weights(module), "end"))

    def _weights(module):
        return [
            p.detach().double().clone()
            for p in (
                module.backbone.convolution.weight,
                module.momentum_backbone.convolution.weight,
                module.projector[0].weight,
                module.momentum_projector[0].weight,
            )
        ]

    train, _ = loaders(cfg)
    run = trainer(cfg, [Watch()], limit_train_batches=4, accumulate_grad_batches=accumulate)
    run.fit(model, train)
    total = 8 // accumulate
    assert run.global_step == total
    # Lightning calls the callback's hook before the module's: each state is the one before the
    # module's own update, and the next state is the one after it.
    ends = [(step, weights) for step, weights, kind in history if kind == "end"]
    ends.append((total, _weights(model)))
    previous_step = 0
    for (step, before), (_, after) in pairwise(ends):
        tau = 1.0 - 0.1 * (math.cos(math.pi * (step - 1) / total) + 1) / 2
        for online, momentum in ((0, 1), (2, 3)):
            expected = before[momentum]
            if step > previous_step:
                expected = tau * before[momentum] + (1 - tau) * before[online]
            torch.testing.assert_close(after[momentum], expected, rtol=1e-5, atol=1e-6)
        previous_step = step
    assert model.momentum_updater.cur_tau == pytest.approx(1.0)


@pytest.mark.parametrize("name", METHODS)
def test_a_trainer_trains_validates_and_logs(config, loaders, trainer, name):
    cfg = config(name, "knn_eval.enabled=true", "knn_eval.k=5", "momentum.classifier=true")
    model = host.METHODS[name](cfg)
    before = model.backbone.convolution.weight.detach().clone()
    run = trainer(cfg, limit_train_batches=3)
    run.fit(model, *loaders(cfg))
    assert not torch.equal(before, model.backbone.convolution.weight)
    expected = {"train_class_loss_epoch", "train_acc1_epoch", "val_loss", "val_acc1", "val_acc5"}
    expected |= {"val_knn_acc1", "val_knn_acc5"}
    expected |= {"train_nce_loss_epoch"} if "simclr" in name else {"tau", "momentum_val_acc5"}
    assert expected <= run.callback_metrics.keys()
    # Three classes: the fifth rank does not exist, the third is always right.
    assert run.callback_metrics["val_acc5"].item() == pytest.approx(100)
    assert 0 <= run.callback_metrics["val_knn_acc1"].item() <= 100


def test_unlabelled_images_neither_teach_nor_count(config):
    method = host.SimCLR(config("simclr"))
    images, targets = torch.randn(4, 3, 16, 16), torch.tensor([0, -1, 1, -1])
    out = method.base_training_step(images, targets)
    logits = out["logits"]
    expected = torch.nn.functional.cross_entropy(logits[::2], targets[::2])
    torch.testing.assert_close(out["loss"], expected)
    hits = (logits[::2].argmax(1) == targets[::2]).float().mean() * 100
    torch.testing.assert_close(out["acc1"].squeeze(), hits)
    nothing = method.base_training_step(images, torch.full((4,), -1))
    assert nothing["acc1"] == nothing["loss"] == 0


def test_images_without_labels_leave_the_classifier_sound(config, loaders, trainer, image_folder):
    flat = image_folder / "flat"
    cfg = config("mocov3", f"data.train_path={flat}", "data.no_labels=true", "data.val_path=null")
    assert cfg.data.num_classes == 1
    model = host.MoCoV3(cfg)
    run = trainer(cfg)
    run.fit(model, loaders(cfg)[0])
    assert run.global_step > 0
    assert all(torch.isfinite(p).all() for p in model.parameters())


@needs_the_repository
@pytest.mark.parametrize("name", ["mocov3", "mocov3_margin"])
def test_mocov3_and_its_margin_method_train_the_vit_of_mocov3(config, name):
    cfg = config(
        name,
        "backbone.name=vit_tiny",
        "backbone.kwargs.img_size=16",
        "backbone.kwargs.patch_size=8",
    )
    model = untrained(name, cfg)
    vit = model.backbone
    assert vit.blocks[0].attn.num_heads == 12
    assert not vit.pos_embed.requires_grad
    expected = naive_sincos(2, 2, 192)
    torch.testing.assert_close(vit.pos_embed[0, 1:], expected, atol=1e-5, rtol=1e-5)
    assert vit.pos_embed[0, 0].abs().max() == 0
    qkv = vit.blocks[0].attn.qkv.weight
    bound = math.sqrt(6 / (192 + 192))
    assert 0.98 * bound < qkv.abs().max().item() <= bound
    assert len([m for m in model.projector if isinstance(m, torch.nn.Linear)]) == 3
    loss = model.training_step(batch_of(cfg), 0)
    assert torch.isfinite(loss)
    # The linear program names the method in another place.
    cfg.pretrain_method, cfg.method = cfg.method, "linear"
    assert host.build_backbone(cfg).blocks[0].attn.num_heads == 12


def naive_sincos(rows, columns, dim):
    quarter = dim // 4
    table = []
    for column in range(columns):
        for row in range(rows):
            angles = [[x / 10000 ** (i / quarter) for i in range(quarter)] for x in (column, row)]
            table.append(
                [f(angle) for half in angles for f in (math.sin, math.cos) for angle in half]
            )
    return torch.tensor(table)


def test_other_methods_get_a_plain_vit(config):
    cfg = config(
        "simclr",
        "backbone.name=vit_tiny",
        "backbone.kwargs.img_size=16",
        "backbone.kwargs.patch_size=8",
    )
    assert untrained("simclr", cfg).backbone.pos_embed.requires_grad


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_residual_networks_lose_their_classifier(config, name):
    cfg = config("mocov3", f"backbone.name={name}")
    model = untrained("mocov3", cfg)
    assert model.features_dim == {"resnet18": 512, "resnet50": 2048}[name]
    assert isinstance(model.backbone.fc, torch.nn.Identity)
    assert model.backbone.conv1.kernel_size == (7, 7)
    cfg.data.dataset = "cifar10"
    assert host.build_backbone(cfg).conv1.kernel_size == (3, 3)


def test_training_resumes_where_it_stopped(config, loaders, trainer, tmp_path):
    cfg = config("mocov3", "max_epochs=3", "optimizer.lr=0.01")
    seen = []

    class Watch(host.pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            rate = trainer.optimizers[0].param_groups[0]["lr"]
            seen.append((trainer.global_step, rate, module.momentum_updater.cur_tau))

        def on_train_epoch_end(self, trainer, module):
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "second.ckpt")

    settings = {"limit_train_batches": 2, "limit_val_batches": 0}
    trainer(cfg, [Watch()], **settings).fit(host.MoCoV3(cfg), *loaders(cfg))
    uninterrupted, seen[:] = list(seen), []
    again = trainer(cfg, [Watch()], **settings)
    again.fit(host.MoCoV3(cfg), *loaders(cfg), ckpt_path=tmp_path / "second.ckpt")
    assert len(seen) == 2
    for resumed, original in zip(seen, uninterrupted[-2:], strict=True):
        assert resumed == pytest.approx(original)
    assert seen[0][0] == 4


def test_a_missing_setting_is_named(config, raw_config):
    cfg = config("mocov3")
    cfg.method_kwargs.temperature = "???"
    with pytest.raises(Exception, match="temperature"):
        host.MoCoV3(cfg)
