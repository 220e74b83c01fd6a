"""Recipes by name: every cell composes to valid margins, others are refused with a list."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

import solo_margins  # noqa: F401  (makes its configurations known)
from solo_margins.cli import sentence_of
from solo_margins.config import read
from solo_margins.losses import Margins
from solo_margins.method_names import ALIASES
from solo_margins.methods.run_check import announce_variant, settle_variant
from solo_margins.recipes import RECIPES, is_from_paper, recipe_value

ROOT = Path(__file__).resolve().parents[1]
PAPER_METHODS = ("mocov3_margin", "simclr_margin", "byol_curv")

# The other methods take their cells from these, so that one data set says enough of them.
EVERY_CELL = [
    pytest.param(
        *(method, data, variant),
        # Of the papers' methods every variant once, of others the last.
        marks=[]
        if data == "cifar10" and (method in PAPER_METHODS or variant == list(by_variant)[-1])
        else pytest.mark.full,
    )
    for method, by_data in RECIPES.items()
    for data, by_variant in by_data.items()
    for variant in by_variant
    if method in PAPER_METHODS or data == "cifar10"
]
WITH_NEGATIVES = ("simclr_margin", "mocov3_margin", "mocov2plus_margin", "nnclr_margin")
OFF = (0.0, 0.0, 1.0, math.inf)

# Appendix A and B.2 of the margins paper once more, row by row as printed there: m1, m2 | s | s, c.
APPENDIX_A = {
    "mocov3_margin": {
        "cifar10": "0.1 0.4 | 20 | 20 0.7",
        "cifar100": "0.5 0.7 | 20 | 40 1",
        "stl10": "0.4 0.6 | 40 | 40 2.5",
        "tinyimagenet": "0.1 0.4 | 20 | 40 2.5",
        "imagenet": "| | 10 1.5",
    },
    "simclr_margin": {
        "cifar10": "0.5 0.4 | 1.125 | 2.5 0.7",
        "cifar100": "0.6 0.6 | 1.0625 | 2 0.7",
        "stl10": "0.0 0.2 | 1.0625 | 1.25 0.7",
        "tinyimagenet": "0.0 0.8 | 1.0625 | 1.125 1.0",
        "imagenet": "| | 2 1",
    },
    "byol_curv": {
        "cifar10": "| | - 1.0",
        "cifar100": "| | - 2.5",
        "stl10": "| | - 5.0",
        "tinyimagenet": "| | - 2.5",
    },
}


def paper_cells():
    """Yield each cell that the paper defines with its m1, m2, s and c."""
    for method, by_data in APPENDIX_A.items():
        for data, row in by_data.items():
            margins, scale, both = (part.split() for part in row.split("|"))
            yield method, data, "baseline", OFF
            if margins:
                yield method, data, "margins", (float(margins[0]), float(margins[1]), 1.0, math.inf)
            if scale:
                yield method, data, "pos", (0.0, 0.0, float(scale[0]), math.inf)
            if both[0] == "-":
                yield method, data, "curv", (0.0, 0.0, 1.0, float(both[1]))
            else:
                yield method, data, "pos_curv", (0.0, 0.0, float(both[0]), float(both[1]))


PAPER_CELLS = {cell[:3]: cell[3] for cell in paper_cells()}


@pytest.fixture(autouse=True)
def hydra():
    with initialize_config_module("solo_margins.configs", version_base=None):
        yield


def composed(method, data, variant, *overrides):
    return compose(f"{method}.yaml", overrides=[f"data={data}", f"variant={variant}", *overrides])


@pytest.mark.parametrize(("method", "data", "variant"), EVERY_CELL)
def test_every_cell_composes(method, data, variant):
    cfg = composed(method, data, variant)
    assert cfg.method == method
    OmegaConf.set_struct(cfg, False)
    cfg.data.train_path = "/images"
    OmegaConf.resolve(cfg)
    settle_variant(cfg)
    assert cfg.name == f"{method}-{data}-{variant}", "it is recorded under another name"
    margins = read(cfg, "method_kwargs.margins", Margins)
    assert margins.is_off == (variant not in ("margins", "pos", "pos_curv", "curv", "decoupled"))
    assert margins.attenuation == (variant == "decoupled")
    found = (margins.angular, margins.subtractive, margins.positive_scale, margins.curvature)
    if (method, data, variant) in PAPER_CELLS:
        assert found == PAPER_CELLS[method, data, variant]
    assert is_from_paper(method, data, variant) == ((method, data, variant) in PAPER_CELLS)
    is_polarized = variant.endswith("dp")
    assert (cfg.method_kwargs.polarization.weight > 0) == is_polarized
    if "negatives" in cfg.method_kwargs:
        kind = variant.removesuffix("_dp")
        expected = kind if kind in ("debiased", "hard") else "standard"
        assert cfg.method_kwargs.negatives.kind == expected
    # Algorithm 1 of the paper on distance polarization.
    is_of_second_paper = is_polarized or variant in ("debiased", "hard")
    assert (cfg.optimizer.name == "adam") == is_of_second_paper
    if is_of_second_paper:
        optimizer = (cfg.optimizer.lr, cfg.optimizer.classifier_lr, cfg.optimizer.weight_decay)
        assert optimizer == (1e-3, 3e-2, 1e-6)
        assert cfg.optimizer.kwargs.betas == [0.9, 0.999]
        assert cfg.method_kwargs.temperature == 0.5


@pytest.mark.parametrize("method", RECIPES)
def test_a_configuration_called_margin_trains_with_margins(method):
    for data in RECIPES[method]:
        cfg = compose(f"{method}.yaml", overrides=[f"data={data}"])
        default = "curv" if method.endswith("_curv") else "margins"
        # A plain word, so that --cfg job shows it.
        assert OmegaConf.to_container(cfg, resolve=False)["variant"] == default
        assert cfg.name == f"{method}-{data}-{default}"
        margins = read(cfg, "method_kwargs.margins", Margins)
        if default == "curv":
            assert math.isfinite(margins.curvature)
        else:
            assert margins.angular > 0 or margins.subtractive > 0
        assert margins.positive_scale == 1.0


@pytest.mark.parametrize(
    ("method", "settings", "option"),
    [
        ("mocov3_margin", ["data=imagenet", "variant=pos"], "pos_curv"),
        ("byol_curv", ["variant=nonsense"], "curv"),
        ("byol_curv", ["variant=margins"], "curv"),
        ("simclr_margin", ["data.name=nonsense"], "cifar100"),
        ("simclr_margin", ["variant=null"], "margins"),
        ("mocov3_margin", ["method=another"], "variant=baseline"),
    ],
)
def test_an_undefined_recipe_is_one_sentence_with_the_choices(method, settings, option):
    cfg = compose(f"{method}.yaml", overrides=settings)
    with pytest.raises(InterpolationResolutionError) as caught:
        OmegaConf.resolve(cfg)
    sentence = sentence_of(caught.value)
    assert sentence.startswith("variant=")
    assert option in sentence
    assert "raised while" not in sentence
    # solo-learn's own program prints OmegaConf's error, which has the sentence.
    assert sentence in str(caught.value)


def test_undefined_data_are_refused_with_the_choices():
    with pytest.raises(ConfigCompositionException, match="cifar100"):
        compose("simclr_margin.yaml", overrides=["data=nonsense"])


def test_a_baseline_needs_no_recipe():
    cfg = compose("simclr_margin.yaml", overrides=["data.name=birds", "variant=baseline"])
    OmegaConf.resolve(cfg)
    assert read(cfg, "method_kwargs.margins", Margins).is_off
    assert recipe_value("of_somebody_else", "birds", "baseline", "margins.angular", 0.0) == 0.0


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("mocov3_margin", ["data=cifar10"], ["m=margins", "angular=0.1", "2306.11526"]),
        ("mocov3_margin", ["data=digits"], ["angular=0.1", "ours", "variant=baseline"]),
        ("mocov3_margin", ["data=imagenet"], ["subtractive=0.4", "ours"]),
        ("byol_curv", ["data=stl10"], ["curvature=5", "2306.11526"]),
        ("nnclr_margin", ["variant=dp"], ["polarization.weight=10", "optimizer=adam", "ours"]),
        ("mocov3_margin", ["variant=baseline"], None),
        ("mocov3_margin", ["method_kwargs.margins.angular=0.3"], None),
    ],
)
def test_a_run_says_which_values_it_has_and_whose(method, settings, said, capsys):
    cfg = compose(f"{method}.yaml", overrides=settings)
    settle_variant(cfg)
    announce_variant(cfg)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (said is not None)
    for word in said or ():
        assert word.removeprefix("m=") in lines[0]


@pytest.mark.parametrize("alias", ALIASES)
def test_another_name_composes_the_same_configuration(alias):
    settings = ["data=cifar10", "data.train_path=/images", "variant=baseline"]
    cfg = compose(f"{alias}.yaml", overrides=settings)
    assert cfg == compose(f"{ALIASES[alias]}.yaml", overrides=settings)
    named = compose(f"{ALIASES[alias]}.yaml", overrides=["data=cifar10", f"method={alias}"])
    margins = named.method_kwargs.margins
    assert margins.curvature == recipe_value(alias, "cifar10", "curv", "margins.curvature")


def test_no_cell_of_the_paper_is_missing():
    assert all(variant in RECIPES[method][data] for method, data, variant in PAPER_CELLS)


@pytest.mark.parametrize("backbone", ["vit_tiny", "vit_small", "vit_base", "vit_large"])
def test_the_settings_of_mocov3_for_vits(backbone):
    cfg = composed("mocov3_margin", "imagenet", "pos_curv", f"backbone={backbone}")
    assert cfg.backbone.name == backbone
    assert (cfg.backbone.kwargs.img_size, cfg.backbone.kwargs.patch_size) == (224, 16)
    assert (cfg.optimizer.name, cfg.optimizer.lr, cfg.optimizer.weight_decay) == (
        "adamw",
        1.5e-4,
        0.1,
    )
    assert cfg.optimizer.classifier_lr == 3e-2, "not that of the data"
    assert (cfg.scheduler.warmup_epochs, cfg.max_epochs) == (40, 300)
    kwargs = cfg.method_kwargs
    assert (kwargs.temperature, kwargs.proj_hidden_dim, kwargs.proj_output_dim) == (0.2, 4096, 256)
    assert kwargs.freeze_patch_embedding is True
    assert cfg.augmentations[0].rrc.crop_min_scale == 0.08
    assert (cfg.momentum.base_tau, cfg.momentum.final_tau) == (0.99, 1.0)


def test_a_backbone_or_an_optimizer_can_be_chosen_by_name():
    cfg = composed("simclr_margin", "cifar10", "baseline", "backbone=resnet50", "optimizer=adam")
    assert (cfg.backbone.name, cfg.optimizer.name, cfg.optimizer.lr) == ("resnet50", "adam", 1e-3)
    assert cfg.optimizer.classifier_lr == 3e-2, "not SGD's"


def test_margins_are_off_in_a_baseline():
    cfg = compose("simclr_margin.yaml", overrides=["variant=baseline"])
    margins = OmegaConf.to_container(cfg.method_kwargs.margins, resolve=True)
    assert margins == asdict(Margins())


def test_single_numbers_can_be_overridden():
    cfg = compose(
        "mocov3_margin.yaml",
        overrides=["variant=pos", "method_kwargs.margins.curvature=.inf", "seed=7"],
    )
    assert read(cfg, "method_kwargs.margins", Margins).curvature == float("inf")
    cfg = compose("mocov3_margin.yaml", overrides=["method_kwargs.margins.curvature=inf"])
    assert read(cfg, "method_kwargs.margins", Margins).curvature == float("inf")


def test_a_probe_reads_the_settings_of_a_checkpoint_or_of_its_folder(tmp_path):
    (tmp_path / "args.json").write_text('{"method": "mocov3", "backbone": {"name": "resnet18"}}')
    for source in (tmp_path, tmp_path / "last.ckpt"):
        cfg = compose("linear.yaml", overrides=[f"pretrained_feature_extractor={source}"])
        assert (cfg.pretrain_method, cfg.backbone.name) == ("mocov3", "resnet18")


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("byol_curv", "method_kwargs.queue_size=64"),
        ("byol_curv", "method_kwargs.temperature=0.5"),
        ("byol_curv", "method_kwargs.negatives.kind=hard"),
        ("simclr_margin", "method_kwargs.pred_hidden_dim=64"),
        ("simclr_margin", "momentum.base_tau=0.9"),
        ("supcon_margin", "method_kwargs.negatives.kind=hard"),
    ],
)
@pytest.mark.parametrize("data", ["cifar10", "imagenet", "digits"])
def test_a_data_set_brings_no_key_that_a_method_does_not_have(method, key, data):
    with pytest.raises(ConfigCompositionException, match=key.partition("=")[0]):
        compose(f"{method}.yaml", overrides=[f"data={data}", key])


def test_a_constant_teacher_follows_what_is_set():
    cfg = compose("byol_curv.yaml", overrides=["data=cifar10", "momentum.base_tau=0.5"])
    assert (cfg.momentum.base_tau, cfg.momentum.final_tau) == (0.5, 0.5)


def test_settings_for_lightning_are_literals():
    """The host hands the unresolved configuration to the trainer."""
    cfg = OmegaConf.to_container(compose("mocov3_margin.yaml"), resolve=False)
    for key in ("accelerator", "devices", "strategy", "precision"):
        assert "${" not in str(cfg[key])


@pytest.mark.parametrize("method", RECIPES)
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
            "method_kwargs.schedules.positive_scale.kind=linear",
            "method_kwargs.schedules.polarization_weight.epochs=3",
            "method_kwargs.schedules.temperature={kind: cycle, from: 1, to: 2, epochs: 3}",
            "method_kwargs.schedules.temperature.reference=0.5",
            "method_kwargs.schedules.temperature.factor=0.5",
            "method_kwargs.polarization.weight=1",
            *["method_kwargs.negatives.beta=2"] * (method in WITH_NEGATIVES),
        ],
    )


def test_the_documented_table_is_up_to_date(python):
    python(ROOT / "scripts" / "recipe_table.py", "--check")


COMPOSE_ALL = """
import json
import hydra
import solo_margins
from omegaconf import OmegaConf
from solo_margins.recipes import RECIPES
from solo_margins.resolvers import composed

settings = {}
for method in RECIPES:
    for data in RECIPES[method]:
        given = [] if data == "digits" else ["data.train_path=/images"]
        cfg = composed(f"{method}.yaml", [f"data={data}", *given])
        settings[f"{method} {data}"] = OmegaConf.to_container(cfg, resolve=True)
cfg = composed("simclr_margin.yaml", ["variant=hard_dp", "backbone=vit_tiny"])
settings["options"] = OmegaConf.to_container(cfg, resolve=True)
print(json.dumps([hydra.__version__, settings]))
"""


def composed_by(folder=None):
    """Return the version of Hydra, and every method on all data as it composes them."""
    path = os.pathsep.join(filter(None, [folder, str(ROOT)]))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPOSE_ALL],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.skipif("OTHER_HYDRA" not in os.environ, reason="OTHER_HYDRA names no other Hydra")
def test_another_hydra_composes_the_same():
    """OTHER_HYDRA is a folder with another Hydra, see CONTRIBUTING.md."""
    version, settings = composed_by()
    other_version, other_settings = composed_by(os.environ["OTHER_HYDRA"])
    assert other_version != version
    assert other_settings == settings
