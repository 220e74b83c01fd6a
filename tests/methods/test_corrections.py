"""What our base classes override of solo-learn's: each test fails with solo-learn's own."""

import copy
import math

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from hydra.errors import CompactHydraException
from method_parents import needs
from solo.methods import METHODS
from solo.methods.base import BaseMethod
from solo.utils.momentum import MomentumUpdater
from torch import nn

from solo_margins.backbones import build_backbone
from solo_margins.methods.corrected import CheckpointRefused, TeacherUpdater


class Watch(pl.Callback):
    """Notes the rates and tau that every step begins with, and saves a checkpoint an epoch."""

    def __init__(self, folder=None):
        self.folder = folder
        self.rates, self.taus, self.memories = [], [], []

    def on_train_epoch_start(self, trainer, pl_module):
        if hasattr(pl_module, "local_memory_index"):
            memory = (
                pl_module.local_memory_index,
                pl_module.local_memory_embeddings,
                # Those of the epoch before.
                getattr(pl_module, "assignments", torch.zeros(0)),
            )
            self.memories.append([part.clone() for part in memory])

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        groups = trainer.optimizers[0].param_groups
        self.rates.append({group["name"]: group["lr"] for group in groups})
        if hasattr(pl_module, "momentum_updater"):
            self.taus.append(pl_module.momentum_updater.cur_tau)

    def on_train_epoch_end(self, trainer, pl_module):
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"{trainer.current_epoch}.ckpt")


# Labels


@pytest.mark.parametrize("name", ["simclr_margin", "byol_curv", "mocov3_margin"])
def test_few_classes_are_validated_by_classifiers_and_neighbours(config, loaders, trainer, name):
    cfg = config(name, "knn_eval.enabled=true", "knn_eval.k=5", "momentum.classifier=true")
    model = METHODS[name](cfg)
    assert model.cfg.knn_eval.enabled is True
    run = trainer(cfg, limit_train_batches=3)
    run.fit(model, *loaders(cfg))
    metrics = run.callback_metrics
    expected = {
        "train_class_loss_epoch",
        "train_acc1_epoch",
        "val_loss",
        "val_acc1",
        "val_knn_acc5",
    }
    if name != "simclr_margin":
        expected |= {"tau", "momentum_val_acc5", "train_momentum_acc1_epoch"}
    assert expected <= metrics.keys()
    # Three classes: the fifth rank does not exist, the third is always right.
    assert metrics["val_acc5"].item() == pytest.approx(100)
    assert 0 <= metrics["val_knn_acc1"].item() <= 100


@pytest.mark.parametrize("step", ["_base_shared_step", "_shared_step_momentum"])
def test_unlabelled_images_neither_teach_nor_count(config, device, step):
    method = METHODS["byol_curv"](config("byol_curv", "momentum.classifier=true")).to(device)
    classifier = {
        "_base_shared_step": method.classifier,
        "_shared_step_momentum": method.momentum_classifier,
    }[step]
    images = torch.randn(4, 3, 16, 16, device=device)
    targets = torch.tensor([0, -1, 1, -1], device=device)
    out = getattr(method, step)(images, targets)
    logits = out["logits"]
    torch.testing.assert_close(out["loss"], F.cross_entropy(logits[::2], targets[::2]))
    hits = (logits[::2].argmax(1) == targets[::2]).float().mean() * 100
    torch.testing.assert_close(out["acc1"].squeeze(), hits)
    assert out["acc5"].item() == pytest.approx(100)

    nothing = getattr(method, step)(images, torch.full_like(targets, -1))
    assert nothing["acc1"].item() == nothing["loss"].item() == 0
    method.zero_grad()
    nothing["loss"].backward()
    assert (classifier.weight.grad == 0).all()


def test_images_without_labels_leave_the_classifier_sound(config, loaders, trainer, image_folder):
    folder = f"data.train_path={image_folder / 'flat'}"
    cfg = config("mocov3_margin", folder, "data.no_labels=true", "data.val_path=null")
    assert cfg.data.num_classes == 1
    model = METHODS["mocov3_margin"](cfg)
    run = trainer(cfg)
    run.fit(model, loaders(cfg)[0])
    assert run.global_step > 0
    assert all(torch.isfinite(p).all() for p in model.parameters())


# Learning rates


def closed_form(step, base, start, warmup, total):
    if step < warmup:
        return start + (base - start) * (step / (warmup - 1) if warmup > 1 else 0)
    progress = (step - warmup) / (total - warmup)
    return base * 0.5 * (1 + math.cos(math.pi * progress))


@pytest.mark.parametrize("warmup", [0, 1 / 3, 1])
def test_the_online_classifier_keeps_its_own_rate(config, loaders, trainer, warmup):
    """Also after a warm-up of no epoch, or of one step."""
    settings = [f"scheduler.warmup_epochs={warmup}", "max_epochs=2", "scheduler.min_lr=0.0"]
    cfg = config("simclr_margin", *settings)
    watch = Watch()
    run = trainer(cfg, [watch], limit_train_batches=3, limit_val_batches=0)
    run.fit(METHODS["simclr_margin"](cfg), loaders(cfg)[0])
    assert len(watch.rates) == 6
    bases = {"backbone": cfg.optimizer.lr, "classifier": cfg.optimizer.classifier_lr}
    for step, seen in enumerate(watch.rates):
        for name, base in bases.items():
            expected = closed_form(step, base, cfg.scheduler.warmup_start_lr, 3 * warmup, 6)
            assert seen[name] == pytest.approx(expected), (name, step)


@pytest.mark.parametrize(("name", "divisor"), [("step", 10), ("none", 1)])
def test_other_schedules_take_steps(config, loaders, trainer, name, divisor):
    schedule = [f"scheduler.name={name}", "scheduler.lr_decay_steps=[1]"]
    cfg = config("simclr_margin", "max_epochs=2", *schedule)
    run = trainer(cfg, limit_train_batches=1, limit_val_batches=0)
    run.fit(METHODS["simclr_margin"](cfg), *loaders(cfg))
    rate = run.optimizers[0].param_groups[0]["lr"]
    assert rate == pytest.approx(cfg.optimizer.lr / divisor)


def test_accumulated_batches_scale_the_rates(config, loaders, trainer):
    cfg = config("simclr_margin", "accumulate_grad_batches=2", "scheduler.name=none")
    run = trainer(cfg, limit_train_batches=2, accumulate_grad_batches=2, max_epochs=1)
    run.fit(METHODS["simclr_margin"](cfg), loaders(cfg)[0])
    rates = {group["name"]: group["lr"] for group in run.optimizers[0].param_groups}
    assert rates["backbone"] == pytest.approx(2 * cfg.optimizer.lr)
    assert rates["classifier"] == pytest.approx(2 * cfg.optimizer.classifier_lr)


@pytest.mark.repository
def test_biases_and_norms_can_be_kept_from_weight_decay(config, loaders, trainer):
    cfg = config("simclr_margin", "optimizer.exclude_bias_n_norm_wd=true", "scheduler.name=none")
    run = trainer(cfg, limit_train_batches=1, limit_val_batches=0, max_epochs=1)
    run.fit(METHODS["simclr_margin"](cfg), loaders(cfg)[0])
    for group in run.optimizers[0].param_groups:
        if any(parameter.ndim == 1 for parameter in group["params"]):
            assert group["weight_decay"] == 0


@pytest.mark.repository
@pytest.mark.parametrize("schedule", ["warmup_cosine", "step"])
def test_rates_that_are_not_scheduled_are_plain_data(config, loaders, trainer, tmp_path, schedule):
    settings = [f"scheduler.name={schedule}", "scheduler.lr_decay_steps=[1]", "optimizer.lr=0.01"]

    def train(epochs, checkpoint=None):
        cfg = config("simsiam_curv", f"max_epochs={epochs}", *settings)
        run = trainer(cfg, limit_train_batches=2, limit_val_batches=0)
        run.fit(METHODS["simsiam_curv"](cfg), loaders(cfg)[0], ckpt_path=checkpoint)
        *scheduled, predictor = run.optimizers[0].param_groups
        assert predictor["lr"] == pytest.approx(cfg.optimizer.lr)
        assert all(group["lr"] < cfg.optimizer.lr / 2 for group in scheduled[:1])
        return run

    train(2).save_checkpoint(tmp_path / "simsiam.ckpt")
    torch.load(tmp_path / "simsiam.ckpt", weights_only=True)
    assert train(3, tmp_path / "simsiam.ckpt").global_step == 6


# Teachers


def test_a_teacher_moves_as_solo_learns(device):
    torch.manual_seed(0)
    student, teacher = nn.Linear(5, 4, device=device), nn.Linear(5, 4, device=device)
    other = copy.deepcopy(teacher)
    parameters = list(teacher.parameters())
    ours, theirs = TeacherUpdater(0.9, 1.0), MomentumUpdater(0.9, 1.0)
    for step in range(3):
        for updater, network in ((ours, teacher), (theirs, other)):
            updater.update(student, network)
            updater.update_tau(cur_step=step, max_steps=3)
    for weight, expected in zip(teacher.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight, expected)
    assert all(a is b for a, b in zip(parameters, teacher.parameters(), strict=True))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_teachers_and_tau_follow_their_formulas(config, loaders, trainer, accumulate):
    cfg = config("mocov3_margin", f"accumulate_grad_batches={accumulate}", "max_epochs=2")
    model = METHODS["mocov3_margin"](cfg)
    before, after = [], []

    def weights():
        pairs = [pair for pair in model.momentum_pairs for pair in pair]
        return [next(network.parameters()).detach().double().clone() for network in pairs]

    class Watching(type(model)):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            before.append((self.trainer.global_step, weights()))
            super().on_train_batch_end(outputs, batch, batch_idx)
            after.append(weights())

    model.__class__ = Watching
    run = trainer(cfg, limit_train_batches=4, accumulate_grad_batches=accumulate)
    run.fit(model, loaders(cfg)[0])
    total = 8 // accumulate
    assert run.global_step == total
    last_step = 0
    for (step, old), new in zip(before, after, strict=True):
        tau = 1.0 - 0.1 * (math.cos(math.pi * (step - 1) / total) + 1) / 2
        for student, teacher in ((0, 1), (2, 3)):
            expected = old[teacher]
            if step > last_step:
                expected = tau * old[teacher] + (1 - tau) * old[student]
            torch.testing.assert_close(new[teacher], expected, rtol=1e-5, atol=1e-6)
        last_step = step
    assert model.momentum_updater.cur_tau == pytest.approx(1.0)


# Backbones


@pytest.mark.repository
def test_mocov3_margin_trains_the_vit_of_mocov3(config):
    small = ["backbone.kwargs.img_size=16", "backbone.kwargs.patch_size=8"]
    settings = ["backbone.name=vit_tiny", *small]
    model = METHODS["mocov3_margin"](config("mocov3_margin", *settings))
    parent = METHODS["mocov3"](config("mocov3", *settings))
    for network in (model.backbone, model.momentum_backbone):
        assert type(network) is type(parent.backbone)
        assert network.blocks[0].attn.num_heads == parent.backbone.blocks[0].attn.num_heads == 12
        assert not network.pos_embed.requires_grad
    assert model.state_dict().keys() == parent.state_dict().keys()
    # Other methods train the ordinary one, and solo-learn's table is as it was.
    other = METHODS["simclr_margin"](config("simclr_margin", *settings))
    assert other.backbone.pos_embed.requires_grad
    assert BaseMethod._BACKBONES["vit_tiny"].__module__.startswith("solo.")


@pytest.mark.repository
@pytest.mark.parametrize(
    ("parent", "heads"), [("mocov3_margin", 12), ("mocov3", 3), ("simclr_margin", 3)]
)
def test_a_vit_is_built_again_as_its_method_trains_it(config, monkeypatch, parent, heads):
    """Whatever the method is called that somebody has derived."""
    derived = type("Derived", (METHODS[parent],), {})
    small = ["backbone.kwargs.img_size=16", "backbone.kwargs.patch_size=8"]
    cfg = config(parent, "backbone.name=vit_tiny", *small)
    cfg.method = "derived"
    with pytest.raises(ValueError, match=r"method=derived, .*pretrain_method=mocov3"):
        build_backbone(cfg)
    assert build_backbone(cfg, derived).blocks[0].attn.num_heads == heads
    monkeypatch.setitem(METHODS, "derived", derived)
    assert derived(cfg).backbone.blocks[0].attn.num_heads == heads
    assert build_backbone(cfg).blocks[0].attn.num_heads == heads


@pytest.mark.parametrize("method", ["dino", "VICReg", "supcon_margin", "simsiam_margin", None])
def test_a_vit_of_any_method_of_ours_or_of_solo_learn_is_built(config, method):
    """Also where this solo-learn has no such method."""
    small = ["backbone.kwargs.img_size=16", "backbone.kwargs.patch_size=8"]
    cfg = config("simclr_margin", "backbone.name=vit_tiny", *small)
    cfg.method = method
    assert build_backbone(cfg).blocks[0].attn.num_heads == 3


def test_a_backbone_of_timm_is_added_when_it_is_used(config):
    table = BaseMethod._BACKBONES
    table.pop("timm/resnet10t", None)
    model = METHODS["mocov3_margin"](config("mocov3_margin", "backbone.name=timm/resnet10t"))
    assert type(model.backbone).__module__.startswith("timm.")
    assert BaseMethod._BACKBONES is table
    assert "timm/resnet10t" in table
    with pytest.raises(ValueError, match="did you mean"):
        METHODS["mocov3_margin"](config("mocov3_margin", "backbone.name=timm/resnet10x"))


# Single methods


@pytest.mark.repository
@pytest.mark.parametrize("is_autocast", [True, False])
def test_whitening_in_half_precision_is_that_of_full_precision(config, device, is_autocast):
    """Features that bfloat16 holds exactly, as it does not hold their covariance."""
    settings = ["method_kwargs.whitening_size=8", "method_kwargs.proj_output_dim=2"]
    method = METHODS["wmse_curv"](config("wmse_curv", *settings)).to(device)
    large = torch.arange(-8.0, 8.0, device=device)
    small = torch.tensor([1.0, -1.0], device=device).repeat(8) / 16
    features = torch.stack([large, large + small], dim=1)
    half = features.bfloat16().requires_grad_()
    assert torch.equal(half.float(), features)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=is_autocast):
        white = method.whitened_group(half)
    assert white.dtype == torch.float32
    assert torch.equal(white, method.whitened_group(features))
    covariance = torch.cov(white.T.detach().double())
    torch.testing.assert_close(covariance.cpu(), torch.eye(2).double(), rtol=0, atol=0.01)
    white[:, 1].square().mean().backward()
    assert half.grad.isfinite().all()
    assert method.whitened_group(features.double()).dtype == torch.float64


@pytest.mark.repository
def test_deepcluster_is_resumed_with_its_memory(config, loaders, trainer, tmp_path, caplog):
    name = "deepclusterv2_margin"
    settings = [*needs(name), "max_epochs=3"]

    def train(batches, checkpoint=None):
        cfg = config(name, *settings)
        watch = Watch(tmp_path if checkpoint is None else None)
        run = trainer(cfg, [watch], limit_train_batches=batches, limit_val_batches=0)
        run.fit(METHODS[name](cfg), loaders(cfg)[0], ckpt_path=checkpoint)
        return watch.memories

    *_, whole = train(1.0)
    [resumed] = train(1.0, tmp_path / "1.ckpt")
    assert len(set(resumed[0].tolist())) > 8
    for part, expected in zip(resumed, whole, strict=True):
        assert torch.equal(part, expected)

    # Of other images there is no memory.
    state = torch.load(tmp_path / "1.ckpt", weights_only=True)
    memory = state["deepcluster_memory"]
    memory["local_memory_index"] = memory["local_memory_index"][:, :8]
    torch.save(state, tmp_path / "fewer.ckpt")
    [other] = train(1.0, tmp_path / "fewer.ckpt")
    assert len(other[0]) == len(whole[0])
    assert "is not restored" in caplog.text


# Runs


@pytest.mark.parametrize("name", ["mocov3_margin", "byol_curv"])
def test_a_resumed_run_goes_on_with_rates_and_tau(config, loaders, trainer, tmp_path, name):
    cfg = config(name, "max_epochs=3", "optimizer.lr=0.01")
    settings = {"limit_train_batches": 2, "limit_val_batches": 0}
    whole, resumed = Watch(tmp_path), Watch()
    trainer(cfg, [whole], **settings).fit(METHODS[name](cfg), loaders(cfg)[0])
    again = trainer(cfg, [resumed], **settings)
    again.fit(METHODS[name](cfg), loaders(cfg)[0], ckpt_path=tmp_path / "1.ckpt")
    assert resumed.rates == [pytest.approx(rates) for rates in whole.rates[-2:]]
    assert len(set(whole.taus)) == 6
    assert resumed.taus == pytest.approx(whole.taus[-2:])


@pytest.mark.parametrize(
    "change",
    [
        "seed=7",
        "method_kwargs.margins.angular=0.5",
        "method_kwargs.negatives.kind=hard",
        "method_kwargs.polarization.weight=1",
        "method_kwargs.schedules.positive_scale={to: 3, epochs: 1}",
    ],
)
def test_a_run_goes_on_with_its_own_loss_and_seed(
    train, config, loaders, trainer, tmp_path, change
):
    _, first = train("simclr_margin")
    start = tmp_path / "first.ckpt"
    first.save_checkpoint(start)
    with pytest.raises(CheckpointRefused, match=change.partition("=")[0]):
        train("simclr_margin", change, start=start, max_epochs=2)
    intended = [change, "resume_with_changes=true"]
    _, again = train("simclr_margin", *intended, start=start, max_epochs=2)
    assert again.global_step == 6
    # A validation reads its weights alone.
    cfg = config("simclr_margin", change)
    [metrics] = trainer(cfg).validate(METHODS["simclr_margin"](cfg), loaders(cfg)[1], start)
    assert metrics["val_loss"] > 0


@pytest.mark.parametrize("enabled", [True, False])
def test_a_method_brings_its_callbacks_into_any_trainer(
    config, loaders, trainer, tmp_path, enabled
):
    setting = f"lens={{enabled: {enabled}, every: 1}}"
    cfg = config("mocov3_margin", setting, "max_epochs=1")
    model = METHODS["mocov3_margin"](cfg)
    run = trainer(cfg, limit_train_batches=1, default_root_dir=tmp_path)
    for _ in range(2):
        run.fit(model, *loaders(cfg))
        names = [type(callback).__name__ for callback in run.callbacks]
        assert names.count("MarginRunCheck") == 1
        assert names.count("Lens") == enabled


@pytest.mark.parametrize(
    "override",
    ["method_kwargs.margins.angular=7", "backbone.name=timm/nothing", "lens.evry=3"],
)
def test_hydra_prints_a_wrong_setting_as_one_sentence(config, override):
    cfg = config("mocov3_margin", override)
    with pytest.raises(ValueError) as caught:
        METHODS["mocov3_margin"](cfg)
    assert isinstance(caught.value, CompactHydraException)


@pytest.mark.repository
def test_a_missing_setting_is_named(config):
    cfg = config("mocov3_margin")
    cfg.method_kwargs.temperature = "???"
    with pytest.raises(Exception, match="temperature"):
        METHODS["mocov3_margin"](cfg)
