"""The fast probe and kNN of real checkpoints, as functions and as a command."""

import dataclasses
import json

import pytest
import torch

from solo_margins import results
from solo_margins.evaluation.features import Features
from solo_margins.evaluation.knn import knn, knn_accuracy, recall_at_1
from solo_margins.evaluation.probe import linear_and_knn, probe


def test_a_probe_of_the_digits(digits_checkpoint, capsys, tmp_path):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "max_epochs=20", "passes=0"]
    given.append("optimizer.batch_size=128")
    found = probe([*given, f"results={tmp_path / 'runs.jsonl'}"], progress=False)
    assert (found.train_images, found.validation_images) == (1433, 364)
    assert (found.num_classes, found.num_features, found.epochs) == (10, 128, 20)
    # Three steps are nearly no training; chance is 10 %.
    assert 40 < found.acc1 < found.acc5 <= 100
    assert f"acc1 = {found.acc1:.2f} %" in capsys.readouterr().out
    json.dumps(dataclasses.asdict(found))
    normalised = [*given, "normalize_features=true", f"results={tmp_path / 'runs.jsonl'}"]
    assert probe(normalised, progress=False).acc1 > found.acc1, "20 epochs are few otherwise"
    assert "normalised features" in capsys.readouterr().out
    plain, other = results.read(tmp_path / "runs.jsonl")
    assert plain.figures == {"linear_acc1": found.acc1, "linear_acc5": found.acc5}
    assert (plain.kind, plain.settings["passes"], plain.data) == ("probe", 0, "digits")
    assert plain.settings["optimizer"]["lr"] == 1, "the rate is not that of the configuration"
    assert "normalize_features" not in plain.settings, "older runs keep their ids"
    assert other.settings["normalize_features"] is True


def test_augmented_passes_and_few_labels(digits_checkpoint):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "max_epochs=5", "passes=1"]
    few = [*given, "label_fraction=0.1", "optimizer.batch_size=32"]
    found = probe(few, progress=False)
    assert (found.passes, found.train_images) == (1, 141)
    assert probe(few, progress=False).acc1 == found.acc1
    least = probe([*given, "label_fraction=0.0001", "optimizer.batch_size=10"], progress=False)
    assert least.train_images == 10, "one image a class"


def test_both_at_once_are_what_each_is_alone(digits_checkpoint):
    given = [f"pretrained_feature_extractor={digits_checkpoint}", "label_fraction=0.2"]
    settings = ["max_epochs=3", "passes=1", "optimizer.batch_size=64"]
    layer, neighbours = linear_and_knn([*given, *settings], progress=False)
    alone = probe([*given, *settings], progress=False)
    assert (layer.acc1, layer.acc5, layer.passes) == (alone.acc1, alone.acc5, 1)
    assert neighbours == knn(given, progress=False)


def test_features_are_read_without_dali_wherever_there_is_no_gpu(digits_checkpoint, tmp_path):
    args = json.loads((digits_checkpoint.parent / "args.json").read_text())
    args["data"]["format"] = "dali"
    (tmp_path / "args.json").write_text(json.dumps(args))
    (tmp_path / "trained.ckpt").symlink_to(digits_checkpoint)
    by_dali, by_pil = (
        knn([f"pretrained_feature_extractor={checkpoint}", "device=cpu"], progress=False)
        for checkpoint in (tmp_path / "trained.ckpt", digits_checkpoint)
    )
    assert by_dali == by_pil


def test_checkpoints_of_others_are_evaluated_on_their_own_data(foreign_checkpoint):
    given = [f"pretrained_feature_extractor={foreign_checkpoint.parent}", "data.num_workers=0"]
    settings = ["optimizer.batch_size=8", "max_epochs=20", "optimizer.lr=100", "passes=2"]
    found = probe([*given, *settings], progress=False)
    assert (found.num_classes, found.train_images, found.validation_images) == (3, 36, 15)
    # Brightness tells the three classes apart.
    assert found.acc1 > 50
    assert knn([*given, "k=3"], progress=False)["acc1"] > 50


@pytest.mark.parametrize(
    ("command", "argument", "named"),
    [
        (probe, "passes=many", "passes"),
        (probe, "passes=-1", "passes"),
        (probe, "mixup=0.2", "'mixup=0.2'.*passes"),
        (probe, "--passes", "'--passes'"),
        (probe, "label_fraction=2", r"data\.fraction"),
        (probe, "label_fraction=0.001", "batch_size=256 .* 10 training images"),
        (probe, "optimizer.name=sgdd", r"optimizer\.name"),
        (probe, "scheduler.name=step", r"scheduler\.name"),
        (probe, "max_epochs=0", "max_epochs"),
        (probe, "normalize_features=1", "normalize_features"),
        (probe, "data=cifar", "data must be one of cifar10, "),
        (probe, "data=cifar10", r"CIFAR-10 .*data\.train_path"),
        (probe, "data.val_path=/nowhere", "data=digits.*data=folder"),
        (probe, "backbone.name=narrow_resnet18", "another backbone"),
        (probe, "device=tpu", "device=tpu"),
        (probe, "device=[cpu]", r"device=\['cpu'\]"),
        (probe, "max_epochs=[", "max_epochs"),
        (probe, "extraction_batch_size=0", "extraction_batch_size"),
        (probe, "results=/dev/null/runs.jsonl", "results"),
        (knn, "neighbours=3", "'neighbours=3'.*temperature"),
        (knn, "k=many", "k must be"),
        (knn, "temperature=0", "temperature"),
        (knn, "distance=l1", "distance"),
        (knn, "max_epochs=3", "'max_epochs=3'"),
    ],
)
def test_mistakes_on_the_command_line(digits_checkpoint, command, argument, named):
    with pytest.raises(ValueError, match=named):
        command([f"pretrained_feature_extractor={digits_checkpoint}", argument], progress=False)


@pytest.mark.parametrize("command", [probe, knn])
def test_a_checkpoint_must_be_named(command):
    with pytest.raises(ValueError, match="pretrained_feature_extractor="):
        command([])
    with pytest.raises(ValueError, match=r"/nowhere\.ckpt does not exist"):
        command(["pretrained_feature_extractor=/nowhere.ckpt"])


def test_a_checkpoint_without_its_settings_is_refused(digits_checkpoint, tmp_path):
    copy = tmp_path / "alone.ckpt"
    copy.write_bytes(digits_checkpoint.read_bytes())
    with pytest.raises(ValueError, match=r"args\.json .* data=<name>"):
        probe([f"pretrained_feature_extractor={copy}"])
    with pytest.raises(ValueError, match=r"args\.json .* does not exist"):
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
    # Every pass votes; the nearest neighbours are in the second one.
    both = Features(torch.cat([-wrong.values, wrong.values]), wrong.labels)
    assert knn_accuracy(both, separable(12), 3, 0.07)["acc1"] == 100.0


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("largest_matrix", [1, 10**6])
def test_recall_counts_images_whose_nearest_other_image_has_their_label(
    distance, largest_matrix, monkeypatch
):
    monkeypatch.setattr("solo_margins.evaluation.knn.LARGEST_MATRIX", largest_matrix)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    # Of the second pass nothing is seen.
    values = torch.randn(2, 40, 3, generator=generator) + labels[:, None]
    hits = 0
    for image, value in enumerate(values[0]):
        others = [other for other in range(40) if other != image]
        if distance == "cosine":
            near = [torch.cosine_similarity(value, values[0, other], dim=0) for other in others]
        else:
            near = [-(value - values[0, other]).norm() for other in others]
        nearest = others[torch.stack(near).argmax()]
        hits += int(labels[nearest] == labels[image])
    assert recall_at_1(Features(values, labels), distance) == pytest.approx(100 * hits / 40)
    assert 0 < hits < 40


def test_knn_of_a_checkpoint_and_of_its_folder(digits_checkpoint, capsys, tmp_path):
    settings = ["k=3", "label_fraction=0.2", "device=cpu"]
    file = tmp_path / "runs.jsonl"
    found = knn([f"pretrained_feature_extractor={digits_checkpoint}", *settings, f"results={file}"])
    assert found["acc1"] > 30
    assert found["recall_at_1"] > 30
    said = capsys.readouterr()
    assert f"acc1 = {found['acc1']:.2f} %" in said.out
    assert f"recall_at_1 = {found['recall_at_1']:.2f} %" in said.out
    assert "validation" in said.err, "there is a progress bar"
    [line] = results.read(file)
    assert line.figures == {
        "knn_acc1": found["acc1"],
        "knn_acc5": found["acc5"],
        "recall_at_1": found["recall_at_1"],
    }
    assert line.settings["k"] == 3
    folder = f"pretrained_feature_extractor={digits_checkpoint.parent}"
    assert found == knn([folder, *settings], progress=False)
