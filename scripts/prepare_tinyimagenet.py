"""Lays Tiny ImageNet out as image folders, which every version of solo-learn reads.

    python scripts/prepare_tinyimagenet.py tiny-imagenet-200.zip <destination>

makes ``<destination>/train/<class>/*.JPEG`` and ``<destination>/val/<class>/*.JPEG`` of the archive
(http://cs231n.stanford.edu/tiny-imagenet-200.zip) or of the folder that it was unpacked to. The two
folders appear when all of their images are there; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import stat
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tqdm import tqdm

CLASSES, TRAIN_IMAGES, VAL_IMAGES = 200, 500, 50
"""Size of the real data set: classes, and images of each class."""

# Far above the real archive: 120,000 images of a few kB and some lists, the longest of 3 MB.
MAX_FILES = 1_000_000
MAX_BYTES_OF_A_FILE = 2**22
MAX_BYTES = 2**31

WORK_FOLDER = ".unfinished"


class PreparationError(Exception):
    """The data cannot be laid out; the message is one sentence for the user."""


class ZipSource:
    """Files of an archive, checked before any of them is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as reason:
            raise PreparationError(
                f"{path} is no readable zip archive ({reason}): download it again."
            ) from None
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._archive.infolist():
            _refuse_unsafe(entry.filename, path)
            mode = entry.external_attr >> 16
            if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or not stat.S_IFMT(mode)):
                raise PreparationError(
                    f"{path} holds {entry.filename!r}, which is a link or a device."
                )
            if entry.flag_bits & 1:
                raise PreparationError(f"{path} holds {entry.filename!r}, which is encrypted.")
            if not entry.is_dir():
                if entry.filename in self._entries:
                    raise PreparationError(f"{path} holds {entry.filename!r} twice.")
                self._entries[entry.filename] = entry
        self.sizes = {name: entry.file_size for name, entry in self._entries.items()}
        _refuse_huge(self.sizes, path)

    def read(self, name: str) -> bytes:
        """Return the content of a file; its checksum is verified."""
        try:
            with self._archive.open(self._entries[name]) as file:
                # At most the size that was checked, whatever the compressed data unpack to.
                return file.read(self.sizes[name])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as reason:
            raise PreparationError(
                f"{self.path} is damaged at {name!r} ({reason}): download it again."
            ) from None


class FolderSource:
    """Files of a folder that the archive was unpacked to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: dict[str, int] = {}
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                if os.path.islink(os.path.join(folder, name)):
                    raise PreparationError(f"{os.path.join(folder, name)} is a link.")
            for name in files:
                file = Path(folder, name)
                self.sizes[file.relative_to(path).as_posix()] = file.stat().st_size
            if len(self.sizes) > MAX_FILES:
                break
        _refuse_huge(self.sizes, path)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self.path / name).read_bytes()


Source = ZipSource | FolderSource


def _refuse_unsafe(name: str, where: Path) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or re.search(r"[\\:\x00]", name):
        raise PreparationError(f"{where} holds the unsafe path {name!r}.")


def _refuse_huge(sizes: dict[str, int], where: Path) -> None:
    if len(sizes) > MAX_FILES or sum(sizes.values()) > MAX_BYTES:
        raise PreparationError(
            f"{where} holds more than {MAX_FILES:,} files or {MAX_BYTES / 2**30:.0f} GiB: it is "
            "not Tiny ImageNet."
        )
    largest = max(sizes, key=lambda name: sizes[name], default=None)
    if largest is not None and sizes[largest] > MAX_BYTES_OF_A_FILE:
        raise PreparationError(
            f"{where} holds {largest!r} of {sizes[largest]:,} bytes: it is not Tiny ImageNet."
        )


@dataclass(frozen=True)
class Image:
    """An image: where it comes from and where it belongs."""

    source: str
    split: str
    target: str
    size: int


def plan(source: Source) -> list[Image]:
    """Return every image of a source with its place, after checking that none is missing."""
    root = _root(source)
    classes = _lines(source, root + "wnids.txt")
    for name in classes:
        if not re.fullmatch(r"n\d+", name):
            raise PreparationError(f"{source.path}: wnids.txt holds {name!r}, which is no class.")
    labels = _validation_labels(source, root, set(classes))
    train = re.compile(re.escape(root) + r"train/([^/]+)/images/([^/]+\.JPEG)")
    val = re.compile(re.escape(root) + r"val/images/([^/]+\.JPEG)")
    images = []
    for name, size in sorted(source.sizes.items()):
        if match := train.fullmatch(name):
            label, file = match.groups()
            if label not in classes:
                raise PreparationError(
                    f"{source.path}: {label} has images but is not in wnids.txt."
                )
            images.append(Image(name, "train", f"{label}/{file}", size))
        elif match := val.fullmatch(name):
            file = match[1]
            if file not in labels:
                raise PreparationError(
                    f"{source.path}: val/images/{file} is not in val_annotations.txt."
                )
            images.append(Image(name, "val", f"{labels[file]}/{file}", size))
    _refuse_incomplete(source, classes, labels, images)
    return images


def _root(source: Source) -> str:
    found = [name for name in source.sizes if PurePosixPath(name).name == "wnids.txt"]
    if len(found) != 1 or found[0].count("/") > 1:
        raise PreparationError(
            f"{source.path} is not Tiny ImageNet or is incomplete: wnids.txt, the list of its "
            "classes, is missing."
        )
    return found[0].removesuffix("wnids.txt")


def _lines(source: Source, name: str) -> list[str]:
    if name not in source.sizes:
        raise PreparationError(f"{source.path} is incomplete: {name} is missing.")
    try:
        text = source.read(name).decode("ascii")
    except UnicodeDecodeError:
        raise PreparationError(f"{source.path} is damaged: {name} is no text.") from None
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _validation_labels(source: Source, root: str, classes: set[str]) -> dict[str, str]:
    labels = {}
    for line in _lines(source, root + "val/val_annotations.txt"):
        file, label = [*line.split("\t"), "", ""][:2]
        if label not in classes or not re.fullmatch(r"[\w-]+\.JPEG", file):
            raise PreparationError(
                f"{source.path} is damaged: val_annotations.txt has the line {line[:80]!r}."
            )
        labels[file] = label
    return labels


def _refuse_incomplete(
    source: Source, classes: list[str], labels: dict[str, str], images: list[Image]
) -> None:
    train = Counter(image.target.split("/")[0] for image in images if image.split == "train")
    present = {image.target.split("/")[1] for image in images if image.split == "val"}
    val = Counter(labels.values())
    # Whoever names 200 classes claims to be the real one.
    is_real = len(set(classes)) >= CLASSES
    wanted = TRAIN_IMAGES if is_real else max(train.values(), default=1)
    for name in classes:
        if train[name] != wanted:
            raise PreparationError(
                f"{source.path} is incomplete: class {name} has {train[name]} training images "
                f"instead of {wanted}."
            )
        if val[name] != VAL_IMAGES if is_real else val[name] == 0:
            raise PreparationError(
                f"{source.path} is incomplete: val_annotations.txt has {val[name]} images of class "
                f"{name}" + (f" instead of {VAL_IMAGES}." if is_real else ".")
            )
    missing = sorted(labels.keys() - present)
    if missing:
        raise PreparationError(
            f"{source.path} is incomplete: {len(missing)} validation images are missing, for "
            f"example {missing[0]}."
        )
    empty = next((image.source for image in images if image.size == 0), None)
    if empty is not None:
        raise PreparationError(f"{source.path} is damaged: {empty} is empty.")


def lay_out(source: Source, destination: Path) -> int:
    """Write the image folders and return the number of images that had to be written."""
    images = plan(source)
    work = destination / WORK_FOLDER
    # A finished folder was moved here whole; the other one is still to be made.
    finished = {split for split in ("train", "val") if (destination / split).exists()}
    for split in finished:
        _refuse_other_content(destination / split, images)
    waiting = [image for image in images if image.split not in finished]
    written = 0
    for image in tqdm(waiting, desc="Tiny ImageNet", unit=" images", disable=not waiting):
        target = work / image.split / image.target
        if target.is_file() and target.stat().st_size == image.size:
            continue
        content = source.read(image.source)
        _refuse_damaged(content, image, source)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Under its name an image is whole, however this process ends.
        unfinished = work / "image.part"
        unfinished.write_bytes(content)
        os.replace(unfinished, target)
        written += 1
    # Validation first: a training folder alone would be taken for all there is.
    for split in ("val", "train"):
        if split not in finished:
            _remove_others(work / split, images)
            os.replace(work / split, destination / split)
    shutil.rmtree(work, ignore_errors=True)
    return written


def _refuse_damaged(content: bytes, image: Image, source: Source) -> None:
    is_whole = len(content) == image.size and content.startswith(b"\xff\xd8")
    # An archive has checksums; of a file in a folder only its end tells that nothing was cut off.
    if isinstance(source, FolderSource):
        is_whole = is_whole and b"\xff\xd9" in content[-64:]
    if not is_whole:
        raise PreparationError(f"{source.path} is damaged: {image.source} is no whole JPEG image.")


def _planned(folder: Path, images: list[Image]) -> dict[Path, int]:
    return {folder / i.target: i.size for i in images if i.split == folder.name}


def _refuse_other_content(folder: Path, images: list[Image]) -> None:
    for path, size in _planned(folder, images).items():
        if not path.is_file() or path.stat().st_size != size:
            raise PreparationError(
                f"{folder} exists and is not what this would make of the archive, for example "
                f"{path.name} differs or is missing: choose another destination."
            )


def _remove_others(folder: Path, images: list[Image]) -> None:
    """Remove what an earlier run with another archive may have left in the work folder."""
    planned = _planned(folder, images)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in planned:
            path.unlink()


def open_source(path: Path) -> Source:
    """Return the files of an archive or of a folder."""
    if path.is_dir():
        return FolderSource(path)
    if path.is_file():
        return ZipSource(path)
    raise PreparationError(f"{path} does not exist.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the data that the command line names and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Lay Tiny ImageNet out as image folders.", allow_abbrev=False
    )
    parser.add_argument("source", type=Path, help="tiny-imagenet-200.zip, or its unpacked folder")
    parser.add_argument("destination", type=Path, help="folder to make train/ and val/ in")
    given = parser.parse_args(arguments)
    try:
        written = lay_out(open_source(given.source), given.destination)
    except PreparationError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"Error: {error.strerror}: {error.filename}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on where it stopped.", file=sys.stderr)
        return 130
    state = f"{written:,} images written" if written else "already complete"
    print(
        f"{given.destination}: {state}; use data=tinyimagenet data.train_path={given.destination}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
