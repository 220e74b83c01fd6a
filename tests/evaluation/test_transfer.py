"""Backbones on other data than they were pretrained on, and on few labels of it."""

import json

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins.data.dataset_paths import take_data_of_pretraining
from solo_margins.data.folders import stratified_indices
from solo_margins.data.image_spec import classifier_spec
from solo_margins.evaluation.knn import knn
from solo_margins.evaluation.probe import probe
from solo_margins.evaluation.task import load_task, parse
from solo_margins.files import digits_folder
from solo_margins.resolvers import composed

STATISTICS_OF_CIFAR10 = [0.4914, 0.4822, 0.4465]


def all_three(checkpoint, slow_probe, data, path):
    """Return the slow probe's run, and the figures of the fast one and of kNN."""
    where = [f"data={data}", f"data.train_path={path}"]
    slow = slow_probe(checkpoint, *where, "optimizer.batch_size=8", "limit_train_batches=1")
    named = [f"pretrained_feature_extractor={checkpoint}", *where, "data.num_workers=0"]
    settings = ["passes=0", "max_epochs=2", "optimizer.batch_size=8"]
    return slow, probe([*named, *settings], progress=False), knn([*named, "k=2"], progress=False)


# solo-learn gives CIFAR's resnet18 a 3×3 stem with padding 2, and STL-10's the one of ImageNet.
@pytest.mark.parametrize(
    ("backbone", "data", "how", "classes"),
    [("resnet18", "stl10", "folder", 10), ("narrow_resnet10", "cifar100", "files", 100)],
)
def test_stem_size_and_statistics_are_those_of_the_checkpoint(
    backbone, data, how, classes, stored, cifar10_checkpoint, slow_probe, offline
):
    checkpoint = cifar10_checkpoint(backbone)
    path = stored(data, how, per_class=1)
    slow, fast, neighbours = all_three(checkpoint, slow_probe, data, path)
    args = json.loads((slow.folder / "args.json").read_text())
    assert args["data"]["augmentations"]["crop_size"] == 32
    assert args["data"]["augmentations"]["mean"] == STATISTICS_OF_CIFAR10
    state = torch.load(slow.checkpoint, weights_only=True)["state_dict"]
    assert state["backbone.conv1.weight"].shape[2:] == (3, 3)
    assert state["classifier.weight"].shape == (classes, fast.num_features)
    pretrained = torch.load(checkpoint, weights_only=True)["state_dict"]
    for key, value in state.items():
        if key.startswith("backbone."):
            assert torch.equal(value, pretrained[key]), key
    assert (fast.num_classes, fast.train_images) == (classes, classes)
    assert 0 <= neighbours["acc1"] <= 100


def test_the_fast_probe_builds_the_padding_of_the_checkpoint(cifar10_checkpoint, stored):
    checkpoint = cifar10_checkpoint("resnet18")
    path = stored("stl10", "folder", per_class=1)
    named = [f"pretrained_feature_extractor={checkpoint}", "data=stl10", f"data.train_path={path}"]
    cfg, _ = parse(named, {})
    task = load_task(cfg)
    assert task.backbone.conv1.padding == (2, 2)
    assert isinstance(task.backbone.maxpool, torch.nn.Identity)
    _, centre = classifier_spec(task.cfg).transforms()
    assert centre(task.train[0][0]).shape == (3, 32, 32)


def test_what_does_not_load_is_an_error(digits_checkpoint, slow_probe):
    message = r"holds another backbone than the one configured"
    named = f"pretrained_feature_extractor={digits_checkpoint}"
    with pytest.raises(ValueError, match=message):
        probe([named, "backbone.name=cifar_resnet18"])
    with pytest.raises(ValueError, match=message):
        knn([named, "backbone.name=narrow_resnet18"])
    with pytest.raises(ValueError, match=message):
        slow_probe(digits_checkpoint, "backbone.name=narrow_resnet18")


def test_other_data_without_a_path_are_not_those_of_the_pretraining(digits_checkpoint, slow_probe):
    with pytest.raises(ValueError, match=r"CIFAR-10 was not found"):
        slow_probe(digits_checkpoint, "data=cifar10", "data.train_path=null")


def completed(checkpoint, *settings):
    cfg = composed("linear.yaml", [f"pretrained_feature_extractor={checkpoint}", *settings])
    OmegaConf.set_struct(cfg, False)
    take_data_of_pretraining(cfg)
    before = OmegaConf.to_container(cfg.data)
    take_data_of_pretraining(cfg)
    assert OmegaConf.to_container(cfg.data) == before, "a second call changed something"
    return cfg


def test_a_probe_has_the_data_of_its_pretraining(cifar10_checkpoint, slow_probe):
    checkpoint = cifar10_checkpoint("narrow_resnet10")
    trained = json.loads((checkpoint.parent / "args.json").read_text())["data"]
    quick = ("optimizer.batch_size=8", "limit_train_batches=1")
    for chosen in ((), ("data=cifar10",)):
        slow = slow_probe(checkpoint, *quick, *chosen, f"run_id=probe{len(chosen)}")
        args = json.loads((slow.folder / "args.json").read_text())
        assert args["name"] == "linear-cifar10"
        for key in ("name", "dataset", "train_path", "val_path", "num_classes"):
            assert args["data"][key] == trained[key]
    named = [f"pretrained_feature_extractor={checkpoint}", "data.num_workers=0", "k=2"]
    assert knn(named, progress=False) == knn([*named, "data=cifar10"], progress=False)


def test_only_what_is_left_open_is_that_of_the_pretraining(tmp_path):
    data = {"name": "imagenet", "dataset": "imagenet", "train_path": "/old/train"}
    data |= {"val_path": "/old/val", "format": "dali", "num_workers": 7}
    args = {"data": data, "dali": {"device": "cpu"}}
    (tmp_path / "args.json").write_text(json.dumps(args))
    found = completed(tmp_path)
    assert {key: found.data[key] for key in data} == data
    assert (found.dali.device, found.max_epochs, found.name) == ("cpu", 90, "linear-imagenet")
    moved = completed(tmp_path, "data.train_path=/new", "data.format=image_folder")
    assert (moved.data.name, moved.data.train_path, moved.data.val_path) == (
        *("imagenet", "/new"),
        None,
    )
    assert (moved.data.format, moved.dali.device) == ("image_folder", "gpu")
    validated = completed(tmp_path, "data.val_path=/new").data
    assert (validated.train_path, validated.val_path) == ("/old/train", "/new")
    other = completed(tmp_path, "data=cifar10").data
    assert (other.name, other.train_path, other.format) == ("cifar10", None, "image_folder")
    by_hand = completed(tmp_path, "data.dataset=cifar100", "data.train_path=/new").data
    assert (by_hand.name, by_hand.dataset, by_hand.val_path) == (None, "cifar100", None)


def test_the_digits_are_found_wherever_they_are_now(digits_checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("SOLO_MARGINS_CACHE", str(tmp_path))
    data = completed(digits_checkpoint).data
    assert (data.name, data.train_path) == ("digits", digits_folder("train"))
    assert str(tmp_path) in data.val_path


def test_data_without_a_name_are_called_by_what_they_are(foreign_checkpoint):
    cfg = completed(foreign_checkpoint)
    assert (cfg.data.name, cfg.data.dataset, cfg.name) == (None, "custom", "linear-custom")


def test_a_share_of_every_class_is_chosen_by_the_seed():
    labels = torch.arange(1000) % 10
    labels[:15] = 10
    chosen = stratified_indices(labels, 0.1, seed=1)
    counts = labels[chosen].bincount().tolist()
    assert counts == [round(0.1 * int((labels == label).sum())) for label in range(11)]
    assert torch.equal(chosen, stratified_indices(labels, 0.1, seed=1))
    assert not torch.equal(chosen, stratified_indices(labels, 0.1, seed=2))
    assert sorted(labels[stratified_indices(labels, 1e-6, seed=1)].tolist()) == list(range(11))


@pytest.mark.parametrize("data", ["cifar10", "stl10"])
def test_few_labels_of_torchvisions_files(data, stored, cifar10_checkpoint, slow_probe):
    checkpoint = cifar10_checkpoint("narrow_resnet10")
    path = stored(data, "files", per_class=4, root=checkpoint.parent / "few")
    where = [f"data={data}", f"data.train_path={path}"]
    slow = slow_probe(checkpoint, *where, "data.fraction=0.01", "optimizer.batch_size=4")
    assert torch.load(slow.checkpoint, weights_only=True)["global_step"] == 10 // 4
    settings = ["label_fraction=0.5", "optimizer.batch_size=4", "max_epochs=1", "passes=0"]
    named = [f"pretrained_feature_extractor={checkpoint}", *where, "data.num_workers=0"]
    assert probe([*named, *settings], progress=False).train_images == 20
