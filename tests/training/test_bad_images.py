"""Images that are damaged, odd or missing: they train, or the run stops and names them."""

import importlib.util
import logging
from pathlib import Path

import damaged_images
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

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


# what is read


def test_odd_images_and_hidden_files_train(images, on, caplog):
    first = damaged_images.classes(images)[0]
    damaged_images.write_readable(first)
    for split in ("train", "val"):
        damaged_images.hide_files_in(images / split)
        (images / split / "leer").mkdir()
    cfg = on(images)
    result = training.pretrain(cfg)
    assert np.isfinite(list(result.metrics.values())).all()
    state = torch.load(result.checkpoint, weights_only=True)["state_dict"]
    assert len(state["classifier.weight"]) == 3, "a hidden or an empty folder was taken for a class"
    [line] = [r.message for r in caplog.records if "ignored" in r.message]
    assert line.endswith("ignored class folders without images: 1, for example 'leer'.")


# what is refused


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_stops_with_its_name(images, on, workers):
    path = damaged_images.write_unreadable(damaged_images.classes(images)[1], "truncated.jpg")
    with pytest.raises(ValueError) as caught:
        training.pretrain(on(images, f"data.num_workers={workers}", "max_epochs=3"))
    said = str(caught.value)
    assert said.startswith(f"{path} cannot be read as an image: ")
    assert "data.on_error=skip" in said
    assert "\n" not in said


def test_a_damaged_validation_image_stops_with_its_name(images, on):
    path = damaged_images.write_unreadable(images / "val" / "Klasse 0 äß 猫", "empty.jpg")
    with pytest.raises(ValueError, match=str(path)):
        training.pretrain(on(images))


def test_a_missing_or_wrong_folder_is_one_sentence(images, on, tmp_path):
    train = images / "train"
    empty = tmp_path / "nothing"
    (empty / "class").mkdir(parents=True)
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("RGB", (20, 20)).save(flat / "a.png")
    file = next(damaged_images.classes(images)[0].iterdir())
    alone = "data.val_path=null"
    for overrides, expected in (
        (
            (f"data.train_path={empty}", alone),
            "no images in class folders: images end",
        ),
        (
            (f"data.train_path={flat}", alone),
            "data.no_labels=true pretrains on the images directly",
        ),
        ((f"data.train_path={empty}", alone, "data.no_labels=true"), "holds no images: images end"),
        ((f"data.train_path={train}", alone, "data.no_labels=true"), "except in folders inside it"),
        ((f"data.train_path={file}", alone), "is not an existing folder"),
        (("optimizer.batch_size=64",), "exceeds the 36 training images"),
        ((f"data.val_path={empty}",), "data.val_path"),
        (("data.on_error=ignore",), "data.on_error must be one of raise, skip, got 'ignore'"),
    ):
        cfg = on(images)
        for override in overrides:
            key, _, value = override.partition("=")
            OmegaConf.update(cfg, key, None if value == "null" else value, force_add=True)
        cfg.optimizer.batch_size = int(cfg.optimizer.batch_size)
        cfg.data.no_labels = str(cfg.data.get("no_labels", False)) == "true"
        with pytest.raises(ValueError) as caught:
            training.pretrain(cfg)
        assert expected in str(caught.value)
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


# what is skipped


def test_skipped_images_are_replaced_counted_and_told_once(images, on, caplog):
    bad = [
        damaged_images.write_unreadable(damaged_images.classes(images)[label], name)
        for label, name in ((0, "truncated.png"), (2, "text.png"))
    ]
    settings = ("data.on_error=skip", "max_epochs=3", "optimizer.batch_size=6", "seed=3")
    runs = [training.pretrain(on(images, *settings))]
    told = [r.message for r in caplog.records if r.name == "solo_margins.data"]
    for path in bad:
        assert len([text for text in told if str(path) in text]) == 1
    assert told[-1].startswith("Skipped 2 images of 53 that cannot be read")
    listed = (runs[0].folder / "skipped_images.txt").read_text().splitlines()
    assert listed == sorted(map(str, bad))
    runs.append(training.pretrain(on(images, *settings)))
    first, second = (torch.load(r.checkpoint, weights_only=True)["state_dict"] for r in runs)
    assert all(torch.equal(first[key], second[key]) for key in first), "not deterministic"


# the programs


@pytest.fixture
def program(start, finish, on, images, tmp_path):
    """Run main_pretrain.py on the images in a process of its own."""

    def run(*arguments, name="main_pretrain.py"):
        cfg = on(images, "backbone.name=narrow_resnet10", "checkpoint.dir=runs")
        cfg.method, cfg.accelerator, cfg.devices, cfg.strategy = "simclr_margin", "cpu", "1", "auto"
        cfg.defaults = [
            "_self_",
            {"override hydra/hydra_logging": "disabled"},
            {"override hydra/job_logging": "disabled"},
        ]
        cfg.hydra = {"output_subdir": None, "run": {"dir": "."}}
        (tmp_path / "conf").mkdir()
        OmegaConf.save(cfg, tmp_path / "conf" / "own.yaml")
        named = ("--config-dir", tmp_path / "conf", "--config-name", "own")
        return finish(start(ROOT / name, *named, *arguments))

    return run


@pytest.mark.full
def test_an_error_in_a_worker_is_one_sentence_and_code_1(program, images):
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[0], "truncated.jpg")
    done = program("data.num_workers=2", "max_epochs=4")
    assert done.code == 1
    assert "Traceback" not in done.err
    assert done.err.strip().splitlines()[-1].startswith(f"Error: {bad} cannot be read as an image")


@pytest.mark.full
def test_workers_tell_what_they_skip(program, images):
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[0], "truncated.jpg")
    done = program("data.num_workers=2", "max_epochs=4", "+data.on_error=skip")
    assert done.code == 0, done.err
    one, total = [line for line in done.err.splitlines() if line.startswith("Skipped")]
    assert one.startswith(f"Skipped: {bad} cannot be read as an image: ")
    assert total.startswith("Skipped 1 image of 52 that cannot be read")


@pytest.mark.full
def test_two_processes_skip_and_count_together(program, images):
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[0], "truncated.jpg")
    two = ("accelerator=cpu", "devices=2", "strategy=ddp", "max_epochs=4")
    done = program(*two, "+data.on_error=skip")
    assert done.code == 0, done.err
    lines = done.err.strip().splitlines()
    assert len([line for line in lines if "Skipped 1 image of 52" in line]) == 1
    assert str(bad) in done.err


@pytest.mark.full
def test_two_processes_stop_at_a_damaged_image(program, images):
    for folder in damaged_images.classes(images):
        bad = damaged_images.write_unreadable(folder, "truncated.jpg")
    done = program("accelerator=cpu", "devices=2", "strategy=ddp", "max_epochs=4")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert bad.name in done.err


# evaluation


def test_probes_name_and_skip_damaged_images(images, on, linear_config, caplog):
    checkpoint = training.pretrain(on(images)).checkpoint
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[0], "text.png")
    other = damaged_images.write_unreadable(images / "val" / bad.parent.name, "truncated.jpg")
    paths = [f"data.train_path={images / 'train'}", f"data.val_path={images / 'val'}"]

    def linear(*overrides):
        cfg = linear_config(checkpoint, "max_epochs=1", *overrides)
        cfg.data.train_path, cfg.data.val_path = str(images / "train"), str(images / "val")
        return training.linear(cfg)

    arguments = [f"pretrained_feature_extractor={checkpoint}", *paths, "data.num_workers=0"]
    short = ("max_epochs=1", "optimizer.batch_size=8")
    commands = (
        lambda *more: linear(*more),
        lambda *more: knn.knn([*arguments, *more], progress=False),
        lambda *more: probe.probe([*arguments, *short, *more], progress=False),
    )
    for command in commands:
        with pytest.raises(ValueError, match=r"cannot be read as an image"):
            command()
        caplog.clear()
        command("data.on_error=skip")
        told = [r.message for r in caplog.records if r.name == "solo_margins.data"]
        assert [text for text in told if str(other) in text]
    assert any("Skipped 1 image of" in text for text in told)


# DALI


@needs_dali
def test_dali_names_the_image_that_it_cannot_decode(images, on):
    settings = ("data.format=dali", "dali.device=cpu", "max_epochs=3")
    damaged_images.hide_files_in(images / "train")
    (images / "train" / "leer").mkdir()
    result = training.pretrain(on(images, *settings, "max_epochs=1"))
    state = torch.load(result.checkpoint, weights_only=True)["state_dict"]
    assert len(state["classifier.weight"]) == 3
    for name, reason in (("truncated.jpg", "cannot decode"), ("empty.jpg", "cannot open")):
        bad = damaged_images.write_unreadable(damaged_images.classes(images)[-1], name)
        with pytest.raises(ValueError, match=f"DALI {reason}") as caught:
            training.pretrain(on(images, *settings))
        assert str(bad) in str(caught.value)
        assert "\n" not in str(caught.value)
        bad.unlink()
    animated = damaged_images.classes(images)[0] / "animated.gif"
    Image.new("RGB", (20, 20)).save(animated)
    with pytest.raises(ValueError, match=r"animated\.gif is not an image that DALI can read"):
        training.pretrain(on(images, *settings))
    with pytest.raises(ValueError, match=r"on_error=skip is not possible with data\.format"):
        training.pretrain(on(images, *settings, "data.on_error=skip"))


@pytest.fixture(autouse=True)
def told_anew(monkeypatch, caplog):
    """Let every test hear what is told once."""
    monkeypatch.setattr("solo_margins.data.class_folders._warned", set())
    caplog.set_level(logging.WARNING)
