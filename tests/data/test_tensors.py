"""Data sets that are decoded once, and the batches that are made of them."""

import os
import shutil
import subprocess
import sys

import damaged_images
import numpy as np
import pytest
import torch
from PIL import Image

from solo_margins import files as files_module
from solo_margins.data import folders, tensors
from solo_margins.data.batch_views import BatchView
from solo_margins.data.class_folders import UnreadableImage
from solo_margins.data.datamodule import RunData
from solo_margins.training.pretrain import parsed_pretraining

TENSORS = "data.format=tensors"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("SOLO_MARGINS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def images(image_folder, tmp_path):
    """A copy of some images that a test may change."""
    return damaged_images.copied(image_folder, tmp_path / "Bilder mit Umlaut ü")


def files_in(folder, **options):
    return folders.ImageFiles(folders.labelled_files(folder / "train"), **options)


def decoded_folders(cache):
    return [path for path in (cache / "tensors-v1").iterdir() if path.is_dir()]


def test_decoded_images_are_those_of_the_files(cache, images):
    odd = damaged_images.classes(images)[1] / "odd size.png"
    Image.fromarray(np.full((7, 50, 3), 9, np.uint8)).save(odd)
    files = files_in(images)
    decoded = tensors.load(files)
    assert len(decoded) == len(files)
    assert decoded.targets.tolist() == files.targets
    pixels = decoded.bytes_of(torch.arange(len(files)))
    assert pixels.shape == (len(files), 3, 36, 50)
    for index, (image, _) in enumerate(files):
        stored = pixels[index, :, : image.height, : image.width]
        assert torch.equal(stored, torch.from_numpy(np.array(image)).permute(2, 0, 1))
    # Images of one size take another way.
    odd.unlink()
    same = tensors.load(files_in(images)).bytes_of(torch.arange(36))
    assert torch.equal(same[:20], pixels[:20, :, :, :40])


def test_unchanged_images_are_decoded_once(cache, images, monkeypatch):
    tensors.load(files_in(images))
    [folder] = decoded_folders(cache)
    written = (folder / "pixels").stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(folders, "read_image", lambda path: pytest.fail(f"{path} was decoded"))
        again = tensors.load(files_in(images))
    assert (folder / "pixels").stat().st_mtime_ns == written
    assert isinstance(again.pixels, np.memmap), "processes do not share the bytes"
    changed = min(damaged_images.classes(images)[0].glob("*.png"))
    Image.fromarray(np.zeros((36, 40, 3), np.uint8)).save(changed)
    anew = tensors.load(files_in(images))
    assert len(decoded_folders(cache)) == 2
    assert not anew.bytes_of(torch.tensor([0])).any()


def test_images_of_equal_size_and_time_are_decoded_anew(cache, images, tmp_path):
    file = damaged_images.classes(images)[0] / "00.bmp"
    Image.new("RGB", (9, 8), (1, 2, 3)).save(file)
    [index] = [i for i, (name, _) in enumerate(files_in(images).samples) if name == str(file)]
    tensors.load(files_in(images))
    before = file.stat()
    other = tmp_path / "other.bmp"
    Image.new("RGB", (9, 8), (7, 8, 9)).save(other)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    # Keeps the time, as unpacking an archive does.
    shutil.copy2(other, file)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    decoded = tensors.load(files_in(images)).bytes_of(torch.tensor([index]))
    assert decoded[0, :, 0, 0].tolist() == [7, 8, 9]


def load_in_a_process(folder, first=""):
    code = (
        f"{first}\n"
        "from solo_margins.data import folders, tensors\n"
        f"files = folders.labelled_files({str(folder / 'train')!r})\n"
        "print(tensors.load(folders.ImageFiles(files)).pixels.sum())"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_that_start_together_decode_once(cache, images):
    started = [load_in_a_process(images) for _ in range(2)]
    outputs = [process.communicate(timeout=500) for process in started]
    sums, told = zip(*outputs, strict=True)
    assert len(set(sums)) == 1, told
    assert int(sums[0]) > 0
    assert sum("decoding once" in text for text in told) == 1
    names = sorted(path.name for path in (cache / "tensors-v1").iterdir())
    assert len(names) == 2, names
    assert names[1] == f"{names[0]}.lock"


def test_an_interrupted_decoding_leaves_nothing_half_written(cache, images, monkeypatch):
    real, read = folders.read_image, []

    def interrupted(path):
        read.append(path)
        if len(read) == 50:
            raise KeyboardInterrupt
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "read_image", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tensors.load(files_in(images))
    assert decoded_folders(cache) == []
    assert len(tensors.load(files_in(images))) == 36


STOPS_WHILE_DECODING = """
import os, signal
from solo_margins.data import folders
real, read = folders.read_image, []
def waiting(path):
    read.append(path)
    # The first 36 reads are for the estimate of the memory.
    if len(read) == 50:
        os.kill(os.getpid(), signal.SIGSTOP)
    return real(path)
folders.read_image = waiting
"""


@pytest.mark.parametrize("same_images", [True, False])
def test_the_unfinished_folder_of_a_process_stays_until_it_is_killed(
    cache, images, image_folder, same_images
):
    process = load_in_a_process(images, STOPS_WHILE_DECODING)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    [unfinished] = decoded_folders(cache)
    assert unfinished.name.startswith(".")
    tensors.load(files_in(image_folder))
    assert unfinished.is_dir()
    process.kill()
    process.communicate()
    # While it lived, others waited for it to decode the same images.
    tensors.load(files_in(images if same_images else image_folder))
    assert not unfinished.exists()
    for complete in decoded_folders(cache):
        names = sorted(path.name for path in complete.iterdir())
        assert names == ["labels.npy", "pixels", "shapes.npy"]


def test_an_unreadable_image_is_named_or_skipped_in_every_run(cache, images):
    bad = damaged_images.write_unreadable(damaged_images.classes(images)[1], "truncated.jpg")
    with pytest.raises(UnreadableImage, match=r"truncated\.jpg"):
        tensors.load(files_in(images))
    for _ in range(2):  # the second decodes nothing
        decoded = tensors.load(files_in(images, on_error="skip"))
        assert folders.skipped_files([decoded])[0] == [str(bad)]


@pytest.mark.parametrize("name", ["pixels", "labels.npy"])
def test_files_that_a_crash_cut_off_are_decoded_anew(cache, images, name):
    tensors.load(files_in(images))
    [folder] = decoded_folders(cache)
    os.truncate(folder / name, 0)
    assert len(tensors.load(files_in(images))) == 36


def test_large_images_are_refused(cache, images):
    Image.new("RGB", (513, 20)).save(damaged_images.classes(images)[0] / "huge.png")
    with pytest.raises(ValueError, match="513 × 20"):
        tensors.load(files_in(images))


def test_a_cache_that_cannot_be_written_is_refused(images, monkeypatch):
    (images / "a file").touch()
    monkeypatch.setenv("SOLO_MARGINS_CACHE", str(images / "a file"))
    with pytest.raises(ValueError, match="SOLO_MARGINS_CACHE"):
        tensors.load(files_in(images))


def test_images_that_do_not_fit_the_memory_are_refused(cache, images, monkeypatch):
    monkeypatch.setattr(files_module, "free_memory", lambda: 100_000)
    with pytest.raises(ValueError, match="of memory"):
        tensors.load(files_in(images))


def test_kornia_is_asked_for_by_name(image_folder):
    _, told = load_in_a_process(
        image_folder, "import sys; sys.modules['kornia'] = None"
    ).communicate(timeout=200)
    assert "ImportError: data.format=tensors needs kornia" in told


CROPS = BatchView(16, (0.0,) * 3, (1.0,) * 3, area=(0.2, 1.0), steps=(0, 0, 0, 0, 0, 0.5))


def test_ranks_make_together_the_views_of_one_process(cache, images, at):
    decoded = tensors.load(files_in(images))

    def views_of(rank, ranks):
        batches = tensors.TensorBatches(decoded, CROPS, 8 // ranks, seed=1, indexed=True)
        batches.trainer = at(rank, ranks)
        return [(indexes, views) for indexes, views, _ in batches]

    ranks = zip(views_of(0, 2), views_of(1, 2), strict=True)
    for (indexes, views), ((first, ones), (second, others)) in zip(
        views_of(0, 1), ranks, strict=True
    ):
        assert torch.equal(indexes, torch.stack([first, second], 1).flatten())
        assert torch.equal(views, torch.stack([ones, others], 1).flatten(0, 1))


def test_views_for_features_have_numbers_of_their_own(cache, images):
    decoded = tensors.load(files_in(images))

    def views_of(number, batch_size, seed=0):
        views = tensors.TensorViews(decoded, CROPS, number, seed)
        return torch.cat([batch for batch, _ in tensors.view_loader(views, batch_size)])

    views = views_of(3, 30)
    assert views.shape == (36, 3, 3, 16, 16)
    for number in range(3):
        assert not torch.equal(views[:, number], views[:, number - 1])
    assert torch.equal(views, views_of(3, 1))
    assert torch.equal(views[:, :2], views_of(2, 30))
    assert not torch.equal(views, views_of(3, 30, seed=1))


@pytest.mark.parametrize("name", ["cifar10", "stl10"])
def test_torchvisions_files_become_the_same_bytes(cache, name, stored, named_config, offline):
    given = {"data.unlabelled_folder=unlabeled"} if name == "stl10" else set()
    batches = []
    for how in ("files", "folder"):
        cfg = parsed_pretraining(named_config(name, stored(name, how), *given))
        cfg.data.format = "tensors"
        data = RunData(cfg, pretraining=True)
        pixels = data.train.dataset.bytes_of(torch.arange(len(data.train.dataset)))
        batches.append((sorted(data.train.dataset.targets.tolist()), pixels.sum((1, 2, 3))))
    assert batches[0][0] == batches[1][0]
    assert torch.equal(batches[0][1].sort().values, batches[1][1].sort().values)


def test_a_classifier_is_trained_on_crops_and_validated_on_the_centre(
    cache, linear_config, trainer
):
    changes = ("data.fraction=0.5", "optimizer.batch_size=9")
    data = RunData(linear_config(TENSORS, *changes), pretraining=False)
    by_pil = RunData(linear_config(*changes), pretraining=False)
    assert data.train.dataset.indices == by_pil.train.dataset.indices
    images, _ = next(iter(data.train))
    assert images.shape == (9, 3, 16, 16)
    assert [label for _, labels in data.train for label in labels.tolist()] == [
        label for _, labels in by_pil.train for label in labels.tolist()
    ]
    for (ours, labels), (theirs, same) in zip(data.validation, by_pil.validation, strict=True):
        assert labels.tolist() == same.tolist()
        # Two bytes, divided by the standard deviation of ImageNet.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2.1 / 255 / 0.224)
