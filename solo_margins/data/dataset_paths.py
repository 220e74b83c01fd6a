"""Where the images of a configuration are: torchvision's files or image folders, by ``data.name``.

A configuration of ours says by ``data.name`` which images it means; solo-learn wants to know how
they are stored. `resolve` looks at what ``data.train_path`` holds and writes ``data.dataset``
and the paths accordingly.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoints import args_file, check_exists, read_settings
from solo_margins.config import setting, write
from solo_margins.data import class_folders
from solo_margins.files import digits_folder
from solo_margins.losses.checks import require_choice


@dataclass(frozen=True)
class NamedData:
    """A data set of the papers: its classes, and where to get it."""

    title: str
    classes: int
    # What to download, and where from.
    source: str
    unpacking: str = "unpack it"
    # data.dataset when it is stored as an image folder.
    dataset: str = "custom"
    # Folder of torchvision's files; data.dataset is then the name of the data set.
    files: str | None = None

    def missing(self, reason: str) -> str:
        """Return one sentence that says how to get the images."""
        stored, download = "", ""
        if self.files is not None:
            stored = f"{self.files}, "
            download = "; data.download=true lets torchvision download it there"
        return (
            f"{self.title} was not found, {reason}: download {self.source}, {self.unpacking}, and "
            f"name the folder that holds {stored}class folders, or train/ and val/ (or test/) with "
            f"class folders, by data.train_path=<folder>{download}."
        )


# Data sets that papers use, by data.name.
NAMED = {
    str(name): NamedData(**entry)
    for name, entry in OmegaConf.load(Path(__file__).with_name("named.yaml")).items()
}

# Values of data.dataset that torchvision's own data sets read.
TORCHVISION_FILES = tuple(name for name, data in NAMED.items() if data.files is not None)

# Every data.name of our configurations; others are not ours.
OURS = (*NAMED, "digits", "folder")


def resolve(cfg: DictConfig, pretraining: bool) -> None:
    """Point a configuration to its images, and check them.

    Writes ``data.dataset``, ``data.train_path``, ``data.val_path``, ``data.unlabelled_folder`` and,
    where classes are folders, ``data.num_classes``. A second call changes nothing. In
    configurations without a ``data.name`` of ours only the class folders are checked and counted.

    Args:
        cfg: a pretraining or linear configuration, changed in place.
        pretraining: whether unlabelled images are used.

    Raises:
        ValueError: the images are missing, incomplete, or cannot be read as configured; the
            message is one sentence.
    """
    _check_on_error(cfg)
    fraction = data_fraction(cfg)
    if fraction is not None and not (isinstance(fraction, float) and 0 < fraction < 1):
        raise ValueError(f"data.fraction must be between 0 and 1, or -1 for all, got {fraction!r}.")
    name = setting(cfg, "data.name")
    if name in NAMED:
        _resolve_named(cfg, name)
    elif name == "folder" and not setting(cfg, "data.no_labels"):
        _use_splits(cfg, _class_parent(path_setting(cfg, "train_path")))
    elif name == "digits":
        _refuse_other_images(cfg)
        # The configuration leaves them out for solo-learn's own program, which would show images
        # of 16 pixels at 224.
        cfg.data.val_path = digits_folder("val")
    if setting(cfg, "data.dataset") not in TORCHVISION_FILES:
        _check_folders(cfg, pretraining)


def data_fraction(cfg: DictConfig) -> Any:
    """Return ``data.fraction``, None where all images are used."""
    fraction = setting(cfg, "data.fraction")
    return None if fraction == -1 else fraction


def path_setting(cfg: DictConfig, key: str) -> Path | None:
    """Return a path of ``data``, None where it is not set."""
    value = setting(cfg, f"data.{key}")
    return None if value is None else Path(value).expanduser()


def existing_folder(cfg: DictConfig, key: str) -> Path:
    """Return a folder of ``data``, or raise ``ValueError`` with one sentence if there is none."""
    folder = path_setting(cfg, key)
    if folder is None:
        raise ValueError(f"data.{key} has no value: name a folder of images, data.{key}=<folder>.")
    if not folder.is_dir():
        raise ValueError(f"data.{key}={folder} is not an existing folder (seen from {Path.cwd()}).")
    return folder


def unlabelled_folder(cfg: DictConfig) -> Path | None:
    """Return the folder of unlabelled images that one of our configurations names."""
    train, name = path_setting(cfg, "train_path"), setting(cfg, "data.unlabelled_folder")
    is_used = train is not None and name is not None and setting(cfg, "data.name") in OURS
    return train / str(name) if train is not None and is_used else None


def _check_on_error(cfg: DictConfig) -> None:
    given = setting(cfg, "data.on_error", "raise")
    on_error = require_choice("data.on_error", given, ("raise", "skip"))
    if on_error == "skip" and setting(cfg, "data.format") == "dali":
        raise ValueError(
            "data.on_error=skip is not possible with data.format=dali, which stops at the first "
            "image that it cannot decode: use data.format=image_folder, or data.on_error=raise."
        )


def _resolve_named(cfg: DictConfig, name: str) -> None:
    data = NAMED[name]
    path = path_setting(cfg, "train_path")
    if path is None:
        raise ValueError(data.missing("data.train_path has no value"))
    if name == "tinyimagenet":
        _refuse_as_downloaded(path)
    wants_dali = setting(cfg, "data.format") == "dali"
    files_root = None if data.files is None else _root_of_files(path, data.files)
    folder = _class_parent(path)
    if folder is None and setting(cfg, "data.no_labels") and path.is_dir():
        folder = path
    # Where both are stored side by side, DALI can read train/ only.
    if folder is not None and (files_root is None or (wants_dali and folder != path)):
        _use_folders(cfg, data, path, folder)
    elif files_root is not None or (data.files is not None and setting(cfg, "data.download")):
        if wants_dali:
            raise ValueError(
                f"data.format=dali reads image folders, but data.train_path={path} means "
                f"torchvision's files of {data.title}: data.format=image_folder reads both."
            )
        _use_files(cfg, name, files_root or path)
    else:
        holds = "class folders" if data.files is None else f"{data.files} or class folders"
        state = f"does not hold {holds}" if path.is_dir() else "is not an existing folder"
        raise ValueError(data.missing(f"data.train_path={path} {state}"))


def _refuse_as_downloaded(path: Path) -> None:
    packed = [path / "tiny-imagenet-200", path / "tiny-imagenet-200.zip"]
    if path.suffix == ".zip" or (path / "wnids.txt").is_file():
        packed = [path]
    archive = next((candidate for candidate in packed if candidate.exists()), None)
    if archive is not None:
        raise ValueError(
            f"{archive} is Tiny ImageNet as downloaded: convert it to image folders by "
            f"`python scripts/prepare_tinyimagenet.py {archive} <folder>` and use "
            "data.train_path=<folder>."
        )


# torchvision's files


def _root_of_files(path: Path, files: str) -> Path | None:
    """Return the root of torchvision's files, if a path is it or is the folder of files in it."""
    if (path / files).is_dir():
        return path
    return path.parent if path.name == files and path.is_dir() else None


def _use_files(cfg: DictConfig, name: str, root: Path) -> None:
    files = str(NAMED[name].files)
    val = path_setting(cfg, "val_path")
    if val is not None:
        val = _root_of_files(val, files) or val
        if not (val / files).is_dir() and not setting(cfg, "data.download"):
            raise ValueError(
                f"data.val_path={val} does not hold {files}: data.val_path=null takes the "
                f"validation images from data.train_path={root}, too."
            )
    cfg.data.dataset = name
    cfg.data.train_path = str(root)
    cfg.data.val_path = str(val or root)


# image folders


def _refuse_other_images(cfg: DictConfig) -> None:
    """Refuse images that would be trained at the size and with the network of the digits."""
    for key, split in (("train_path", "train"), ("val_path", "val")):
        path = path_setting(cfg, key)
        if path is not None and str(path) != digits_folder(split):
            raise ValueError(
                f"data=digits has its own images and settings for them, but data.{key}={path} "
                "names others: for images of your own use data=folder."
            )


def _class_parent(path: Path | None) -> Path | None:
    """Return the folder of class folders that a path means: its ``train``, or itself."""
    if path is None or not path.is_dir():
        return None
    # CIFAR-100 has a class "train", which holds images and not folders.
    if (path / "train").is_dir() and class_folders.folders_in(path / "train"):
        return path / "train"
    return path if class_folders.folders_in(path) else None


def _use_folders(cfg: DictConfig, data: NamedData, path: Path, train: Path) -> None:
    root = path if train != path else path.parent
    _use_splits(cfg, train)
    unlabelled = setting(cfg, "data.unlabelled_folder")
    if unlabelled and not (train / unlabelled).is_dir() and (root / unlabelled).is_dir():
        cfg.data.unlabelled_folder = os.path.abspath(root / unlabelled)
    cfg.data.dataset = data.dataset
    classes = len(class_folders.classes_in(train, unlabelled_folder(cfg)))
    if classes != data.classes and not setting(cfg, "data.no_labels"):
        raise ValueError(
            f"data.train_path={train} holds {classes} class folders, but {data.title} has "
            f"{data.classes} classes; data=folder takes any image folder."
        )


def _use_splits(cfg: DictConfig, train: Path | None) -> None:
    """Train on a folder and validate on its sibling, unless another one is configured."""
    if train is None:
        return
    cfg.data.train_path = str(train)
    if train.name == "train" and path_setting(cfg, "val_path") is None:
        siblings = (train.parent / name for name in ("val", "test"))
        cfg.data.val_path = next((str(folder) for folder in siblings if folder.is_dir()), None)


def _check_folders(cfg: DictConfig, pretraining: bool) -> None:
    """Check the class folders of training and validation, and count the classes."""
    train, val = path_setting(cfg, "train_path"), path_setting(cfg, "val_path")
    if train is None or not train.is_dir():
        return
    if setting(cfg, "data.no_labels"):
        class_folders.check_unlabelled("data.train_path", train)
        _write_classes(cfg, 1)
        return
    unlabelled = unlabelled_folder(cfg)
    if unlabelled is not None and pretraining and not unlabelled.is_dir():
        raise ValueError(
            f"data.unlabelled_folder={unlabelled.name} is not a folder in "
            f"data.train_path={train}: name the folder of unlabelled images, or pretrain on "
            "labelled images alone with data.unlabelled_folder=null."
        )
    classes = class_folders.classes_in(train, unlabelled)
    class_folders.check_classes("data.train_path", train, classes, unlabelled)
    if val is not None and val.is_dir():
        others = None if unlabelled is None else val / unlabelled.name
        with_images = class_folders.classes_in(val, others)
        # Configurations that are not ours may validate on some classes only.
        is_ours = setting(cfg, "data.name") in OURS
        present = class_folders.folders_in(val, others) if is_ours else classes
        class_folders.check_same_classes(train, val, classes, with_images, present)
    _write_classes(cfg, len(classes))


def _write_classes(cfg: DictConfig, number: int) -> None:
    # solo-learn knows the number of classes of other data sets by their names.
    if setting(cfg, "data.dataset") == "custom":
        write(cfg, "data.num_classes", number)


# data of a pretraining checkpoint

# Settings of data that say which images there are and how they are read.
HOW = ("name", "dataset", "format", "download", "unlabelled_folder", "num_workers")

WHERE = ("train_path", "val_path")


def take_data_of_pretraining(cfg: DictConfig) -> None:
    """Complete a linear configuration by the data that its checkpoint was pretrained on.

    Without ``data.name`` and ``data.dataset`` the images are those of the pretraining, and so are
    the folders of data of the same name without a path; ``data.train_path`` alone says that the
    images of the pretraining are in another place now. A second call changes nothing.

    Args:
        cfg: a linear configuration, changed in place.

    Raises:
        ValueError: there is no such checkpoint, or it does not say what it was pretrained on; the
            message is one sentence.
    """
    name, dataset = setting(cfg, "data.name"), setting(cfg, "data.dataset")
    is_chosen = name is not None or dataset is not None
    has_path = setting(cfg, "data.train_path") is not None
    checkpoint = setting(cfg, "pretrained_feature_extractor")
    if checkpoint is None or (is_chosen and has_path):
        return
    check_exists(checkpoint)
    args = read_settings(checkpoint) or OmegaConf.create({})
    known: dict[str, Any] = {key: setting(args, f"data.{key}") for key in (*HOW, *WHERE)}
    if name is not None and known["name"] != name:
        return
    if name is None and dataset is not None and known["dataset"] != dataset:
        return
    if known["dataset"] is None and is_chosen:
        return
    if known["dataset"] is None:
        raise ValueError(
            f"{args_file(checkpoint)} does not say what {checkpoint} was pretrained on: name the "
            "data to probe it on, data=<name> data.train_path=<folder>."
        )
    if known["name"] == "digits":
        # The cache may have been elsewhere.
        known["train_path"] = digits_folder("train")
        known["val_path"] = digits_folder("val")
    elif known["name"] not in OURS:
        known["name"] = None
    takes_dali = setting(cfg, "data.format") is None and known["format"] == "dali"
    if takes_dali and setting(args, "dali.device") == "cpu":
        write(cfg, "dali.device", "cpu")
    if has_path:
        # The images are elsewhere now.
        del known["train_path"], known["val_path"]
    for key, value in known.items():
        if setting(cfg, f"data.{key}") is None and value is not None:
            write(cfg, f"data.{key}", value)
