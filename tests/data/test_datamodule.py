"""The data of a run: batches, labels and mistakes, of every way to store images."""

import importlib.util
import shutil

import lightning.pytorch as pl
import pytest
import torch
from omegaconf import OmegaConf
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from torch.utils.data import DataLoader

from solo_margins.data.datamodule import RunData, classifier_images
from solo_margins.data.dataset_paths import resolve
from solo_margins.data.folders import skipped_files
from solo_margins.data.image_spec import classifier_spec

needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="DALI is not installed",
)
DALI = ("data.format=dali", "dali.device=cpu")


def parsed(cfg):
    return parse_pretrain_cfg(cfg)


def labels_of(data):
    return [data.train.dataset[i][2] for i in range(len(data.train.dataset))]


def test_a_batch_has_indexes_views_and_labels(config):
    data = RunData(config("mocov3"), pretraining=True)
    indexes, views, targets = next(iter(data.train_dataloader()))
    assert [view.shape for view in views] == [(8, 3, 16, 16)] * 2
    assert not torch.equal(*views)
    # The folder is sorted by class, so the index tells the label.
    assert torch.equal(indexes // 12, targets)
    images, labels = next(iter(data.val_dataloader()))
    assert images.shape[1:] == (3, 16, 16), "validation must have the size of the views"
    assert set(labels.tolist()) <= {0, 1, 2}
    assert skipped_files(data.loaders) == ([], 36 + 15)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10"])
def test_both_ways_to_store_a_data_set_show_the_same_images(name, stored, named_config, offline):
    unlabelled = "data.unlabelled_folder=" + ("unlabeled" if name == "stl10" else "null")
    stores = {}
    for how in ("files", "folder"):
        cfg = parsed(named_config(name, stored(name, how), unlabelled))
        data = RunData(cfg, pretraining=True)
        validation = DataLoader(data.validation.dataset, batch_size=len(data.validation.dataset))
        stores[how] = (*next(iter(validation)), labels_of(data))
    (images, labels, trained), (same_images, same_labels, same_trained) = stores.values()
    assert torch.equal(images, same_images)
    assert torch.equal(labels, same_labels)
    assert labels.unique().tolist() == list(range(100 if name == "cifar100" else 10))
    # Two of each class, and for STL-10 thirty without a label.
    assert trained == same_trained
    assert trained.count(-1) == (30 if name == "stl10" else 0)
    assert trained.count(0) == 2


@pytest.mark.parametrize("how", ["files", "folder"])
def test_stl10_is_classified_by_labelled_images_only(how, stored, linear_config, offline):
    cfg = linear_config(
        *("data.name=stl10", f"data.train_path={stored('stl10', how)}", "data.val_path=null"),
        *("data.unlabelled_folder=unlabeled", "data.download=false"),
    )
    train, validation = classifier_images(cfg)
    assert (len(train), len(validation)) == (20, 10)
    assert {int(label) for _, label in train} == set(range(10))
    assert train[0][0].size == (96, 96), "a transform is applied"


def test_any_folder_may_have_unlabelled_images(named_config, image_folder, tmp_path):
    path = shutil.copytree(image_folder / "train", tmp_path / "train")
    shutil.copytree(image_folder / "flat", path / "class0-more" / "deeper")
    settings = ("data.unlabelled_folder=class0-more", "data.dataset=custom")
    cfg = parsed(named_config("folder", path, *settings))
    labels = labels_of(RunData(cfg, pretraining=True))
    assert [labels.count(label) for label in (-1, 0, 1, 2)] == [9, 12, 12, 12]
    cfg = parsed(named_config("folder", path, *settings, "data.fraction=0.34"))
    labels = labels_of(RunData(cfg, pretraining=True))
    assert [labels.count(label) for label in (-1, 0, 1, 2)] == [3, 4, 4, 4]


def test_a_fraction_of_the_images_is_fixed_and_stratified(config):
    kept = []
    for seed in (1, 2):
        cfg = config("mocov3", "data.fraction=0.5", "optimizer.batch_size=6", f"seed={seed}")
        data = RunData(cfg, pretraining=True)
        kept.append(data.train.dataset.dataset.indices)
        labels = labels_of(data)
        assert [labels.count(label) for label in range(3)] == [6, 6, 6]
        # Indexes are those of the images that are left: methods remember images by them.
        assert max(index for indexes, _, _ in data.train for index in indexes.tolist()) < 18
    assert kept[0] == kept[1]


def test_a_classifier_is_trained_on_crops_and_validated_on_the_centre(linear_config):
    cfg = linear_config()
    data = RunData(cfg, pretraining=False)
    images, labels = next(iter(data.train))
    assert images.shape == (8, 3, 16, 16)
    assert set(labels.tolist()) <= {0, 1, 2}
    assert [len(labels) for _, labels in data.validation] == [8, 7]
    _, centre = classifier_spec(cfg).transforms()
    _, validation = classifier_images(cfg)
    assert torch.equal(data.validation.dataset[3][0], centre(validation[3][0]))


def test_validation_without_a_class_keeps_the_labels(config, image_folder, tmp_path):
    shutil.copytree(image_folder / "val", tmp_path / "val")
    shutil.rmtree(tmp_path / "val" / "class0")
    data = RunData(config("mocov3", f"data.val_path={tmp_path / 'val'}"), pretraining=True)
    assert {label for _, labels in data.validation for label in labels.tolist()} == {1, 2}


def test_auto_augment_augments_training_images_alone(linear_config):
    plain, augmented = (
        RunData(linear_config(f"auto_augment={value}"), pretraining=False)
        for value in ("false", "true")
    )
    images, _ = next(iter(augmented.train))
    assert images.shape == (8, 3, 16, 16)
    assert not torch.equal(images, next(iter(plain.train))[0])
    assert torch.equal(augmented.validation.dataset[0][0], plain.validation.dataset[0][0])


def test_few_labels_follow_the_seed(linear_config):
    kept = [
        classifier_images(linear_config("data.fraction=0.01", f"seed={seed}"))[0].indices
        for seed in (1, 1, 2)
    ]
    assert kept[0] == kept[1] != kept[2]
    assert [index // 12 for index in kept[0]] == [0, 1, 2]


@pytest.mark.parametrize("pretraining", [True, False])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"optimizer": {"batch_size": 64}}, r"batch_size=64 .* 36 training images"),
        ({"optimizer": {"batch_size": 20}, "devices": [0, 1]}, r"batch_size=20 .* 36 .* 2 ranks"),
        ({"data": {"train_path": "nowhere"}}, r"data\.train_path"),
        ({"data": {"val_path": "nowhere"}}, r"data\.val_path"),
        ({"data": {"train_path": None}}, r"data\.train_path"),
        ({"data": {"format": "h5"}}, r"data\.format must be"),
    ],
)
def test_mistakes_are_found_before_the_trainer_starts(
    config, linear_config, pretraining, changes, named
):
    cfg = config("mocov3") if pretraining else linear_config()
    with pytest.raises(ValueError, match=named):
        RunData(OmegaConf.merge(cfg, changes), pretraining)


def test_a_classifier_needs_validation_images(linear_config):
    with pytest.raises(ValueError, match=r"data\.val_path"):
        RunData(linear_config("data.val_path=null"), pretraining=False)


def test_configurations_of_others_let_torchvision_download(stored, raw_config, monkeypatch):
    import torchvision

    path = stored("cifar10", "files")
    cfg = raw_config("simclr", "data.dataset=cifar10", f"data.train_path={path}")
    cfg.data.val_path = str(path)
    downloads = []
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", lambda self: downloads.append(1))
    RunData(parsed(cfg), pretraining=True)
    assert len(downloads) == 2


def test_lightning_chooses_the_images_where_it_is_asked_to(config):
    for setting in ("overfit_batches=1", "use_distributed_sampler=false"):
        assert isinstance(RunData(config("mocov3", setting), True).train_dataloader(), DataLoader)
        with pytest.raises(ValueError, match=r"need data\.format=image_folder, got tensors"):
            RunData(config("mocov3", setting, "data.format=tensors"), True)


class Recorder(pl.LightningModule):
    """Takes batches and trains nothing."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.batches, self.validated = [], 0

    def training_step(self, batch, index):
        self.batches.append(batch)
        return self.weight

    def validation_step(self, batch, index):
        self.validated += len(batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    "overrides", [(), ("data.format=tensors",), pytest.param(DALI, marks=needs_dali)]
)
@pytest.mark.parametrize("validates", [True, False])
def test_a_trainer_takes_new_batches_in_every_epoch(config, trainer, overrides, validates):
    changes = () if validates else ("data.val_path=null",)
    cfg = config("simclr", *overrides, *changes)
    model, data = Recorder(), RunData(cfg, pretraining=True)
    run = trainer(cfg, num_sanity_val_steps=0)
    run.fit(model, datamodule=data)
    # 36 images in batches of 8, the incomplete one dropped, for two epochs.
    assert run.global_step == len(model.batches) == 8
    assert model.validated == (30 if validates else 0)
    epochs = [torch.cat([batch[0] for batch in model.batches[i : i + 4]]) for i in (0, 4)]
    for indexes in epochs:
        assert len(indexes.unique()) == 32
    assert not torch.equal(*epochs)
    for indexes, views, targets in model.batches:
        assert torch.equal(indexes // 12, targets)
        assert [view.shape for view in views] == [(8, 3, 16, 16)] * 2
    # The order is the same whoever reads the images.
    torch.manual_seed(99)
    pil = RunData(config("simclr"), pretraining=True)
    assert torch.equal(torch.cat([batch[0] for batch in pil.train]), epochs[0])


@needs_dali
def test_dali_reads_unlabelled_images_and_a_fraction(stored, named_config, raw_config):
    path = stored("stl10", "folder")
    cfg = parsed(named_config("stl10", path, "data.unlabelled_folder=unlabeled"))
    cfg.data.format, cfg.dali = "dali", {"device": "cpu"}
    resolve(cfg, pretraining=True)
    targets = torch.cat([targets for _, _, targets in RunData(cfg, pretraining=True).train])
    assert len(targets) == 48
    assert (targets == -1).sum() >= 28
    cfg.data.fraction = 0.5
    data = RunData(cfg, pretraining=True)
    assert len(data.train.dataset) == 10 + 15
    cfg.data.fraction = -1
    cfg.data.dataset, cfg.data.train_path = "cifar10", str(stored("cifar10", "files"))
    with pytest.raises(ValueError, match=r"data\.format=dali reads image folders"):
        RunData(cfg, pretraining=True)
