"""Data sets by name, in torchvision's files and in image folders."""

import shutil
from urllib.error import URLError

import pytest
import torch
import torchvision
from omegaconf import OmegaConf

from solo_margins import host
from solo_margins.data import dataset_paths

CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10}


@pytest.fixture
def named_config(raw_config, view):
    """A pretraining configuration with a data set's name."""

    def make(name, path, *overrides, parse=True):
        cfg = raw_config("simclr", "data.val_path=null", "data.download=false", *overrides)
        if name is not None:
            cfg.data.name = name
        cfg.data.train_path = None if path is None else str(path)
        size = cfg.augmentations[0].crop_size
        mean, std = host_statistics(name)
        cfg.augmentations = [view(size, mean=list(mean), std=list(std))]
        return host.parse_pretrain_cfg(cfg) if parse else cfg

    return make


def host_statistics(name):
    from solo_margins.data.image_spec import statistics_of

    return statistics_of(name, {})


def test_our_names_are_those_of_our_configurations():
    from importlib.resources import files

    groups = files("solo_margins.configs") / "data"
    assert {entry.name.removesuffix(".yaml") for entry in groups.iterdir()} == set(
        dataset_paths.OURS
    )


@pytest.mark.parametrize("name", CLASSES)
def test_both_ways_to_store_it_show_the_same_images(
    name, stored, named_config, loaders, offline, monkeypatch
):
    unlabelled = "data.unlabelled_folder=" + ("unlabeled" if name == "stl10" else "null")
    seen = {}
    for how in ("files", "folder"):
        path = stored(name, how)
        cfg = named_config(name, path, unlabelled)
        assert cfg.data.dataset == (name if how == "files" else "custom")
        assert cfg.data.num_classes == CLASSES[name]
        before = OmegaConf.to_container(cfg.data)
        dataset_paths.locate(cfg, pretraining=True)
        assert OmegaConf.to_container(cfg.data) == before, "a second look changed something"
        train, val = loaders(cfg)
        whole = torch.utils.data.DataLoader(val.dataset, batch_size=len(val.dataset))
        images, labels = next(iter(whole))
        seen[how] = images, labels, [train.dataset[i][2] for i in range(len(train.dataset))]
    assert torch.equal(seen["files"][0], seen["folder"][0])
    assert torch.equal(seen["files"][1], seen["folder"][1])
    assert seen["files"][1].unique().tolist() == list(range(CLASSES[name]))
    assert seen["files"][2] == seen["folder"][2]
    # Two of each class, and for STL-10 thirty without a label.
    assert seen["folder"][2].count(-1) == (30 if name == "stl10" else 0)
    assert seen["folder"][2].count(0) == 2


@pytest.mark.parametrize("how", ["files", "folder"])
def test_stl10_is_classified_by_labelled_images_only(how, stored, named_config, offline):
    cfg = named_config("stl10", stored("stl10", how), "data.unlabelled_folder=unlabeled")
    train, val = host.prepare_classification_data(
        cfg.data.dataset,
        train_data_path=cfg.data.train_path,
        val_data_path=cfg.data.val_path,
        num_workers=0,
        batch_size=4,
    )
    assert (len(train.dataset), len(val.dataset)) == (20, 10)
    assert {label for _, label in train.dataset} == set(range(10))


def test_any_folder_may_have_unlabelled_images(named_config, loaders, image_folder, tmp_path):
    path = shutil.copytree(image_folder / "train", tmp_path / "train")
    shutil.copytree(image_folder / "flat", path / "class0-more" / "deeper")
    cfg = named_config("folder", path, "data.unlabelled_folder=class0-more", "data.dataset=custom")
    assert cfg.data.num_classes == 3
    labels = [label for _, _, label in loaders(cfg)[0].dataset]
    assert [labels.count(label) for label in (-1, 0, 1, 2)] == [9, 12, 12, 12]
    half = named_config("folder", path, "data.unlabelled_folder=class0-more", "data.fraction=0.34")
    labels = [label for _, _, label in loaders(half)[0].dataset]
    assert [labels.count(label) for label in (-1, 0, 1, 2)] == [3, 4, 4, 4]
    # The next configuration is not affected.
    assert named_config(None, path).data.num_classes == 4


def test_unlabelled_images_may_lie_beside_the_training_folder(stored, named_config, loaders):
    path = stored("stl10", "folder")
    shutil.move(path / "train" / "unlabeled", path / "unlabeled")
    cfg = named_config("stl10", path, "data.unlabelled_folder=unlabeled")
    assert cfg.data.num_classes == 10
    assert len(loaders(cfg)[0].dataset) == 50


def test_unlabelled_images_neither_teach_nor_count(config, raw_config):
    cfg = config("simclr", "data.unlabelled_folder=more")
    method = host.SimCLR(cfg)
    images, targets = torch.randn(4, 3, 16, 16), torch.tensor([0, -1, 1, -1])
    out = method.base_training_step(images, targets)
    logits = out["logits"]
    expected = torch.nn.functional.cross_entropy(logits[::2], targets[::2])
    torch.testing.assert_close(out["loss"], expected)
    hits = (logits[::2].argmax(1) == targets[::2]).float().mean() * 100
    torch.testing.assert_close(out["acc1"].squeeze(), hits)
    nothing = method.base_training_step(images, torch.full((4,), -1))
    assert nothing["acc1"] == nothing["loss"] == 0


def test_a_path_may_name_the_folder_of_classes_or_of_files(stored, named_config):
    folder = stored("cifar10", "folder")
    by_parent, by_train = named_config("cifar10", folder), named_config("cifar10", folder / "train")
    assert by_parent.data.train_path == by_train.data.train_path == str(folder / "train")
    assert by_parent.data.val_path == by_train.data.val_path == str(folder / "test")
    files = stored("cifar10", "files")
    inner = named_config("cifar10", files / "cifar-10-batches-py")
    assert inner.data.train_path == inner.data.val_path == str(files)
    shutil.rmtree(folder / "test")
    assert named_config("cifar10", folder).data.val_path is None


def test_train_and_val_of_any_folder_are_parts_and_no_classes(named_config, image_folder, tmp_path):
    for validation in ("val", "test"):
        images = tmp_path / validation
        shutil.copytree(image_folder / "train", images / "train")
        shutil.copytree(image_folder / "val", images / validation)
        for given in (images, images / "train"):
            cfg = named_config("folder", given)
            assert cfg.data.train_path == str(images / "train")
            assert cfg.data.val_path == str(images / validation)
            assert cfg.data.num_classes == 3


def test_a_class_called_train_is_no_training_folder(stored, named_config):
    path = stored("cifar100", "folder") / "train"
    (path / "class007").rename(path / "train")
    shutil.rmtree(path.parent / "test")
    assert named_config("cifar100", path).data.train_path == str(path)


@pytest.mark.parametrize("name", dataset_paths.NAMED)
def test_missing_data_are_one_sentence_that_says_what_to_do(name, named_config, tmp_path, offline):
    data = dataset_paths.NAMED[name]
    (tmp_path / "empty").mkdir()
    for path in (None, tmp_path / "nowhere", tmp_path / "empty"):
        with pytest.raises(ValueError) as caught:
            named_config(name, path)
        said = str(caught.value)
        assert said.startswith(f"{data.title} was not found, data.train_path")
        assert "http" in said
        assert "data.train_path=<folder>" in said
        assert ("data.download=true" in said) == (data.files is not None)
        assert "\n" not in said
        assert path is None or str(path) in said
    if data.files is None:
        # torchvision cannot download these.
        with pytest.raises(ValueError, match="was not found"):
            named_config(name, tmp_path / "empty", "data.download=true")


def test_tiny_imagenet_as_downloaded_names_the_script(named_config, tmp_path):
    raw = tmp_path / "tiny-imagenet-200"
    (raw / "train" / "n01443537" / "images").mkdir(parents=True)
    (raw / "wnids.txt").write_text("n01443537\n")
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(b"")
    for path in (raw, tmp_path, tmp_path / "tiny-imagenet-200.zip"):
        with pytest.raises(ValueError, match=r"python scripts/prepare_tinyimagenet\.py /"):
            named_config("tinyimagenet", path)


def test_what_cannot_be_read_is_refused(stored, named_config, tmp_path):
    files, folder = stored("cifar10", "files"), stored("cifar10", "folder")
    stl10 = stored("stl10", "folder")
    unlabelled = "data.unlabelled_folder=unlabeled"
    wrong = [
        (("cifar10", files, "data.format=dali"), r"data\.format=dali reads image folders"),
        (("cifar10", files, "data.fraction=0.5"), r"data\.fraction=0\.5 needs CIFAR-10 as an"),
        (("cifar10", files, f"data.val_path={tmp_path}"), r"holds no cifar-10-batches-py"),
        (("cifar100", folder), r"holds 10 class folders, but CIFAR-100 has 100 classes"),
        (("stl10", folder, unlabelled), r"unlabelled_folder=unlabeled is no folder in"),
        (("stl10", stl10, unlabelled, "data.format=dali"), r"cannot tell .*unlabeled from a class"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            named_config(*arguments)
    cfg = named_config("cifar10", files, parse=False)
    cfg.augmentations[0].mean = [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match=r"augmentations\.0 must be \[0\.4914"):
        host.parse_pretrain_cfg(cfg)
    shutil.rmtree(folder / "test" / "class003")
    with pytest.raises(ValueError, match=r"same class folders .* 'class003' is in one"):
        named_config("cifar10", folder)


def test_damaged_files_are_reported_and_not_replaced(stored, named_config, loaders, offline):
    path = stored("cifar10", "files")
    (path / "cifar-10-batches-py" / "data_batch_3").write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"CIFAR-10 was not found, its files in .* damaged"):
        loaders(named_config("cifar10", path))


@pytest.mark.parametrize("name", CLASSES)
def test_torchvision_downloads_when_it_is_asked_to(
    name, stored, named_config, loaders, tmp_path, monkeypatch
):
    published, wanted = stored(name, "files"), tmp_path / "wanted"
    module = torchvision.datasets.stl10 if name == "stl10" else torchvision.datasets.cifar
    asked = []

    def download(url, root, **kwargs):
        asked.append(url)
        shutil.copytree(published, root, dirs_exist_ok=True)

    monkeypatch.setattr(module, "download_and_extract_archive", download)
    train, val = loaders(named_config(name, wanted, "data.download=true"))
    assert asked == [getattr(torchvision.datasets, name.upper()).url]
    assert {str(train.dataset.root), str(val.dataset.root)} == {str(wanted)}

    def fail(url, root, **kwargs):
        raise URLError("no route")

    monkeypatch.setattr(module, "download_and_extract_archive", fail)
    with pytest.raises(ValueError, match=r"could not be downloaded from http.*no route"):
        loaders(named_config(name, tmp_path / "other", "data.download=true"))


def test_configurations_of_others_are_left_alone(stored, raw_config, loaders, monkeypatch):
    path = stored("cifar10", "files")
    cfg = raw_config("simclr", "data.dataset=cifar10", f"data.train_path={path}")
    cfg.data.val_path = str(path)
    cfg = host.parse_pretrain_cfg(cfg)
    assert dataset_paths.current() == dataset_paths.Reading()
    asked = []
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", lambda self: asked.append(self))
    loaders(cfg)
    assert len(asked) == 3, "solo-learn's own habit is to let torchvision look for the files"
    assert torchvision.datasets.CIFAR10.__module__ == "torchvision.datasets.cifar"


@pytest.mark.parametrize(("name", "kept"), [("sgd", {"momentum"}), ("adamw", {"betas"})])
def test_settings_of_another_optimizer_are_dropped(raw_config, name, kept):
    cfg = raw_config("simclr", f"optimizer.name={name}")
    cfg.optimizer.kwargs = {"momentum": 0.8, "eta": 0.001, "exclude_bias_n_norm": True}
    assert set(host.parse_pretrain_cfg(cfg).optimizer.kwargs) == kept
