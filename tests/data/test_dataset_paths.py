"""Data sets by name are found in torchvision's files and in image folders."""

import logging
import shutil
from importlib.resources import files

import damaged_images
import pytest
from omegaconf import OmegaConf
from PIL import Image

from solo_margins.data import class_folders
from solo_margins.data.dataset_paths import (
    NAMED,
    OURS,
    resolve,
    unlabelled_folder,
)

CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10}


@pytest.fixture(autouse=True)
def warned_anew(monkeypatch, caplog):
    """Let every test see what is logged once."""
    monkeypatch.setattr(class_folders, "_warned", set())
    caplog.set_level(logging.WARNING)


@pytest.fixture
def on(raw_config):
    """A configuration without a data set's name, on a folder of images."""

    def make(folder, *overrides):
        cfg = raw_config("simclr", *overrides)
        cfg.data.train_path, cfg.data.val_path = str(folder / "train"), str(folder / "val")
        return cfg

    return make


@pytest.fixture
def images(image_folder, tmp_path):
    """A copy of the images that a test may spoil."""
    return damaged_images.copied(image_folder, tmp_path / "Bilder mit Umlaut ü")


def test_our_names_are_those_of_our_configurations():
    groups = files("solo_margins.configs") / "data"
    assert {entry.name.removesuffix(".yaml") for entry in groups.iterdir()} == set(OURS)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("how", ["files", "folder"])
def test_a_named_data_set_is_found_however_it_is_stored(name, how, stored, named_config, offline):
    unlabelled = "data.unlabelled_folder=" + ("unlabeled" if name == "stl10" else "null")
    cfg = named_config(name, stored(name, how), unlabelled)
    assert cfg.data.dataset == (name if how == "files" else "custom")
    assert cfg.data.get("num_classes") == (None if how == "files" else CLASSES[name])
    before = OmegaConf.to_container(cfg.data)
    resolve(cfg, pretraining=True)
    assert OmegaConf.to_container(cfg.data) == before, "a second call changed something"


def test_unlabelled_images_may_lie_beside_the_training_folder(stored, named_config):
    path = stored("stl10", "folder")
    shutil.move(path / "train" / "unlabeled", path / "unlabeled")
    cfg = named_config("stl10", path, "data.unlabelled_folder=unlabeled")
    assert cfg.data.num_classes == 10
    assert unlabelled_folder(cfg) == path / "unlabeled"


def test_a_path_may_name_the_folder_of_classes_or_of_files(stored, named_config):
    folder = stored("cifar10", "folder")
    by_parent, by_train = named_config("cifar10", folder), named_config("cifar10", folder / "train")
    assert by_parent.data.train_path == by_train.data.train_path == str(folder / "train")
    assert by_parent.data.val_path == by_train.data.val_path == str(folder / "test")
    torchvisions = stored("cifar10", "files")
    inner = named_config("cifar10", torchvisions / "cifar-10-batches-py")
    assert inner.data.train_path == inner.data.val_path == str(torchvisions)
    shutil.rmtree(folder / "test")
    assert named_config("cifar10", folder).data.val_path is None


def test_train_and_val_of_any_folder_are_splits_and_not_classes(
    named_config, image_folder, tmp_path
):
    for validation in ("val", "test"):
        root = tmp_path / validation
        shutil.copytree(image_folder / "train", root / "train")
        shutil.copytree(image_folder / "val", root / validation)
        for path in (root, root / "train"):
            cfg = named_config("folder", path)
            assert cfg.data.train_path == str(root / "train")
            assert cfg.data.val_path == str(root / validation)
            assert cfg.data.num_classes == 3


def test_a_class_called_train_is_not_a_training_folder(stored, named_config):
    path = stored("cifar100", "folder") / "train"
    (path / "class007").rename(path / "train")
    shutil.rmtree(path.parent / "test")
    assert named_config("cifar100", path).data.train_path == str(path)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("folder", [None, "nowhere", "empty"])
def test_missing_data_are_one_sentence_that_says_what_to_do(
    name, folder, named_config, tmp_path, offline
):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"data\.train_path") as caught:
        named_config(name, None if folder is None else tmp_path / folder)
    sentence = str(caught.value)
    assert NAMED[name].title in sentence
    assert "\n" not in sentence
    assert ("data.download=true" in sentence) == (NAMED[name].files is not None)


@pytest.mark.parametrize("name", NAMED)
def test_what_torchvision_downloads_may_be_missing(name, named_config, tmp_path):
    if NAMED[name].files is None:
        with pytest.raises(ValueError, match=r"data\.train_path"):
            named_config(name, tmp_path, "data.download=true")
    else:
        cfg = named_config(name, tmp_path, "data.download=true")
        assert (cfg.data.dataset, cfg.data.train_path) == (name, str(tmp_path))


def test_tiny_imagenet_as_downloaded_names_the_script(named_config, tmp_path):
    raw = tmp_path / "tiny-imagenet-200"
    (raw / "train" / "n01443537" / "images").mkdir(parents=True)
    (raw / "wnids.txt").write_text("n01443537\n")
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(b"")
    for path in (raw, tmp_path, tmp_path / "tiny-imagenet-200.zip"):
        with pytest.raises(ValueError, match=r"python scripts/prepare_tinyimagenet\.py /"):
            named_config("tinyimagenet", path)


@pytest.mark.parametrize(
    ("name", "how", "overrides", "named"),
    [
        ("cifar10", "files", ["data.format=dali"], r"data\.format=dali"),
        ("cifar10", "files", ["data.val_path=elsewhere"], "cifar-10-batches-py"),
        ("cifar10", "folder", ["data.format=dali", "data.on_error=skip"], "on_error=skip"),
        ("cifar10", "folder", ["data.on_error=ignore"], "on_error must be"),
        ("cifar10", "folder", ["data.fraction=2"], r"data\.fraction must be"),
    ],
)
def test_what_cannot_be_read_is_refused(stored, named_config, name, how, overrides, named):
    with pytest.raises(ValueError, match=named):
        named_config(name, stored(name, how), *overrides)


def test_folders_of_other_data_are_refused(stored, named_config):
    folder = stored("cifar10", "folder")
    with pytest.raises(ValueError, match="10 class folders, but CIFAR-100 has 100"):
        named_config("cifar100", folder)
    with pytest.raises(ValueError, match="data=folder"):
        named_config("digits", folder)
    with pytest.raises(ValueError, match="unlabelled_folder=absent"):
        named_config("stl10", folder, "data.unlabelled_folder=absent")
    shutil.rmtree(folder / "test" / "class003")
    with pytest.raises(ValueError, match="class003"):
        named_config("cifar10", folder)


def test_hidden_and_empty_folders_are_not_classes(images, on, caplog):
    for split in ("train", "val"):
        damaged_images.hide_files_in(images / split)
        (images / split / "leer").mkdir()
    cfg = on(images)
    resolve(cfg, pretraining=True)
    resolve(cfg, pretraining=True)
    assert cfg.data.num_classes == 3
    [line] = [r.message for r in caplog.records if "ignored" in r.message]
    assert line.endswith("ignored class folders without images: 1, for example 'leer'.")


def test_classes_of_validation_must_be_trained_on(images, on, caplog):
    first = damaged_images.classes(images)[0]
    for path in (images / "val" / first.name).iterdir():
        path.unlink()
    cfg = on(images)
    resolve(cfg, pretraining=True)
    assert "data.val_path" in caplog.text
    (images / "val" / "neue").mkdir()
    Image.new("RGB", (8, 8)).save(images / "val" / "neue" / "a.png")
    with pytest.raises(ValueError, match=r"same class folders .* 'neue' is in only one"):
        resolve(cfg, pretraining=True)


@pytest.mark.parametrize(
    ("key", "folder", "no_labels", "named"),
    [
        ("train_path", "nothing", False, r"data\.train_path"),
        ("train_path", "flat", False, r"data\.no_labels=true"),
        ("train_path", "nothing", True, r"data\.train_path"),
        ("train_path", "images/train", True, r"data\.train_path"),
        ("val_path", "nothing", False, r"data\.val_path"),
    ],
)
def test_a_folder_without_usable_images_is_refused(
    image_folder, on, tmp_path, key, folder, no_labels, named
):
    (tmp_path / "images").symlink_to(image_folder)
    (tmp_path / "nothing" / "class").mkdir(parents=True)
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "flat" / "a.png")
    cfg = on(image_folder)
    cfg.data.no_labels = no_labels
    cfg.data[key] = str(tmp_path / folder)
    with pytest.raises(ValueError, match=named):
        resolve(cfg, pretraining=True)


def test_files_that_are_no_images_are_named(on, tmp_path, caplog):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("no image")
    cfg = on(tmp_path)
    cfg.data = {"dataset": "custom", "train_path": str(tmp_path), "no_labels": True}
    resolve(cfg, pretraining=True)
    assert cfg.data.num_classes == 1
    assert "notes.txt" in caplog.text


def test_configurations_of_others_are_left_alone(stored, raw_config, image_folder):
    path = stored("cifar10", "files")
    cfg = raw_config("simclr", "data.dataset=cifar10", f"data.train_path={path}")
    before = OmegaConf.to_container(cfg)
    resolve(cfg, pretraining=True)
    assert OmegaConf.to_container(cfg) == before
    cfg = raw_config("simclr")
    before = OmegaConf.to_container(cfg.data)
    resolve(cfg, pretraining=True)
    assert OmegaConf.to_container(cfg.data) == {**before, "num_classes": 3}
    # Without a name of ours it is a class like the others.
    resolved = raw_config("simclr", "data.unlabelled_folder=class0")
    resolve(resolved, pretraining=True)
    assert resolved.data.num_classes == 3
    assert unlabelled_folder(resolved) is None
