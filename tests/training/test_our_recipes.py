"""Our own configurations, from pretraining to the probe, on the embedded digits."""

import math

import pytest
from hydra import compose, initialize_config_module

from solo_margins import training
from solo_margins.evaluation.knn import knn
from solo_margins.recipes import RECIPES

QUICK = [
    "optimizer.batch_size=32",
    "data.num_workers=0",
    "max_epochs=1",
    "limit_train_batches=3",
    "limit_val_batches=2",
    "accelerator=cpu",
    "+enable_progress_bar=false",
    "+enable_model_summary=false",
]


def configured(name, *overrides):
    with initialize_config_module("solo_margins.configs", version_base=None):
        return compose(name, overrides=[*QUICK, *overrides])


def variants():
    """Yield every cell of the digits; the last one of a method stands for it in the suite."""
    for method, by_data in RECIPES.items():
        *others, last = by_data["digits"]
        yield pytest.param(method, last)
        yield from (pytest.param(method, other, marks=pytest.mark.full) for other in others)


@pytest.mark.parametrize(("method", "variant"), list(variants()))
def test_every_variant_of_every_method_trains(method, variant, tmp_path):
    settings = [f"variant={variant}", f"checkpoint.dir={tmp_path}"]
    if method == "wmse_curv":
        settings.append("optimizer.batch_size=128")  # fewer cannot be whitened in 64 dimensions
    result = training.pretrain(configured(f"{method}.yaml", *settings))
    assert math.isfinite(result.metrics["train_class_loss"])
    assert ("train_pairs_in_band" in result.metrics) == variant.endswith("dp")


@pytest.mark.parametrize("method", ["mocov3_margin", "simclr_margin", "byol_curv"])
def test_from_pretraining_to_the_probe(method, tmp_path):
    folder = f"checkpoint.dir={tmp_path}"
    pretrained = training.pretrain(configured(f"{method}.yaml", folder, "knn_eval.enabled=true"))
    assert pretrained.checkpoint.parent == pretrained.folder
    assert {"val_acc1", "val_knn_acc1"} <= pretrained.metrics.keys()
    settings = [folder, f"pretrained_feature_extractor={pretrained.checkpoint}"]
    probed = training.linear(configured("linear.yaml", *settings))
    assert 0 <= probed.metrics["val_acc1"] <= 100
    if method == "simclr_margin":
        neighbours = knn([settings[1], "k=5", "data.num_workers=0"])
        # Three steps are nearly no training; chance is 10 %.
        assert neighbours["acc1"] > 30


def test_a_folder_without_classes_trains(tmp_path, image_folder):
    cfg = configured(
        "simclr_margin.yaml",
        "data=folder",
        f"data.train_path={image_folder / 'flat'}",
        "data.no_labels=true",
        "backbone.name=narrow_resnet18",
        "optimizer.batch_size=4",
        f"checkpoint.dir={tmp_path}",
        "scheduler.warmup_epochs=0",
        "image.size=16",
    )
    assert training.pretrain(cfg).checkpoint.exists()
