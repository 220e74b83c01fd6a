"""Backbones on other data than they were pretrained on, and on few labels of it."""

import json

import pytest
import torch
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from solo_margins import results, training
from solo_margins.data.dataset_paths import take_data_of_pretraining
from solo_margins.data.image_spec import classifier_spec
from solo_margins.evaluation.knn import knn
from solo_margins.evaluation.probe import linear_and_knn, probe
from solo_margins.evaluation.task import load_task, parse
from solo_margins.evaluation.transfer import transfer
from solo_margins.files import digits_folder
from solo_margins.resolvers import composed

STATISTICS_OF_CIFAR10 = [0.4914, 0.4822, 0.4465]


# solo-learn gives CIFAR's resnet18 a 3×3 stem with padding 2, and STL-10's the one of ImageNet.
@pytest.mark.parametrize(
    ("backbone", "data", "how", "classes", "padding"),
    [("resnet18", "stl10", "folder", 10, 2), ("narrow_resnet10", "cifar100", "files", 100, 1)],
)
def test_stem_size_and_statistics_are_those_of_the_checkpoint(
    backbone, data, how, classes, padding, stored, cifar10_checkpoint, slow_probe, offline
):
    checkpoint = cifar10_checkpoint(backbone)
    where = [f"data={data}", f"data.train_path={stored(data, how, per_class=1)}"]
    slow = slow_probe(checkpoint, *where, "optimizer.batch_size=8", "limit_train_batches=1")
    args = json.loads((slow.folder / "args.json").read_text())
    assert args["data"]["augmentations"]["crop_size"] == 32
    assert args["data"]["augmentations"]["mean"] == STATISTICS_OF_CIFAR10
    state = torch.load(slow.checkpoint, weights_only=True)["state_dict"]
    assert state["backbone.conv1.weight"].shape[2:] == (3, 3)
    assert len(state["classifier.weight"]) == classes
    pretrained = torch.load(checkpoint, weights_only=True)["state_dict"]
    for key, value in state.items():
        if key.startswith("backbone."):
            assert torch.equal(value, pretrained[key]), key

    cfg, _ = parse([f"pretrained_feature_extractor={checkpoint}", *where], {})
    task = load_task(cfg)
    assert (task.cfg.data.num_classes, len(task.train)) == (classes, classes)
    assert task.backbone.conv1.padding == (padding, padding)
    assert task.backbone(torch.zeros(1, 3, 32, 32)).shape[1] == state["classifier.weight"].shape[1]
    _, centre = classifier_spec(task.cfg).transforms()
    assert centre(task.train[0][0]).shape == (3, 32, 32)


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


def test_few_labels_of_torchvisions_files(stored, cifar10_checkpoint, slow_probe):
    checkpoint = cifar10_checkpoint("narrow_resnet10")
    where = ["data=stl10", f"data.train_path={stored('stl10', 'files', per_class=4)}"]
    slow = slow_probe(checkpoint, *where, "data.fraction=0.01", "optimizer.batch_size=4")
    assert torch.load(slow.checkpoint, weights_only=True)["global_step"] == 10 // 4
    settings = ["label_fraction=0.5", "optimizer.batch_size=4", "max_epochs=1", "passes=0"]
    named = [f"pretrained_feature_extractor={checkpoint}", *where, "data.num_workers=0"]
    assert probe([*named, *settings], progress=False).train_images == 20


def test_several_data_sets_are_one_table(digits_checkpoint, image_folder, capsys, tmp_path):
    file = tmp_path / "runs.jsonl"
    named = [f"pretrained_feature_extractor={digits_checkpoint}", "data.num_workers=0"]
    settings = ["max_epochs=3", "optimizer.batch_size=8"]
    of_images = f"images.train_path={image_folder}"
    figures = transfer(
        [*named, *settings, "data=[digits,images]", of_images, f"results={file}"], progress=False
    )
    said = capsys.readouterr().out.splitlines()
    assert "| data | linear | kNN | recall@1 |" in said
    for name, alone in (
        ("digits", ["data=digits"]),
        ("images", ["data=folder", f"data.train_path={image_folder}"]),
    ):
        layer, neighbours = linear_and_knn([*named, *settings, *alone, "passes=0"], progress=False)
        measured = (layer.acc1, neighbours["acc1"], neighbours["recall_at_1"])
        assert figures[name]["linear_acc1"] == measured[0]
        assert f"| {name} | {measured[0]:.2f} | {measured[1]:.2f} | {measured[2]:.2f} |" in said
    lines = results.read(file)
    assert [line.figures for line in lines] == list(figures.values())
    assert [(line.kind, line.data) for line in lines] == [
        ("transfer", "digits"),
        ("transfer", "folder"),
    ]
    assert len({line.id for line in lines}) == 2
    assert lines[0].pretraining["method"] == "simclr_margin"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ([], r"data=\[cifar10,cifar100\]"),
        (["data=[digits,pets]"], r"pets\.train_path"),
        (["data=[digits,cifar10]"], r"cifar10 .*data\.train_path"),
        (["data=[digits]", "digits.colour=red"], r"'data\.colour=red'"),
    ],
)
def test_a_wrong_data_set_is_found_before_the_first_is_evaluated(
    digits_checkpoint, settings, named, capsys
):
    with pytest.raises(ValueError, match=named):
        transfer([f"pretrained_feature_extractor={digits_checkpoint}", *settings], progress=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("labels", "images", "epochs"), [(1, 10, 60), (10, 141, 30)])
def test_a_network_is_fine_tuned_on_few_labels(
    digits_checkpoint, tmp_path, labels, images, epochs, capsys, configured
):
    cfg = configured(
        *("finetune.yaml", f"pretrained_feature_extractor={digits_checkpoint}"),
        *(f"labels={labels}", "optimizer.batch_size=10", f"checkpoint.dir={tmp_path}"),
        *("check_val_every_n_epoch=10", f"results={tmp_path / 'runs.jsonl'}"),
    )
    run = training.linear(cfg)
    content = torch.load(run.checkpoint, weights_only=True)
    assert content["global_step"] == epochs * (images // 10)
    [groups] = [state["param_groups"] for state in content["optimizer_states"]]
    assert [group["name"] for group in groups] == ["backbone", "classifier"]
    for group in groups:
        # 0.05 for each 256 images of a batch.
        assert group["initial_lr"] == pytest.approx(0.05 * 10 / 256)
        assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, True, 0)
    pretrained = torch.load(digits_checkpoint, weights_only=True)["state_dict"]
    key = "backbone.conv1.weight"
    assert not torch.equal(content["state_dict"][key], pretrained[key])
    assert run.metrics["val_acc1"] > (50 if labels == 10 else 15), "chance is 10 %"
    [line] = results.read(tmp_path / "runs.jsonl")
    assert (line.kind, line.settings["labels"]) == ("finetune", labels)
    assert "Fine-tuned network" in capsys.readouterr().out


def test_other_shares_of_labels_have_no_recipe(digits_checkpoint, configured):
    named = f"pretrained_feature_extractor={digits_checkpoint}"
    with pytest.raises(InterpolationResolutionError, match=r"labels must be 1 or 10"):
        training.linear(configured("finetune.yaml", named, "labels=5"))
    # Of a frozen network all labels are used.
    with pytest.raises(ValueError, match="finetune=true"):
        training.linear(configured("linear.yaml", named, "+labels=10"))
