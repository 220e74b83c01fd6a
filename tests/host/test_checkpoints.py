"""Checkpoints, auto-resume and linear evaluation on real files."""

import json
import os

import pytest
import torch
from host_forms import only_on_the_release
from omegaconf import OmegaConf

from solo_margins import host


def train(cfg, loaders, trainer, **settings):
    model = host.METHODS[cfg.method](cfg)
    checkpointer = host.Checkpointer(
        cfg,
        logdir=f"{cfg.checkpoint.dir}/{cfg.method}",
        frequency=cfg.checkpoint.frequency,
        keep_prev=cfg.checkpoint.keep_prev,
    )
    run = trainer(cfg, [checkpointer], limit_train_batches=1, limit_val_batches=0, **settings)
    run.fit(model, *loaders(cfg))
    return checkpointer


def resumer(cfg):
    return host.AutoResumer(f"{cfg.checkpoint.dir}/{cfg.method}", max_hours=1)


def test_a_run_keeps_its_last_epoch_and_its_configuration(config, loaders, trainer):
    cfg = config("mocov3_margin", "checkpoint.frequency=3", "max_epochs=6")
    checkpointer = train(cfg, loaders, trainer)
    [saved] = checkpointer.path.glob("*.ckpt")
    assert saved == checkpointer.last_ckpt
    state = torch.load(saved, weights_only=True)
    assert state["epoch"] == 5
    assert any(key.startswith("backbone.") for key in state["state_dict"])
    args = json.loads((checkpointer.path / "args.json").read_text())
    assert args["method"] == "mocov3_margin"
    assert args["wandb_run_id"] is None

    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    [override] = parser.OverridesParser.create().parse_overrides([f"path={saved.name}"])
    assert override.value() == saved.name, "the name must need no quotes on the command line"


@only_on_the_release
def test_previous_checkpoints_can_be_kept(config, loaders, trainer):
    cfg = config("simclr", "checkpoint.keep_prev=true", "max_epochs=3")
    checkpointer = train(cfg, loaders, trainer)
    assert len(list(checkpointer.path.glob("*.ckpt"))) == 3


@only_on_the_release
def test_runs_with_a_logger_have_folders_of_their_own(config, loaders, trainer, tmp_path):
    cfg = config("simclr", "max_epochs=1")
    folders = set()
    for index in range(2):
        logger = host.pl.loggers.CSVLogger(tmp_path / str(index))
        folders.add(train(cfg, loaders, trainer, logger=logger).path)
    assert len(folders) == 2


def test_auto_resume_finds_the_newest_checkpoint_of_this_run(config, loaders, trainer):
    settings = ("checkpoint.keep_prev=true", "max_epochs=2", "method_kwargs.margins.curvature=.inf")
    cfg = config("mocov3", *settings)
    checkpointer = train(cfg, loaders, trainer)
    again = config("mocov3", *settings)
    # The program constructs the method, which completes the configuration, before it looks.
    host.MoCoV3(again)
    found, run_id = resumer(again).find_checkpoint(again)
    assert found == checkpointer.last_ckpt
    assert run_id is None
    resumed = trainer(again, limit_train_batches=1, limit_val_batches=0, max_epochs=3)
    resumed.fit(host.MoCoV3(again), *loaders(again), ckpt_path=found)
    assert resumed.global_step == 3


@pytest.mark.parametrize(
    "difference",
    [
        "seed=6",
        "method_kwargs.margins.positive_scale=20",
        "method_kwargs.temperature=0.1",
        "momentum.base_tau=0.95",
        "optimizer.lr=0.25",
        "scheduler.warmup_epochs=0",
        "backbone.kwargs.width=8",
        "name=other",
    ],
)
def test_auto_resume_takes_no_other_run_for_its_own(config, loaders, trainer, difference):
    margins = "method_kwargs.margins.positive_scale=1"
    train(config("mocov3_margin", margins, "max_epochs=1"), loaders, trainer)
    other = config("mocov3_margin", margins, "max_epochs=1", difference)
    host.METHODS["mocov3_margin"](other)
    assert resumer(other).find_checkpoint(other) == (None, None)


@only_on_the_release
def test_auto_resume_survives_a_broken_run(config, loaders, trainer):
    cfg = config("simclr", "max_epochs=1")
    good = train(cfg, loaders, trainer)
    broken = good.path.parent / "broken"
    broken.mkdir()
    (broken / "x.ckpt").write_bytes(b"")
    (broken / "args.json").write_text("{")
    later = good.last_ckpt.stat().st_mtime + 5
    os.utime(broken / "x.ckpt", (later, later))
    with pytest.warns(UserWarning, match=r"broken .*args\.json"):
        assert resumer(cfg).find_checkpoint(cfg)[0] == good.last_ckpt


def linear_config(raw_config, checkpoint):
    cfg = raw_config(
        "mocov3",
        f"pretrained_feature_extractor={checkpoint}",
        "scheduler.name=step",
        "scheduler.lr_decay_steps=[1]",
    )
    del cfg["augmentations"]
    cfg.data.augmentations = {"crop_size": 16}
    return host.parse_linear_cfg(cfg)


def test_a_linear_model_on_a_loaded_backbone(config, raw_config, loaders, trainer):
    checkpoint = train(config("mocov3", "max_epochs=1"), loaders, trainer).last_ckpt
    cfg = linear_config(raw_config, checkpoint)
    backbone = host.build_backbone(cfg)
    host.load_backbone(backbone, checkpoint)
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert torch.equal(backbone.convolution.weight, state["backbone.convolution.weight"])

    model = host.LinearModel(backbone, cfg=cfg)
    frozen = {key: value.clone() for key, value in backbone.state_dict().items()}
    before = model.classifier.weight.detach().clone()
    train_loader, val_loader = host.prepare_classification_data(
        "custom", cfg.data.train_path, cfg.data.val_path, batch_size=8, num_workers=0
    )
    run = trainer(cfg)
    run.fit(model, train_loader, val_loader)
    assert all(torch.equal(frozen[key], value) for key, value in backbone.state_dict().items())
    assert not torch.equal(before, model.classifier.weight)
    assert run.callback_metrics["val_acc5"].item() == pytest.approx(100)
    assert {"train_loss_epoch", "val_loss", "val_acc1"} <= run.callback_metrics.keys()


def test_fine_tuning_moves_the_backbone(config, raw_config, loaders, trainer):
    checkpoint = train(config("mocov3", "max_epochs=1"), loaders, trainer).last_ckpt
    cfg = linear_config(raw_config, checkpoint)
    cfg.finetune = True
    model = host.LinearModel(host.build_backbone(cfg), cfg=cfg)
    before = model.backbone.convolution.weight.detach().clone()
    train_loader, _ = host.prepare_classification_data(
        "custom", cfg.data.train_path, cfg.data.val_path, batch_size=8, num_workers=0
    )
    trainer(cfg, limit_train_batches=1).fit(model, train_loader)
    assert not torch.equal(before, model.backbone.convolution.weight)


def test_older_keys_are_renamed_and_a_wrong_file_is_named(raw_config, tmp_path, caplog):
    cfg = linear_config(raw_config, "x.ckpt")
    source, target = host.build_backbone(cfg), host.build_backbone(cfg)
    old = {f"encoder.{key}": value for key, value in source.state_dict().items()}
    torch.save({"state_dict": old}, tmp_path / "old.ckpt")
    host.load_backbone(target, tmp_path / "old.ckpt")
    assert torch.equal(source.convolution.weight, target.convolution.weight)
    assert "encoder.*" in caplog.text

    torch.save({"state_dict": {"fc.weight": torch.ones(1)}}, tmp_path / "alien.ckpt")
    with pytest.raises(ValueError, match=r"alien\.ckpt"):
        host.load_backbone(target, tmp_path / "alien.ckpt")
    other = OmegaConf.merge(cfg, {"backbone": {"name": "resnet18"}})
    with pytest.raises(ValueError, match=r"another backbone"):
        host.load_backbone(host.build_backbone(other), tmp_path / "old.ckpt")
