"""Images that are damaged, odd or missing: they train, or the run stops and names them."""

import importlib.util
import logging
from pathlib import Path

import damaged_images
import numpy as np
import pytest
from omegaconf import OmegaConf
from stopped_runs import differences, loaded

from solo_margins import training
from solo_margins.evaluation import knn, probe

ROOT = Path(__file__).resolve().parents[2]

needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="DALI is not installed",
)


@pytest.fixture
def images(image_folder, tmp_path):
    """A copy of the images that a test may spoil."""
    return damaged_images.copied(image_folder, tmp_path / "Bilder mit Umlaut ü")


@pytest.fixture
def on(config):
    """A short configuration for a folder of images."""

    def make(folder, *overrides):
        cfg = config("max_epochs=1", "enable_model_summary=false", *overrides)
        cfg.data.train_path = str(folder / "train")
        cfg.data.val_path = str(folder / "val")
        return cfg

    return make


def test_odd_images_and_hidden_files_train(images, on):
    damaged_images.write_readable(damaged_images.classes(images)[0])
    for split in ("train", "val"):
        damaged_images.hide_files_in(images / split)
        (images / split / "leer").mkdir()
    result = training.pretrain(on(images))
    assert np.isfinite(list(result.metrics.values())).all()
    weights = loaded(result.checkpoint)["state_dict"]
    assert len(weights["classifier.weight"]) == 3, "a hidden or empty folder became a class"


@pytest.mark.parametrize(
    ("place", "name", "workers"),
    [("train", "truncated.jpg", 0), ("train", "truncated.jpg", 2), ("val", "empty.jpg", 0)],
)
def test_a_damaged_image_stops_with_its_name(images, on, place, name, workers):
    path = damaged_images.write_unreadable(images / place / "Klasse 0 äß 猫", name)
    with pytest.raises(ValueError) as caught:
        training.pretrain(on(images, f"data.num_workers={workers}", "max_epochs=3"))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_class_and_no_labels_train(images, on, tmp_path):
    for name in damaged_images.classes(images)[1:]:
        for split in ("train", "val"):
            (images / split / name.name).rename(tmp_path / f"{split}-{name.name}")
    assert training.pretrain(on(images, "optimizer.batch_size=6")).checkpoint
    alone = on(images, "optimizer.batch_size=6", "data.no_labels=true")
    alone.data.train_path, alone.data.val_path = str(damaged_images.classes(images)[0]), None
    (Path(alone.data.train_path) / "notes.txt").write_text("no image")
    assert training.pretrain(alone).checkpoint


def test_skipped_images_are_replaced_counted_and_told_once(images, on, caplog):
    bad = [
        damaged_images.write_unreadable(damaged_images.classes(images)[label], name)
        for label, name in ((0, "truncated.png"), (2, "text.png"))
    ]
    settings = ("data.on_error=skip", "max_epochs=3", "optimizer.batch_size=6", "seed=3")
    run = training.pretrain(on(images, *settings))
    told = [record.message for record in caplog.records if record.name == "solo_margins.data"]
    for path in bad:
        assert len([text for text in told if str(path) in text]) == 1
    assert "2 images of 53" in told[-1]
    assert (run.folder / "skipped_images.txt").read_text().splitlines() == sorted(map(str, bad))
    again = training.pretrain(on(images, *settings))
    assert differences(run.checkpoint, again.checkpoint) == []


@pytest.fixture
def program(start, finish, written, images, tmp_path):
    """Run main_pretrain.py on the images in a process of its own."""
    file = tmp_path / "conf" / "own.yaml"
    cfg = OmegaConf.load(file)
    cfg.data.train_path, cfg.data.val_path = str(images / "train"), str(images / "val")
    cfg.backbone.name = "narrow_resnet10"
    OmegaConf.save(cfg, file)
    return lambda *words: finish(start(ROOT / "main_pretrain.py", *written, *words))


WORKERS = ("data.num_workers=2",)
TWO_PROCESSES = ("accelerator=cpu", "devices=2", "strategy=ddp")


@pytest.mark.full
@pytest.mark.parametrize("how", [WORKERS, TWO_PROCESSES], ids=["workers", "processes"])
def test_a_program_names_or_skips_damaged_images(program, images, how):
    for folder in damaged_images.classes(images):
        bad = damaged_images.write_unreadable(folder, "truncated.jpg")
    done = program(*how)
    assert done.code != 0
    assert "Traceback" not in done.err
    assert bad.name in done.err
    done = program(*how, "+data.on_error=skip")
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "Skipped" in line]
    assert len([line for line in lines if "3 images of 54" in line]) == 1
    assert str(bad) in done.err


def test_probes_name_and_skip_damaged_images(images, on, linear_config, caplog):
    checkpoint = training.pretrain(on(images)).checkpoint
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[0], "text.png")
    other = damaged_images.write_unreadable(images / "val" / bad.parent.name, "truncated.jpg")
    paths = [f"data.train_path={images / 'train'}", f"data.val_path={images / 'val'}"]
    arguments = [f"pretrained_feature_extractor={checkpoint}", *paths, "data.num_workers=0"]
    short = ("max_epochs=1", "optimizer.batch_size=8")

    def linear(*overrides):
        return training.linear(linear_config(checkpoint, "max_epochs=1", *paths, *overrides))

    def neighbours(*overrides):
        return knn.knn([*arguments, *overrides], progress=False)

    def fast_probe(*overrides):
        return probe.probe([*arguments, *short, *overrides], progress=False)

    for command in (linear, neighbours, fast_probe):
        with pytest.raises(ValueError, match=r"cannot be read as an image"):
            command()
        caplog.clear()
        command("data.on_error=skip")
        assert str(other) in caplog.text


@needs_dali
def test_dali_names_the_image_that_it_cannot_decode(images, on):
    settings = ("data.format=dali", "dali.device=cpu")
    damaged_images.hide_files_in(images / "train")
    (images / "train" / "leer").mkdir()
    result = training.pretrain(on(images, *settings))
    assert len(loaded(result.checkpoint)["state_dict"]["classifier.weight"]) == 3
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[-1], "truncated.jpg")
    with pytest.raises(ValueError, match="DALI") as caught:
        training.pretrain(on(images, *settings, "max_epochs=3"))
    assert str(bad) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(autouse=True)
def told_anew(monkeypatch, caplog):
    """Let every test hear what is told once."""
    monkeypatch.setattr("solo_margins.data.class_folders._warned", set())
    caplog.set_level(logging.WARNING)
