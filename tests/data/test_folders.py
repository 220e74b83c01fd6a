"""Data sets of image files: labels, and images that cannot be read."""

import logging
import shutil
from urllib.error import URLError

import damaged_images
import numpy as np
import pytest
import torch
import torchvision
from torch.utils.data import DataLoader, Subset, TensorDataset

from solo_margins.data import tensors
from solo_margins.data.class_folders import UnreadableImage
from solo_margins.data.folders import (
    ImageFiles,
    Indexed,
    file_of,
    labelled_files,
    report,
    skipped_files,
    torchvision_files,
    total,
    unlabelled_files,
)


@pytest.fixture
def images(image_folder, tmp_path):
    """A copy of the images that a test may spoil."""
    return damaged_images.copied(image_folder, tmp_path / "Bilder mit Umlaut ü")


def pixels(image):
    return torch.as_tensor(np.array(image))


def test_hidden_files_and_folders_are_not_images(images):
    odd = damaged_images.write_readable(damaged_images.classes(images)[0])
    damaged_images.hide_files_in(images / "train")
    (images / "train" / "leer").mkdir()
    samples = labelled_files(images / "train")
    assert len(samples) == 36 + len(odd)
    assert {label for _, label in samples} == {0, 1, 2}


def test_validation_has_the_labels_of_the_training_images(images):
    shutil.rmtree(images / "val" / damaged_images.classes(images)[0].name)
    classes = [folder.name for folder in damaged_images.classes(images)]
    labels = {label for _, label in labelled_files(images / "val", classes)}
    assert labels == {1, 2}, "labels moved up"


def test_unlabelled_images_have_the_label_minus_one(image_folder):
    samples = unlabelled_files(image_folder / "flat")
    assert [label for _, label in samples] == [-1] * 9
    assert samples == sorted(samples)


def test_a_damaged_image_is_an_error_that_names_it(images):
    path = damaged_images.write_unreadable(damaged_images.classes(images)[1], "truncated.jpg")
    dataset = ImageFiles(labelled_files(images / "train"), pixels)
    [index] = [i for i, (file, _) in enumerate(dataset.samples) if file == str(path)]
    for workers in (0, 1):
        with pytest.raises(UnreadableImage) as caught:
            list(DataLoader(Subset(dataset, [index]), num_workers=workers))
        sentence = str(caught.value)
        assert str(path) in sentence
        assert "data.on_error=skip" in sentence


def test_a_skipped_image_is_replaced_by_the_next_one_and_its_label(images):
    path = damaged_images.classes(images)[0] / "zz.png"
    path.write_text("no image")
    dataset = Indexed(ImageFiles(labelled_files(images / "train"), pixels, on_error="skip"))
    index = [file for file, _ in dataset.dataset.samples].index(str(path))
    found, image, label = dataset[index]
    assert (found, label) == (index, 1), "the next image is of the next class"
    assert torch.equal(image, dataset[index + 1][1])


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_share_what_they_skipped(images, persistent, caplog):
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[2], "text.png")
    dataset = ImageFiles(labelled_files(images / "train"), pixels, on_error="skip")
    loader = DataLoader(
        Indexed(dataset), batch_size=4, num_workers=2, persistent_workers=persistent
    )
    for _ in range(2):
        assert sum(len(index) for index, _, _ in loader) == 37
    assert dataset.skipped() == [str(bad)]
    assert skipped_files([loader, dataset, range(3)]) == ([str(bad)], 37)


def test_skipped_images_are_logged_once(images, caplog):
    caplog.set_level(logging.WARNING)
    bad = [
        damaged_images.write_unreadable(damaged_images.classes(images)[label], name)
        for label, name in ((0, "truncated.png"), (2, "text.png"))
    ]
    dataset = ImageFiles(labelled_files(images / "train"), pixels, on_error="skip")
    for _ in range(2):
        assert len(list(dataset)) == 38
        report(Subset(dataset, range(38)), "features")
    lines = [record.message for record in caplog.records]
    for path in bad:
        assert len([line for line in lines if str(path) in line]) == 1
    assert lines[-1].startswith("Features: Skipped 2 images of 38 that cannot be read")
    assert len(lines) == 3
    assert total(["a.png"], 1_000).startswith("Skipped 1 image of 1,000 ")


def test_a_folder_of_damaged_images_is_not_skipped_through(images):
    for folder in damaged_images.classes(images):
        for path in folder.iterdir():
            path.write_text("no image")
    dataset = ImageFiles(labelled_files(images / "train"), on_error="skip")
    with pytest.raises(UnreadableImage, match=r"None of 36 images in a row can be read"):
        dataset[3]


def test_an_index_of_a_batch_names_its_file(images):
    files = ImageFiles(labelled_files(images / "train"))
    names = [file for file, _ in files.samples]
    assert file_of(Indexed(Subset(files, [5, 9])), 1) == names[9]
    assert file_of(Subset(tensors.load(files), [7]), 0) == names[7]
    assert file_of(TensorDataset(torch.zeros(3)), 0) is None


# torchvision's files


def test_damaged_files_are_reported_and_not_replaced(stored, offline):
    path = stored("cifar10", "files")
    (path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"CIFAR-10 was not found, its files in .* damaged"):
        torchvision_files("cifar10", path, "train", download=False)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
@pytest.mark.parametrize("download", [True, None])
def test_torchvision_downloads_when_it_is_asked_to(name, download, stored, tmp_path, monkeypatch):
    published, root = stored(name, "files"), tmp_path / "wanted"
    module = torchvision.datasets.stl10 if name == "stl10" else torchvision.datasets.cifar
    urls = []

    def copy(url, root, **kwargs):
        urls.append(url)
        shutil.copytree(published, root, dirs_exist_ok=True)

    monkeypatch.setattr(module, "download_and_extract_archive", copy)
    with pytest.raises(ValueError, match="was not found"):
        torchvision_files(name, root, "train", download=False)
    assert not urls
    dataset = torchvision_files(name, root, "train", download=download)
    assert urls == [getattr(torchvision.datasets, name.upper()).url]
    assert str(dataset.root) == str(root)

    def fail(url, root, **kwargs):
        raise URLError("no route")

    monkeypatch.setattr(module, "download_and_extract_archive", fail)
    with pytest.raises(ValueError, match=r"could not be downloaded from http.*no route"):
        torchvision_files(name, tmp_path / "other", "train", download=download)
