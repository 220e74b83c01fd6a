"""Data sets by name from pretraining to the probe, read with PIL and with DALI."""

import importlib.util
import json
import os

import numpy as np
import pytest
import stored_images
import torch
from omegaconf import OmegaConf
from PIL import Image
from solo.args.linear import parse_cfg as parse_linear_cfg
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from stopped_runs import loaded, steps_of

from solo_margins import training
from solo_margins.data.datamodule import RunData
from solo_margins.evaluation.knn import knn
from solo_margins.versions import host_folder

SMALL = [
    "variant=baseline",
    "backbone.name=narrow_resnet18",
    "++backbone.kwargs={width: 8, blocks: [1, 1, 1, 1]}",
    "method_kwargs.proj_hidden_dim=16",
    "heads.pred_hidden_dim=16",
    "scheduler.warmup_epochs=0",
]
QUICK = [
    "optimizer.batch_size=8",
    "data.num_workers=0",
    "max_epochs=1",
    "accelerator=cpu",
]
SILENT = ["+enable_progress_bar=false", "+enable_model_summary=false"]
needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="DALI is optional",
)


@pytest.fixture
def pretraining(composed, tmp_path):
    """A quick pretraining configuration of ours."""

    def make(method, data, path, *overrides):
        where = [f"data={data}", f"data.train_path={path}", f"checkpoint.dir={tmp_path / 'runs'}"]
        return composed(f"{method}.yaml", *where, *SMALL, *QUICK, *SILENT, *overrides)

    return make


@pytest.fixture
def probing(composed, tmp_path):
    """A quick linear configuration of ours."""

    def make(checkpoint, data, path, *overrides):
        where = [f"data={data}", f"data.train_path={path}", f"checkpoint.dir={tmp_path / 'runs'}"]
        given = [f"pretrained_feature_extractor={checkpoint}", "optimizer.lr=3"]
        return composed("linear.yaml", *where, *given, *QUICK, *SILENT, *overrides)

    return make


@pytest.mark.parametrize(("data", "how"), [("cifar10", "files"), ("stl10", "folder")])
def test_from_pretraining_to_probe_and_knn(data, how, stored, pretraining, probing, offline):
    path = stored(data, how)
    cfg = pretraining("mocov3_margin", data, path, "knn_eval.enabled=true", "knn_eval.k=2")
    pretrained = training.pretrain(cfg)
    assert {"val_acc1", "val_knn_acc1"} <= pretrained.metrics.keys()
    args = json.loads((pretrained.folder / "args.json").read_text())
    assert args["data"]["name"] == data
    assert args["data"]["num_classes"] == 10
    assert args["augmentations"][0]["crop_size"] == (64 if data == "stl10" else 32)
    images = 50 if data == "stl10" else 20
    assert steps_of(pretrained.checkpoint) == images // 8, (
        "STL-10 is pretrained on unlabelled images too"
    )

    probed = training.linear(probing(pretrained.checkpoint, data, path))
    assert probed.metrics["val_acc1"] >= 0
    state = loaded(probed.checkpoint)
    assert state["global_step"] == 20 // 8, "a probe is trained on labelled images only"
    assert state["state_dict"]["classifier.weight"].shape[0] == 10
    checkpoint = f"pretrained_feature_extractor={pretrained.checkpoint}"
    own = knn([checkpoint, "k=2", "data.num_workers=0"])
    named = [f"data.name={data}", f"data.train_path={path}", "data.unlabelled_folder=unlabeled"]
    assert own == knn([checkpoint, "k=2", "data.num_workers=0", *named])
    assert 0 <= own["acc1"] <= 100


@pytest.mark.skipif(
    "SOLO_MARGINS_CIFAR10" not in os.environ, reason="SOLO_MARGINS_CIFAR10 names no folder"
)
def test_cifar10_itself(pretraining):
    limits = ("limit_train_batches=2", "limit_val_batches=2", "optimizer.batch_size=32")
    path = os.environ["SOLO_MARGINS_CIFAR10"]
    result = training.pretrain(pretraining("mocov3_margin", "cifar10", path, *limits))
    assert result.checkpoint.is_file()


@pytest.mark.full
@pytest.mark.skipif(
    not (host_folder().parent / "main_pretrain.py").exists(), reason="the host has no programs"
)
def test_untouched_programs_of_the_host_find_data_by_name(stored, python, tmp_path):
    path = stored("stl10", "folder")
    programs = host_folder().parent
    shared = ["data=stl10", f"data.train_path={path}", f"checkpoint.dir={tmp_path / 'runs'}"]
    python(
        *("-W", "ignore", programs / "main_pretrain.py", "--config-name", "simclr_margin.yaml"),
        *(*shared, *SMALL, *QUICK),
    )
    [checkpoint] = (tmp_path / "runs" / "simclr_margin").rglob("*.ckpt")
    args = json.loads((checkpoint.parent / "args.json").read_text())
    assert (args["data"]["dataset"], args["data"]["num_classes"]) == ("custom", 10)
    assert steps_of(checkpoint) == 50 // 8
    python(
        *("-W", "ignore", programs / "main_linear.py", "--config-name", "linear.yaml"),
        *(*shared, f"pretrained_feature_extractor={checkpoint}", *QUICK),
    )
    [probe] = (tmp_path / "runs" / "linear").rglob("*.ckpt")
    state = loaded(probe)
    assert state["global_step"] == 20 // 8
    assert state["state_dict"]["classifier.weight"].shape[0] == 10
    args = json.loads((probe.parent / "args.json").read_text())
    assert args["data"]["augmentations"]["mean"] == [0.4914, 0.4823, 0.4466]


@pytest.fixture
def jpegs(tmp_path):
    """Image folders of smooth JPEGs, 32 pixels, a colour for each of ten classes."""
    rows = np.linspace(0, 1, 32)[:, None, None]
    for split, per_class in (("train", 3), ("val", 1)):
        _, labels = stored_images.images_of("cifar10", per_class, 1)
        colours = np.random.default_rng(0).uniform(0, 180, (10, 1, 1, 3))[labels]
        shades = 8.0 * (np.arange(len(labels)) % per_class)[:, None, None, None]
        images = (colours + shades + 50 * rows * np.ones((1, 32, 1))).astype(np.uint8)
        options = {"suffix": "JPEG", "quality": 95, "subsampling": 0}
        stored_images.write_folder(tmp_path / "jpegs" / split, images, labels, **options)
    return tmp_path / "jpegs"


DALI = ("data.format=dali", "dali.device=cpu")


@needs_dali
def test_dali_from_pretraining_to_the_probe(jpegs, pretraining, probing):
    given = (f"data.val_path={jpegs / 'val'}", *DALI)
    path = jpegs / "train"
    cfg = pretraining("mocov3_margin", "folder", path, "image.size=32", *given)
    pretrained = training.pretrain(cfg)
    assert steps_of(pretrained.checkpoint) == 30 // 8
    assert "val_acc1" in pretrained.metrics
    longer = ("max_epochs=15", "optimizer.batch_size=10")
    probed = training.linear(probing(pretrained.checkpoint, "folder", path, *given, *longer))
    assert steps_of(probed.checkpoint) == 15 * 3
    # Colours tell the classes apart, if labels belong to their images.
    assert probed.metrics["train_acc1_epoch"] > 60
    assert probed.metrics["val_acc1"] > 60


def pixels_of(path, mean, std):
    image = torch.tensor(np.asarray(Image.open(path))).permute(2, 0, 1) / 255
    return (image - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


@needs_dali
@pytest.mark.parametrize("encode", [False, True])
def test_dali_shows_the_same_pixels_labels_and_indexes_as_pil(encode, jpegs, pretraining, trainer):
    mean, std = [0.3, 0.4, 0.5], [0.2, 0.25, 0.3]
    whole = {"rrc": {"enabled": True, "crop_min_scale": 1.0, "crop_max_scale": 1.0}}
    off = ("color_jitter", "grayscale", "gaussian_blur", "solarization", "horizontal_flip")
    cfg = pretraining(
        *("simclr_margin", "folder", jpegs / "train", "image.size=32", *DALI),
        *(f"image.mean={mean}", f"image.std={std}"),
        f"dali.encode_indexes_into_labels={encode}",
    )
    cfg.augmentations[0].update(whole)
    for name in off:
        cfg.augmentations[0][name].prob = 0.0
    OmegaConf.set_struct(cfg, False)
    cfg = parse_pretrain_cfg(cfg)
    module = RunData(cfg, pretraining=True)
    module.trainer = trainer(cfg)
    files = sorted((jpegs / "train").rglob("*.JPEG"))
    expected = torch.stack([pixels_of(path, mean, std) for path in files])
    seen = 0
    for indexes, views, labels in module.train_dataloader():
        for place, label in enumerate(labels.tolist()):
            distances = (expected - views[0][place]).abs().flatten(1).mean(1)
            nearest = int(distances.argmin())
            # Two decoders may differ by a level or two of 255.
            assert distances[nearest] < 0.03
            assert torch.equal(views[0][place], views[1][place])
            assert label == nearest // 3
            assert int(indexes[place]) == nearest
            seen += 1
    assert seen == 24


@needs_dali
def test_a_dali_probe_follows_crops_flips_and_statistics_of_the_recipe(jpegs, probing, trainer):
    mean, std = [0.3, 0.4, 0.5], [0.2, 0.25, 0.3]
    cfg = probing("none", "folder", jpegs / "train", f"data.val_path={jpegs / 'val'}", *DALI)
    OmegaConf.set_struct(cfg, False)
    cfg.data.augmentations = {
        "crop_size": 32,
        "crop_min_scale": 1.0,
        "flip_prob": 0.0,
        "mean": mean,
        "std": std,
    }
    cfg.backbone = {"name": "narrow_resnet18", "kwargs": {}}
    cfg.pretrain_method = None
    cfg = parse_linear_cfg(cfg)
    module = RunData(cfg, pretraining=False)
    module.trainer = trainer(cfg)
    files = sorted((jpegs / "train").rglob("*.JPEG"))
    expected = torch.stack([pixels_of(path, mean, std) for path in files])
    for images, labels in module.train_dataloader():
        for image, label in zip(images, labels.tolist(), strict=True):
            distances = (expected - image).abs().flatten(1).mean(1)
            assert distances.min() < 0.03
            assert int(distances.argmin()) // 3 == label
    images, _ = next(iter(module.val_dataloader()))
    first = pixels_of(sorted((jpegs / "val").rglob("*.JPEG"))[0], mean, std)
    torch.testing.assert_close(images[0], first)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_dali_without_a_gpu_asks_for_the_cpu(jpegs, pretraining):
    with pytest.raises(ValueError, match=r"dali\.device=gpu needs .* dali\.device=cpu"):
        training.pretrain(pretraining("simclr_margin", "cifar10", jpegs, "data.format=dali"))
