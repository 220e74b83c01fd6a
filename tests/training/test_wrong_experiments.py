"""What nobody can have meant is refused or recorded as what it is."""

import json
from pathlib import Path

import pytest
from forked import ForkedPrograms
from torch.utils.data import DataLoader

from solo_margins import results, training
from solo_margins.methods.run_check import settle_variant

ROOT = Path(__file__).resolve().parents[2]

QUICK = [
    "optimizer.batch_size=8",
    "data.num_workers=0",
    "max_epochs=1",
    "limit_train_batches=1",
    "limit_val_batches=1",
    "accelerator=cpu",
]
SMALL = [
    "backbone.name=narrow_resnet10",
    "method_kwargs.proj_hidden_dim=16",
    "scheduler.warmup_epochs=0",
]


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    programs = ForkedPrograms(tmp_path_factory.mktemp("forked"))
    yield programs
    programs.close()


@pytest.fixture
def run(forked, tmp_path):
    """Run one of our programs."""

    def make(program, *arguments):
        return forked.run([ROOT / program, *arguments], tmp_path, seconds=240)

    return make


def recipe(method, *overrides):
    return ["--config-name", f"{method}.yaml", *QUICK, "scheduler.warmup_epochs=0", *overrides]


def settings_of(folder):
    """Return the only checkpoint in a folder, and what it was trained with."""
    [checkpoint] = folder.rglob("*.ckpt")
    return checkpoint, json.loads((checkpoint.parent / "args.json").read_text())


def test_images_of_ones_own_are_not_trained_as_digits(run, image_folder, tmp_path):
    paths = [f"data.{part}_path={image_folder / part}" for part in ("train", "val")]
    code, said = run("main_pretrain.py", *recipe("mocov3_margin", *paths))
    assert code == 1
    assert "data=digits has its own images" in said
    assert "use data=folder" in said
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_validation_of_ones_own_is_refused_as_well(composed, image_folder):
    cfg = composed("simclr_margin.yaml", f"data.val_path={image_folder / 'val'}")
    with pytest.raises(ValueError, match=r"but data\.val_path=.* names others"):
        training.pretrain(cfg)


def test_from_images_of_ones_own_to_their_probe(run, image_folder, tmp_path):
    paths = [f"data.{part}_path={image_folder / part}" for part in ("train", "val")]
    code, said = run(
        "main_pretrain.py",
        *recipe("simclr_margin", "data=folder", "image.size=16", *SMALL, *paths),
    )
    assert code == 0, said
    assert "variant=margins sets margins.angular=0.5" in said
    checkpoint, args = settings_of(tmp_path)
    assert (args["name"], args["variant"]) == ("simclr_margin-folder-margins", "margins")
    margins = args["method_kwargs"]["margins"]
    assert (margins["angular"], margins["subtractive"]) == (0.5, 0.4)

    named = f"pretrained_feature_extractor={checkpoint}"
    code, said = run("main_linear.py", "--config-name", "linear.yaml", *QUICK, named)
    assert code == 0, said
    _, probe = settings_of(tmp_path / "trained_models" / "linear")
    assert (probe["name"], probe["data"]["name"]) == ("linear-folder", "folder")
    assert probe["data"]["num_classes"] == 3
    for key in ("dataset", "train_path", "val_path", "format"):
        assert probe["data"][key] == args["data"][key]


@pytest.mark.parametrize("data", [(), ("data=digits",)], ids=["data unnamed", "data named"])
def test_a_mistyped_checkpoint_is_named(run, data):
    named = "pretrained_feature_extractor=nowhere/last.ckpt"
    code, said = run("main_linear.py", "--config-name", "linear.yaml", *QUICK, named, *data)
    assert code == 1
    assert f"{named} does not exist." in said


@pytest.mark.parametrize(
    ("method", "ours"),
    [("simclr", "simclr_margin"), ("mocov3", "mocov3_margin"), ("byol", "byol_curv")],
)
def test_a_method_of_solo_learns_own_is_refused_with_the_name_of_ours(raw_config, method, ours):
    with pytest.raises(ValueError, match=rf"--config-name {ours}\.yaml variant=baseline"):
        training.pretrain(raw_config(method))


@pytest.mark.parametrize("method", ["barlow_twins", "nonsense"])
def test_a_method_that_has_no_margins_is_refused(raw_config, method):
    with pytest.raises(ValueError, match=rf"^method must be one of .*simclr_margin.*'{method}'"):
        training.pretrain(raw_config(method))


def test_a_probe_is_not_pretrained(raw_config):
    with pytest.raises(ValueError, match=r"main_linear\.py"):
        training.pretrain(raw_config("simclr_margin", "pretrained_feature_extractor=x.ckpt"))


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("variant=pos", r"method_kwargs\.margins\.positive_scale"),
        ("negatives.kind=hard", r"method_kwargs\.negatives\.kind"),
        ("schedules.angular.to=1", r"method_kwargs\.schedules\.angular"),
    ],
)
def test_words_that_choose_nothing_in_ones_own_configuration(raw_config, setting, instead):
    with pytest.raises(ValueError, match=rf"has no effect.* {instead} instead"):
        settle_variant(raw_config("mocov3_margin", setting))


def test_what_ones_own_configuration_says_truly_passes(raw_config):
    for setting in ("variant=baseline", "variant=my-own-word", "method_kwargs.margins.angular=1"):
        cfg = raw_config("mocov3_margin", setting)
        before = cfg.copy()
        settle_variant(cfg)
        assert cfg == before
    contradicted = raw_config(
        "mocov3_margin", "variant=baseline", "method_kwargs.margins.angular=1"
    )
    settle_variant(contradicted)
    assert contradicted.variant == "custom"
    for setting in ("variant=margins", "variant=pos_curv"):
        partly = raw_config("mocov3_margin", setting, "method_kwargs.margins.positive_scale=2")
        with pytest.raises(ValueError, match=r"has no effect in this configuration: set "):
            settle_variant(partly)


def test_changed_settings_are_recorded_as_such(run, tmp_path):
    changes = ("variant=baseline", "method_kwargs.margins.positive_scale=5", *SMALL)
    code, said = run("main_pretrain.py", *recipe("simclr_margin", *changes))
    assert code == 0, said
    assert "Run the comparison first" not in said
    checkpoint, args = settings_of(tmp_path)
    assert checkpoint.name.startswith("simclr_margin-digits-custom-")
    assert (args["name"], args["variant"]) == ("simclr_margin-digits-custom", "custom")


def test_results_name_what_was_trained(composed, tmp_path):
    file = tmp_path / "runs.jsonl"
    quiet = ["+enable_progress_bar=false", "+enable_model_summary=false", f"results={file}"]
    quiet += [f"checkpoint.dir={tmp_path}", "scheduler.warmup_epochs=0"]
    for changes in ((), ("method_kwargs.margins.positive_scale=5",)):
        cfg = composed("simclr_margin.yaml", "variant=pos", *QUICK, *SMALL, *quiet, *changes)
        training.pretrain(cfg)
        assert cfg.variant == "pos", "the caller's configuration stays as it is"
    assert [line.variant for line in results.read(file)] == ["pos", "custom"]


@pytest.mark.parametrize(
    ("variant", "change", "recorded"),
    [
        ("pos", "method_kwargs.margins.positive_scale=1.125", "pos"),
        ("pos", "method_kwargs.margins.curvature=.inf", "pos"),
        ("baseline", "method_kwargs.temperature=0.7", "baseline"),
        ("baseline", "optimizer.lr=0.1", "baseline"),
        ("hard", "method_kwargs.temperature=0.7", "custom"),
        ("hard", "method_kwargs.negatives.beta=2", "custom"),
        ("dp", "method_kwargs.polarization.upper=0.5", "custom"),
        ("pos", "method_kwargs.schedules.positive_scale.epochs=2", "custom"),
        ("baseline", "method_kwargs.schedules.polarization_weight.to=2", "custom"),
        ("baseline", "method_kwargs.margins.attenuation=0.5", "custom"),
    ],
)
def test_only_what_changes_the_recipe_makes_it_another(composed, variant, change, recorded):
    cfg = composed("simclr_margin.yaml", f"variant={variant}", change)
    called = cfg.copy()
    settle_variant(cfg)
    assert (cfg.variant, cfg.name) == (recorded, f"simclr_margin-digits-{recorded}")
    called.name = "mine"
    settle_variant(called)
    assert (called.variant, called.name) == (recorded, "mine")


def test_a_batch_larger_than_the_data_does_not_end_well(run, tmp_path):
    larger = ["optimizer.batch_size=2048", "limit_train_batches=1.0"]
    code, said = run("main_pretrain.py", *recipe("simclr_margin", *SMALL, *larger))
    assert code == 1
    assert "optimizer.batch_size=2048 exceeds the " in said
    assert not list(tmp_path.rglob("*.ckpt"))


def test_dali_with_too_few_images_does_not_end_well(run):
    pytest.importorskip("nvidia.dali", reason="DALI is optional")
    larger = ["optimizer.batch_size=2048", "data.val_path=null"]
    dali = ["data.format=dali", "dali.device=cpu", "limit_train_batches=1.0", "data.num_workers=1"]
    code, said = run("main_pretrain.py", *recipe("simclr_margin", *SMALL, *larger, *dali))
    assert code == 1
    assert "batch" in said


def test_to_train_nothing_can_be_asked_for(raw_config, trainer, loaders, tmp_path):
    from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
    from solo.methods import METHODS

    cfg = parse_pretrain_cfg(raw_config("simclr_margin"))
    train, _ = loaders(cfg)
    model = METHODS["simclr_margin"](cfg)
    trainer(cfg, limit_train_batches=0).fit(model, train)
    # A loader of somebody else, without a complete batch.
    train = DataLoader(train.dataset, batch_size=64, drop_last=True)
    cfg.optimizer.batch_size = 64
    model = METHODS["simclr_margin"](cfg)
    with pytest.raises(ValueError, match=r"Nothing was trained: optimizer\.batch_size=64 exceeds"):
        trainer(cfg).fit(model, train)
