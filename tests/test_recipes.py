"""Recipes by name: every cell composes to valid margins, others are refused with a list."""

from dataclasses import asdict

import pytest
from hydra import compose, initialize_config_module
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

import solo_margins  # noqa: F401  (makes its configurations known)
from solo_margins.losses import Margins
from solo_margins.methods.settings import margins_from
from solo_margins.recipes import CELLS

EVERY_CELL = [
    (method, data, variant)
    for method, by_data in CELLS.items()
    for data, by_variant in by_data.items()
    for variant in by_variant
]


@pytest.fixture(autouse=True)
def hydra():
    with initialize_config_module("solo_margins.configs", version_base="1.2"):
        yield


@pytest.mark.parametrize(("method", "data", "variant"), EVERY_CELL)
def test_every_cell_composes(method, data, variant):
    cfg = compose(f"{method}.yaml", overrides=[f"data={data}", f"variant={variant}"])
    assert cfg.method == method
    assert cfg.name == f"{method}-{data}-{variant}"
    margins = margins_from(cfg.method_kwargs.margins)
    assert asdict(margins) == {**asdict(Margins()), **CELLS[method][data][variant]}
    if variant == "baseline":
        assert margins.is_off
    else:
        assert not margins.is_off


def test_margins_are_off_unless_a_variant_says_otherwise():
    cfg = compose("solo_margins/no_margins.yaml")
    assert OmegaConf.to_container(cfg.solo_margins) == asdict(Margins())


def test_single_numbers_can_be_overridden():
    cfg = compose(
        "mocov3_margin.yaml",
        overrides=["variant=pos", "method_kwargs.margins.curvature=.inf", "seed=7"],
    )
    assert margins_from(cfg.method_kwargs.margins).curvature == float("inf")
    cfg = compose("mocov3_margin.yaml", overrides=["method_kwargs.margins.curvature=inf"])
    assert margins_from(cfg.method_kwargs.margins).curvature == float("inf")


def test_a_probe_reads_the_settings_of_a_checkpoint_or_of_its_folder(tmp_path):
    (tmp_path / "args.json").write_text('{"method": "mocov3", "backbone": {"name": "resnet18"}}')
    for source in (tmp_path, tmp_path / "last.ckpt"):
        cfg = compose("linear.yaml", overrides=[f"pretrained_feature_extractor={source}"])
        assert (cfg.pretrain_method, cfg.backbone.name) == ("mocov3", "resnet18")


def test_an_undefined_cell_is_refused_with_a_list():
    with pytest.raises(MissingConfigException) as caught:
        compose("byol_curv.yaml", overrides=["variant=pos"])
    assert "digits-pos" in str(caught.value)
    assert "digits-curv" in str(caught.value)


def test_settings_for_lightning_are_literals():
    """The host hands the unresolved configuration to the trainer."""
    cfg = OmegaConf.to_container(compose("mocov3_margin.yaml"), resolve=False)
    for key in ("accelerator", "devices", "strategy", "precision"):
        assert "${" not in str(cfg[key])


@pytest.mark.parametrize("method", CELLS)
def test_every_setting_of_the_host_can_be_overridden_without_a_plus(method):
    compose(
        f"{method}.yaml",
        overrides=[
            "seed=1",
            "auto_resume.enabled=true",
            "auto_resume.max_hours=1",
            "checkpoint.frequency=2",
            "checkpoint.dir=here",
            "checkpoint.keep_prev=true",
            "knn_eval.enabled=true",
            "wandb.enabled=false",
            "dali.device=cpu",
            "data.format=dali",
            "resume_from_checkpoint=some.ckpt",
            "performance.disable_channel_last=true",
            "max_epochs=3",
            "backbone.kwargs={}",
        ],
    )
