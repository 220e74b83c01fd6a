"""Configurations that are checked and completed before solo-learn reads them."""

import pytest
from omegaconf import OmegaConf
from solo.methods import METHODS

from solo_margins.same_run import defining_settings, run_id
from solo_margins.training.checked_config import checked_pretraining, checked_probe
from solo_margins.training.pretrain import parsed_pretraining


def test_a_warmup_longer_than_the_run_is_reported(raw_config):
    with pytest.warns(UserWarning, match=r"warmup_epochs=10 exceeds max_epochs=2"):
        checked_pretraining(raw_config("simclr_margin", "scheduler.warmup_epochs=10"))


@pytest.mark.parametrize("settings", [("devices=2",), ("devices='1'", "strategy=ddp")])
def test_statistics_of_all_gpus_are_refused_on_cpus(raw_config, settings, tmp_path):
    message = "sync_batchnorm=true needs GPUs"
    with pytest.raises(ValueError, match=message):
        checked_pretraining(raw_config("simclr_margin", "sync_batchnorm=true", *settings))
    (tmp_path / "pretrained.ckpt").touch()
    probe = f"pretrained_feature_extractor={tmp_path / 'pretrained.ckpt'}"
    with pytest.raises(ValueError, match=message):
        checked_probe(raw_config("simclr_margin", probe, "sync_batchnorm=true", *settings))
    checked_pretraining(raw_config("simclr_margin", "sync_batchnorm=false", *settings))
    checked_pretraining(
        raw_config("simclr_margin", "sync_batchnorm=true", "accelerator=gpu", *settings)
    )


@pytest.mark.parametrize(("name", "kept"), [("sgd", {"momentum"}), ("adamw", set())])
def test_settings_of_another_optimizer_are_dropped(raw_config, name, kept):
    cfg = raw_config("simclr_margin", f"optimizer.name={name}")
    cfg.optimizer.kwargs = {"momentum": 0.8, "eta": 0.001, "exclude_bias_n_norm": True}
    assert set(checked_pretraining(cfg).optimizer.kwargs) == kept


def test_a_run_under_another_name_of_its_method_is_the_same_run(raw_config):
    runs = []
    for name in ("byol_curv", "byol_margin"):
        cfg = raw_config(name, "method_kwargs.margins.curvature=1")
        cfg = checked_pretraining(cfg)
        runs.append(run_id("pretrain", "1", defining_settings(OmegaConf.to_container(cfg))))
        model = METHODS[name](parsed_pretraining(cfg))
        assert model.cfg.method == "byol_curv"
    assert runs[0] == runs[1]


def test_the_configuration_itself_stays_as_it_was(raw_config):
    cfg = raw_config("simclr_margin")
    before = cfg.copy()
    checked_pretraining(cfg)
    assert cfg == before
