"""The fast probe and kNN of real checkpoints, as functions and as a command."""

import dataclasses
import json

import pytest
import torch

from solo_margins.evaluation.features import Features
from solo_margins.evaluation.knn import knn, knn_accuracy
from solo_margins.evaluation.probe import linear_and_knn, probe


def test_a_probe_of_the_digits(digits_checkpoint, capsys):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "max_epochs=20", "passes=0"]
    found = probe(given, progress=False)
    assert (found.train_images, found.validation_images) == (1433, 364)
    assert (found.num_classes, found.num_features, found.epochs) == (10, 128, 20)
    # Three steps are nearly no training; chance is 10 %.
    assert 40 < found.acc1 < found.acc5 <= 100
    assert f"acc1 = {found.acc1:.2f} %" in capsys.readouterr().out
    json.dumps(dataclasses.asdict(found))


def test_augmented_passes_and_few_labels(digits_checkpoint):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "max_epochs=5", "passes=1"]
    few = [*given, "label_fraction=0.1", "optimizer.batch_size=32"]
    found = probe(few, progress=False)
    assert (found.passes, found.train_images) == (1, 141)
    assert probe(few, progress=False).acc1 == found.acc1
    least = probe([*given, "label_fraction=0.0001", "optimizer.batch_size=10"], progress=False)
    assert least.train_images == 10, "one image a class"


@pytest.mark.parametrize("passes", [0, 1])
def test_both_at_once_are_what_each_is_alone(digits_checkpoint, passes):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "label_fraction=0.2"]
    settings = ["max_epochs=3", f"passes={passes}", "optimizer.batch_size=64"]
    layer, neighbours = linear_and_knn([*given, *settings], progress=False)
    alone = probe([*given, *settings], progress=False)
    assert (layer.acc1, layer.acc5, layer.passes) == (alone.acc1, alone.acc5, passes)
    assert neighbours == knn(given, progress=False)


def test_checkpoints_of_others_are_evaluated_on_their_own_data(foreign_checkpoint):
    given = [f"pretrained_feature_extractor={foreign_checkpoint.parent}", "data.num_workers=0"]
    settings = ["optimizer.batch_size=8", "max_epochs=20", "optimizer.lr=100", "passes=2"]
    found = probe([*given, *settings], progress=False)
    assert (found.num_classes, found.train_images, found.validation_images) == (3, 36, 15)
    # Brightness tells the three classes apart.
    assert found.acc1 > 50
    assert knn([*given, "k=3"], progress=False)["acc1"] > 50


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("passes=many", r"passes must be a whole number of at least 0, got 'many'"),
        ("passes=-1", r"passes must be a whole number of at least 0, got -1"),
        ("mixup=0.2", r"'mixup=0.2' is not a setting of the form key=value: the keys are .*passes"),
        ("--passes", r"'--passes' is not a setting"),
        ("label_fraction=2", r"data\.fraction must be between 0 and 1"),
        ("label_fraction=0.001", r"batch_size=256 exceeds the 10 training images"),
        ("optimizer.name=sgdd", r"optimizer\.name must be one of adam"),
        ("scheduler.name=step", r"scheduler\.name must be one of warmup_cosine"),
        ("max_epochs=0", r"max_epochs must be a whole number of at least 1"),
        ("data=cifar", r"data must be one of cifar10, "),
        ("data=cifar10", r"CIFAR-10 was not found, data\.train_path has no value"),
        ("data.val_path=/nowhere", r"data=digits has its own images.*data=folder"),
        ("backbone.name=narrow_resnet18", r"holds another backbone"),
        ("device=tpu", r"device=tpu cannot be used"),
        ("device=[cpu]", r"device=\['cpu'\] cannot be used"),
        ("max_epochs=[", r"max_epochs must be a value in YAML's notation, got '\['"),
        ("extraction_batch_size=0", r"extraction_batch_size must be a whole number above 0, got 0"),
    ],
)
def test_mistakes_on_the_probes_command_line(digits_checkpoint, argument, message):
    with pytest.raises(ValueError, match=message):
        probe([f"pretrained_feature_extractor={digits_checkpoint}", argument], progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"Name what to evaluate: pretrained_feature_extractor="),
        (["pretrained_feature_extractor=/nowhere.ckpt"], r"/nowhere\.ckpt does not exist"),
    ],
)
@pytest.mark.parametrize("command", [probe, knn])
def test_a_checkpoint_must_be_named(command, arguments, message):
    with pytest.raises(ValueError, match=message):
        command(arguments)


def test_a_checkpoint_without_its_settings_is_refused(digits_checkpoint, tmp_path):
    copy = tmp_path / "alone.ckpt"
    copy.write_bytes(digits_checkpoint.read_bytes())
    with pytest.raises(ValueError, match=r"args\.json does not say what .* data=<name>"):
        probe([f"pretrained_feature_extractor={copy}"])
    with pytest.raises(ValueError, match=r"args\.json should say .* does not exist"):
        probe([f"pretrained_feature_extractor={copy}", "data=digits"])
    (tmp_path / "args.json").write_text("{")
    with pytest.raises(ValueError, match=r"args\.json .* cannot be read"):
        knn([f"pretrained_feature_extractor={copy}"])


def test_the_command_from_a_foreign_folder(python, digits_checkpoint):
    said = python(
        *("-W", "ignore", "-m", "solo_margins.probe", "max_epochs=2", "passes=1"),
        f"pretrained_feature_extractor={digits_checkpoint.parent}",
    )
    assert "Fast linear probe (2 epochs, 1 augmented passes): acc1 = " in said


def separable(images, offset=0.0):
    labels = torch.arange(images) % 6
    return Features((torch.nn.functional.one_hot(labels, 6) + offset)[None], labels)


def test_knn_of_separable_and_of_shuffled_features():
    found = knn_accuracy(separable(24), separable(12, 0.01), 3, 0.07)
    assert found == {"acc1": 100.0, "acc5": 100.0}
    wrong = separable(24)
    shifted = Features(wrong.values, (wrong.labels + 1) % 6)
    assert knn_accuracy(shifted, separable(12), 3, 0.07)["acc1"] == 0.0
    with pytest.raises(ValueError, match=r"k must be .* got 0"):
        knn_accuracy(shifted, shifted, k=0)


def test_knn_of_a_checkpoint_and_of_its_folder(digits_checkpoint, capsys):
    settings = ["k=3", "label_fraction=0.2", "device=cpu"]
    found = knn([f"pretrained_feature_extractor={digits_checkpoint}", *settings])
    assert found["acc1"] > 30
    said = capsys.readouterr()
    assert f"acc1 = {found['acc1']:.2f} %" in said.out
    assert "validation" in said.err, "there is a progress bar"
    folder = f"pretrained_feature_extractor={digits_checkpoint.parent}"
    assert found == knn([folder, *settings], progress=False)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("neighbours=3", r"'neighbours=3' is not a setting.*temperature"),
        ("--k", r"'--k' is not a setting"),
        ("k=many", r"k must be a whole number above 0, got 'many'"),
        ("temperature=0", r"temperature must be a number > 0, got 0"),
        ("temperature=warm", r"temperature must be a number > 0, got 'warm'"),
        ("distance=l1", r"distance must be one of cosine, euclidean"),
        ("max_epochs=3", r"'max_epochs=3' is not a setting"),
    ],
)
def test_mistakes_on_the_knn_command_line(digits_checkpoint, argument, message):
    with pytest.raises(ValueError, match=message):
        knn([f"pretrained_feature_extractor={digits_checkpoint}", argument])
