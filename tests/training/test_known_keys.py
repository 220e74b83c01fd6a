"""Keys that nothing reads are refused with the nearest that there is."""

import inspect

import pytest
import yaml
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from solo.methods import METHODS

from solo_margins.recipes import RECIPES
from solo_margins.training.checked_config import checked_pretraining as checked
from solo_margins.training.checked_config import checked_probe
from solo_margins.training.known_keys import known_keys, method_settings, refuse_unknown_keys
from solo_margins.versions import form, host_folder

RECIPES_OF_SOLO_LEARN = host_folder().parent / "scripts"


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("+max_epoch=3", "max_epochs"),
        ("+gradient_clip=1", "gradient_clip_val"),
        ("+limit_train_batch=3", "limit_train_batches"),
        ("+temperature=0.5", "method_kwargs.temperature"),
        ("+symmetric=false", "method_kwargs.symmetric"),
        ("+optimizer.lrr=1", "lr"),
        ("+optimizer.nesterov=true", "optimizer.kwargs.nesterov"),
        ("+optimizer.kwargs.nestrov=true", "nesterov"),
        ("+scheduler.warmup_epoch=1", "warmup_epochs"),
        ("+data.trainpath=here", "train_path"),
        ("+augmentations.0.gaussian_blurr.prob=1", "gaussian_blur"),
        ("+augmentations.0.color_jitter.strength=1", "brightness"),
        ("+backbone.kwarg.width=8", "kwargs"),
        ("+checkpoint.keep_previous=true", "keep_prev"),
        ("+auto_resume.enable=true", "enabled"),
        ("+momentum.tau=0.9", "base_tau"),
        ("+protocol.symetric=true", "symmetric"),
        ("+method_kwargs.temprature=0.5", "temperature"),
        ("+numerics.on_nonfinit=skip", "on_nonfinite"),
        ("+wandb.projects=mine", "project"),
        ("+loggers.cvs=true", "csv"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest(composed, override, meant):
    cfg = composed("mocov3_margin.yaml", override)
    name = override.lstrip("+").partition("=")[0].split(".")
    with pytest.raises(ValueError) as caught:
        checked(cfg)
    assert any(f"'{part}'" in str(caught.value) for part in name)
    assert meant in str(caught.value)


def test_a_misspelt_key_of_a_probe_is_refused(linear_config, tmp_path):
    (tmp_path / "last.ckpt").touch()
    cfg = linear_config(tmp_path / "last.ckpt", "label_smoothng=0.1")
    with pytest.raises(ValueError, match="did you mean label_smoothing"):
        checked_probe(cfg)


@pytest.mark.parametrize("group", ["lens", "knn_eval", "auto_umap"])
def test_what_belongs_to_a_pretraining_is_refused_in_a_probe(linear_config, tmp_path, group):
    (tmp_path / "last.ckpt").touch()
    cfg = linear_config(tmp_path / "last.ckpt", f"{group}.enabled=true")
    with pytest.raises(ValueError, match=rf"{group}\.enabled=true has no effect"):
        checked_probe(cfg)


@pytest.mark.parametrize("content", ["loggers=csv", "optimizer=sgd", "checkpoint=true"])
def test_a_value_in_the_place_of_a_group_is_refused(raw_config, content):
    with pytest.raises(ValueError, match=f"^{content.partition('=')[0]} must hold "):
        checked(raw_config("mocov3_margin", content))


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("byol_curv", "temperature=0.5"),
        ("byol_curv", "queue_size=1024"),
        ("mocov3_margin", "queue_size=4096"),
        ("simclr_margin", "pred_hidden_dim=16"),
        ("simclr_margin", "symmetric=false"),
    ],
)
def test_a_setting_of_another_method_is_refused(raw_config, method, key):
    name = key.partition("=")[0]
    with pytest.raises(ValueError, match=f"{method}.* has no setting '{name}'"):
        checked(raw_config(method, f"method_kwargs.{key}"))


def test_a_method_itself_refuses_settings_of_another(config):
    """In solo-learn's own program nobody else looks."""

    with pytest.raises(ValueError, match="has no setting 'temperature'"):
        METHODS["byol_curv"](config("byol_curv", "method_kwargs.temperature=0.5"))


@pytest.mark.parametrize("method", RECIPES)
def test_a_data_set_sets_no_key_that_a_method_does_not_have(composed, method):
    known = method_settings(method)
    for data in RECIPES[method]:
        images = [] if data == "digits" else ["data.train_path=/images"]
        for backbone in ([], ["backbone=vit_tiny"]):
            cfg = composed(f"{method}.yaml", f"data={data}", *images, *backbone)
            assert set(cfg.method_kwargs) <= set(known)
            OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
            refuse_unknown_keys(cfg, is_probe=False)


def test_heads_of_the_data_set_reach_the_method_and_nothing_else(composed):
    cfg = checked(composed("byol_curv.yaml", "data=digits"))
    assert cfg.method_kwargs.proj_hidden_dim == 256, "that of the digits"
    assert cfg.method_kwargs.proj_output_dim == 128, "that of the method"
    assert "heads" not in cfg


def test_every_argument_of_the_trainer_is_known():
    names = set(inspect.signature(Trainer.__init__).parameters)
    chosen = {"self", "logger", "callbacks", "enable_checkpointing"}
    assert names - chosen <= known_keys(is_probe=False).keys()
    assert names - chosen <= known_keys(is_probe=True).keys()


def test_keys_that_others_refer_to_are_read(raw_config):
    cfg = raw_config("mocov3_margin", "my_rate=0.25", "mine.momentum=0.9")
    cfg.optimizer.lr = "${my_rate}"
    cfg.optimizer.kwargs = {"momentum": "${mine.momentum}"}
    assert checked(cfg).optimizer.lr == 0.25
    cfg.optimizer.lr = 0.25
    with pytest.raises(ValueError, match="no setting 'my_rate'"):
        checked(cfg)


@pytest.mark.skipif(
    form() != "main" or not RECIPES_OF_SOLO_LEARN.is_dir(), reason="the release has no recipes"
)
def test_no_linear_recipe_of_solo_learn_is_refused():
    files = [*RECIPES_OF_SOLO_LEARN.glob("linear/*/*.yaml")]
    files += [*RECIPES_OF_SOLO_LEARN.glob("finetune/*/*.yaml")]
    assert files
    for file in files:
        content = yaml.safe_load(file.read_text())
        content["wandb"] = {"enabled": True, "entity": None, "project": "solo-learn"}
        refuse_unknown_keys(OmegaConf.create(content), is_probe=True)
