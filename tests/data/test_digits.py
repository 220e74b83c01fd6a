"""The embedded digits: whole or absent, the same for everyone, found by a configuration."""

import hashlib
import multiprocessing
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from solo_margins import files
from solo_margins.files import digits_folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SOLO_MARGINS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_all_images_are_there_and_the_split_is_fixed(cache):
    train, val = Path(digits_folder("train")), Path(digits_folder("val"))
    counts = {split: Counter(p.parent.name for p in split.rglob("*.png")) for split in (train, val)}
    assert sum(counts[train].values()) == 1433
    assert sum(counts[val].values()) == 364
    assert set(counts[train]) == set(counts[val]) == set("0123456789")
    assert min(counts[val].values()) >= 35
    assert not {p.name for p in train.rglob("*.png")} & {p.name for p in val.rglob("*.png")}
    names = "".join(sorted(p.name for p in val.rglob("*.png")))
    assert hashlib.sha256(names.encode()).hexdigest()[:12] == "02000defaa27"
    image = Image.open(next(train.rglob("*.png")))
    assert image.size == (8, 8)
    assert image.getextrema()[1] > 200


def test_an_interrupted_first_use_leaves_nothing_half_written(cache, monkeypatch):
    saved = []

    def interrupted(self, path):
        saved.append(path)
        if len(saved) == 100:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            digits_folder("train")
    assert list(cache.iterdir()) == []
    assert len(list(Path(digits_folder("train")).rglob("*.png"))) == 1433


def test_processes_that_start_together_share_one_folder(cache):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.map(digits_folder, ["train"] * 3)
    assert set(folders) == {str(cache / "digits-v1" / "train")}
    assert [p.name for p in cache.iterdir()] == ["digits-v1"]


def test_an_unknown_split_is_refused(cache):
    with pytest.raises(ValueError, match="splits train and val, got 'test'"):
        digits_folder("test")


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("SOLO_MARGINS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_dir() == tmp_path / "solo-margins"
    monkeypatch.setenv("SOLO_MARGINS_CACHE", str(tmp_path / "here"))
    assert files.cache_dir() == tmp_path / "here"
