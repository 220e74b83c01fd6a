"""Data sets by name: found in torchvision's files or in image folders, whichever a path holds.

A configuration with ``data.name`` says which images it means; solo-learn wants to be told how they
are stored. :func:`locate` looks at ``data.train_path`` and writes ``data.dataset``,
``data.train_path`` and ``data.val_path`` as solo-learn reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.data.digits import digits_folder
from solo_margins.host import class_folders, recipe
from solo_margins.host.label_fraction import check_fraction

VALIDATION_FOLDERS = ("val", "test")
PREPARE_TINYIMAGENET = "python scripts/prepare_tinyimagenet.py"


@dataclass(frozen=True)
class NamedData:
    """What is known about a data set before any of its files is seen."""

    title: str
    classes: int
    source: str
    """What to download, and where from."""
    unpacking: str = "unpack it"
    dataset: str = "custom"
    """What solo-learn calls it when it is stored as an image folder."""
    files: str | None = None
    """The folder of torchvision's files; solo-learn calls data that is read from it by our name."""

    def missing(self, reason: str) -> str:
        """Return one sentence that says how to get the images."""
        layouts = "class folders, or train/ and val/ (or test/) with class folders,"
        if self.files is not None:
            layouts = f"{self.files}, {layouts}"
        sentence = (
            f"{self.title} was not found, {reason}: download {self.source}, {self.unpacking}, and "
            f"name the folder that holds {layouts} by data.train_path=<folder>"
        )
        if self.files is not None:
            sentence += "; data.download=true lets torchvision download it there"
        return sentence + "."


NAMED = {
    "cifar10": NamedData(
        "CIFAR-10",
        10,
        "cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html",
        files="cifar-10-batches-py",
    ),
    "cifar100": NamedData(
        "CIFAR-100",
        100,
        "cifar-100-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html",
        files="cifar-100-python",
    ),
    "stl10": NamedData(
        "STL-10",
        10,
        "stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10/",
        files="stl10_binary",
    ),
    "tinyimagenet": NamedData(
        "Tiny ImageNet",
        200,
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        unpacking=f"lay it out by `{PREPARE_TINYIMAGENET} tiny-imagenet-200.zip <folder>`",
    ),
    "imagenet": NamedData(
        "ImageNet",
        1000,
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from "
        "https://www.image-net.org/download.php",
        unpacking="unpack them into a folder for each class",
        dataset="imagenet",
    ),
    "imagenet100": NamedData(
        "ImageNet-100",
        100,
        "ImageNet from https://www.image-net.org/download.php",
        unpacking="keep 100 of its class folders, such as those that solo-learn lists in "
        "solo/data/dataset_subset/imagenet100_classes.txt",
        dataset="imagenet100",
    ),
}
"""Data sets that papers use, by ``data.name``."""

READ_FROM_FILES = tuple(name for name, data in NAMED.items() if data.files is not None)

ON_ERROR = ("raise", "skip")
"""What to do about an image that cannot be read."""

OURS = (*NAMED, "digits", "folder")
"""Every ``data.name`` of our configurations; others belong to somebody else."""


@dataclass(frozen=True)
class Reading:
    """How the configuration that is about to run wants its images read."""

    download: bool | None = None
    """None where the configuration does not say: then the host does as it likes."""
    on_error: str = "raise"
    """``"skip"`` takes another image in the place of one that cannot be read."""
    unlabelled_folder: Path | None = None
    classes: tuple[str, ...] = ()
    """The class folders with training images, which number the labels of both parts."""
    class_roots: tuple[str, ...] = ()
    """The folders that hold these class folders."""
    fraction: float | None = None
    """Share of the labelled images that a classifier is trained on; None where it is all."""
    seed: int = 5
    """Which images that share is."""

    def classes_of(self, folder: Any) -> tuple[str, ...] | None:
        """Return the classes of a folder, None where this reading is not about it."""
        known = folder is not None and os.path.abspath(folder) in self.class_roots
        return self.classes if known else None


_current = Reading()


def current() -> Reading:
    """Return how the configuration that was located last wants its images read."""
    return _current


def locate(cfg: DictConfig, pretraining: bool) -> None:
    """Point a configuration to its images as solo-learn reads them, and note how to read them.

    A second call changes nothing. Configurations without a ``data.name`` of ours stay as they are.

    Args:
        cfg: a pretraining or linear configuration, changed in place.
        pretraining: whether unlabelled images are wanted.

    Raises:
        ValueError: the images are missing, incomplete, or cannot be read as configured; the
            message is one sentence.
    """
    global _current
    _current = Reading(download=data_setting(cfg, "download"), on_error=_on_error(cfg))
    fraction = data_setting(cfg, "fraction")
    is_part = fraction is not None and fraction != -1
    if is_part:
        check_fraction(fraction)
    if is_part and not pretraining:
        seed = OmegaConf.select(cfg, "seed", default=Reading.seed)
        _current = replace(_current, fraction=fraction, seed=seed)
    name = data_setting(cfg, "name")
    if data_setting(cfg, "format") == "h5":
        return
    if name in NAMED:
        _find(cfg, name, pretraining)
    elif name == "folder":
        _find_parts(cfg)
    elif name == "digits":
        _refuse_other_images(cfg)
    if data_setting(cfg, "dataset") not in READ_FROM_FILES:
        _current = _read_folders(cfg, _current, pretraining, name in OURS)


def _on_error(cfg: DictConfig) -> str:
    given = data_setting(cfg, "on_error")
    if given is None:
        return "raise"
    if given not in ON_ERROR:
        raise ValueError(f"data.on_error must be one of {', '.join(ON_ERROR)}, got {given!r}.")
    if given == "skip" and data_setting(cfg, "format") == "dali":
        raise ValueError(
            "data.on_error=skip is not possible with data.format=dali, which ends its pipeline at "
            "the first image that it cannot decode: use data.format=image_folder, or "
            "data.on_error=raise."
        )
    return str(given)


def data_setting(cfg: DictConfig, key: str) -> Any:
    """Return a setting of ``data``, None where it is absent or left open."""
    value = OmegaConf.select(cfg, f"data.{key}", default=None)
    return None if value in ("None", "???") else value


def _path(cfg: DictConfig, key: str) -> Path | None:
    value = data_setting(cfg, key)
    return None if value is None else Path(value).expanduser()


def _find(cfg: DictConfig, name: str, pretraining: bool) -> None:
    data = NAMED[name]
    given = _path(cfg, "train_path")
    if given is None:
        raise ValueError(data.missing("data.train_path has no value"))
    if name == "tinyimagenet":
        _refuse_as_downloaded(given)
    wants_dali = data_setting(cfg, "format") == "dali"
    root = None if data.files is None else _root_of_files(given, data.files)
    folder = _class_parent(given)
    if folder is None and data_setting(cfg, "no_labels") and given.is_dir():
        folder = given
    # Where both are stored side by side, DALI can read train/ only.
    if folder is not None and (root is None or (wants_dali and folder != given)):
        _use_folders(cfg, data, given, folder)
        return
    if root is not None or (data.files is not None and data_setting(cfg, "download")):
        if wants_dali:
            raise ValueError(
                f"data.format=dali reads image folders, but data.train_path={given} means "
                f"torchvision's files of {data.title}: data.format=image_folder reads both."
            )
        _use_files(cfg, name, root or given, pretraining)
        return
    holds = "class folders" if data.files is None else f"{data.files} nor class folders"
    state = f"holds no {holds}" if given.is_dir() else "is no existing folder"
    raise ValueError(data.missing(f"data.train_path={given} {state}"))


def _refuse_as_downloaded(path: Path) -> None:
    packed = (path / "tiny-imagenet-200", path / "tiny-imagenet-200.zip")
    if path.suffix == ".zip" or (path / "wnids.txt").is_file():
        found: Path | None = path
    else:
        found = next((candidate for candidate in packed if candidate.exists()), None)
    if found is not None and found.exists():
        raise ValueError(
            f"{found} is Tiny ImageNet as it was downloaded: lay it out as image folders by "
            f"`{PREPARE_TINYIMAGENET} {found} <folder>` and use data.train_path=<folder>."
        )


# torchvision's files


def _root_of_files(path: Path, files: str) -> Path | None:
    """Return the folder that torchvision is to be given, if a path holds its files or is them."""
    if (path / files).is_dir():
        return path
    return path.parent if path.name == files and path.is_dir() else None


def _use_files(cfg: DictConfig, name: str, root: Path, pretraining: bool) -> None:
    data = NAMED[name]
    assert data.files is not None
    fraction = data_setting(cfg, "fraction")
    if pretraining and fraction is not None and fraction > 0:
        raise ValueError(
            f"Pretraining with data.fraction={fraction} needs {data.title} as an image folder, but "
            f"data.train_path={root} means torchvision's files."
        )
    val = _path(cfg, "val_path")
    if val is not None:
        val = _root_of_files(val, data.files) or val
        if not (val / data.files).is_dir() and not data_setting(cfg, "download"):
            raise ValueError(
                f"data.val_path={val} holds no {data.files}: with data.val_path=null "
                f"data.train_path={root} serves for both parts."
            )
    cfg.data.dataset = name
    cfg.data.train_path = str(root)
    cfg.data.val_path = str(val or root)
    _refuse_other_statistics(cfg)


def _refuse_other_statistics(cfg: DictConfig) -> None:
    """Refuse a normalisation that solo-learn would ignore: it goes by the name of the data set."""
    dataset = cfg.data.dataset
    if dataset not in recipe.STATISTICS:
        return
    mean, std = recipe.STATISTICS[dataset]
    for number, view in enumerate(OmegaConf.select(cfg, "augmentations", default=None) or ()):
        named = tuple(view.get("mean") or mean), tuple(view.get("std") or std)
        if named != (mean, std):
            raise ValueError(
                f"mean and std of augmentations.{number} must be {list(mean)} and {list(std)}: "
                f"solo-learn normalises data.dataset={dataset} with these, whatever is configured."
            )


# image folders


def _refuse_other_images(cfg: DictConfig) -> None:
    """Refuse images that would be trained at the size and with the network of the digits."""
    for key, part in (("train_path", "train"), ("val_path", "val")):
        given = _path(cfg, key)
        if given is not None and str(given) != digits_folder(part):
            raise ValueError(
                f"data=digits brings its own images and settings for them, but data.{key}={given} "
                "names others: for images of your own add data=folder."
            )


def _class_parent(path: Path) -> Path | None:
    """Return the folder of class folders that a path means: its ``train``, or itself."""
    if not path.is_dir():
        return None
    # CIFAR-100 has a class "train", which holds images and not folders.
    if (path / "train").is_dir() and class_folders.folders_in(path / "train"):
        return path / "train"
    return path if class_folders.folders_in(path) else None


def _use_folders(cfg: DictConfig, data: NamedData, given: Path, train: Path) -> None:
    root = given if train != given else given.parent
    if _path(cfg, "val_path") is None and train.name == "train":
        cfg.data.val_path = _validation_beside(train)
    unlabelled = data_setting(cfg, "unlabelled_folder")
    if unlabelled and not (train / unlabelled).is_dir() and (root / unlabelled).is_dir():
        cfg.data.unlabelled_folder = os.path.abspath(root / unlabelled)
    cfg.data.dataset = data.dataset
    cfg.data.train_path = str(train)
    _refuse_other_statistics(cfg)
    found = len(class_folders.classes_in(train, _unlabelled_folder(cfg, train)))
    if found != data.classes and not data_setting(cfg, "no_labels"):
        raise ValueError(
            f"data.train_path={train} holds {found} class folders, but {data.title} has "
            f"{data.classes} classes; data=folder takes any image folder."
        )


def _find_parts(cfg: DictConfig) -> None:
    """Take ``train`` and ``val`` (or ``test``) of somebody's folder for parts, not for classes."""
    given = _path(cfg, "train_path")
    train = None if given is None else _class_parent(given)
    if train is None or train.name != "train" or data_setting(cfg, "no_labels"):
        return
    cfg.data.train_path = str(train)
    if _path(cfg, "val_path") is None:
        cfg.data.val_path = _validation_beside(train)


def _validation_beside(train: Path) -> str | None:
    found = (train.parent / name for name in VALIDATION_FOLDERS)
    return next((str(folder) for folder in found if folder.is_dir()), None)


def _unlabelled_folder(cfg: DictConfig, train: Path) -> Path | None:
    name = data_setting(cfg, "unlabelled_folder")
    return None if name is None else train / str(name)


def _read_folders(cfg: DictConfig, reading: Reading, pretraining: bool, is_ours: bool) -> Reading:
    """Return where unlabelled images are and which classes the others have.

    Both parts get the numbering of the training images: the host numbers the folders of each part
    by itself, and labels would be shifted by one that is missing or empty.

    Args:
        cfg: the configuration.
        reading: what is known already.
        pretraining: whether unlabelled images are wanted.
        is_ours: whether the configuration is one of ours, which promise that classes are complete.
    """
    train, val = _path(cfg, "train_path"), _path(cfg, "val_path")
    if train is None or not train.is_dir():
        return reading
    if data_setting(cfg, "no_labels"):
        class_folders.check_unlabelled("data.train_path", train)
        return reading
    unlabelled = _unlabelled_folder(cfg, train) if is_ours else None
    if unlabelled is not None:
        if pretraining and not unlabelled.is_dir():
            raise ValueError(
                f"data.unlabelled_folder={unlabelled.name} is no folder in "
                f"data.train_path={train}: name the folder of unlabelled images, or pretrain on "
                "labelled images alone with data.unlabelled_folder=null."
            )
        if unlabelled.is_dir() and data_setting(cfg, "format") == "dali":
            raise ValueError(
                f"data.format=dali cannot tell data.unlabelled_folder={unlabelled.name} from a "
                "class: use data.format=image_folder."
            )
    classes = class_folders.classes_in(train, unlabelled)
    class_folders.check_classes("data.train_path", train, classes, unlabelled)
    roots = [train]
    if val is not None and val.is_dir():
        others = None if unlabelled is None else val / unlabelled.name
        found = class_folders.classes_in(val, others)
        # A configuration of solo-learn's own may validate on some classes only.
        present = class_folders.folders_in(val, others) if is_ours else classes
        class_folders.check_same_classes(train, val, classes, found, present)
        roots.append(val)
    return replace(
        reading,
        unlabelled_folder=unlabelled,
        classes=tuple(classes),
        class_roots=tuple(os.path.abspath(root) for root in roots),
    )
