"""Lays Tiny ImageNet out as image folders, which every version of solo-learn reads.

    python scripts/prepare_tinyimagenet.py tiny-imagenet-200.zip <destination>

makes ``<destination>/train/<class>/*.JPEG`` and ``<destination>/val/<class>/*.JPEG`` of the archive
(http://cs231n.stanford.edu/tiny-imagenet-200.zip) or of the folder that it was unpacked to. The
destination is whole or absent.
"""

import shutil
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from solo_margins.files import complete_folder

LARGEST = 2 * 10**9  # bytes; Tiny ImageNet has a quarter of them


def prepare(source: Path, destination: Path) -> None:
    """Write the image folders of Tiny ImageNet, from its archive or from the unpacked folder."""
    if destination.exists():
        raise ValueError(f"{destination} exists: choose another destination.")
    if source.is_dir():
        copy_images(source, destination)
        return
    with (
        zipfile.ZipFile(source) as archive,
        tempfile.TemporaryDirectory(dir=destination.absolute().parent) as unpacked,
    ):
        size = sum(entry.file_size for entry in archive.infolist())
        if size > LARGEST:
            raise ValueError(f"{source} is not Tiny ImageNet: it would take {size:,} bytes.")
        for entry in archive.infolist():
            # It compares the checksum, and writes nothing outside of the folder.
            archive.extract(entry, unpacked)
        copy_images(Path(unpacked), destination)


def copy_images(source: Path, destination: Path) -> None:
    """Copy the images below an unpacked folder into class folders."""
    lists = list(source.rglob("val_annotations.txt"))
    if len(lists) != 1:
        raise ValueError(f"{source} is not Tiny ImageNet: it has no val_annotations.txt.")
    val = lists[0].parent
    classes = [folder.name for folder in (val.parent / "train").iterdir()]
    with complete_folder(destination) as unfinished:
        train_copy, val_copy = unfinished / "train", unfinished / "val"
        for name in classes:
            shutil.copytree(val.parent / "train" / name / "images", train_copy / name)
            (val_copy / name).mkdir(parents=True)
        for line in lists[0].read_text().splitlines():
            file, label = line.split("\t")[:2]
            if label not in classes:
                raise ValueError(f"{lists[0].name} has the class {label!r}, which train/ has not.")
            shutil.copy(val / "images" / Path(file).name, val_copy / label)
        for copy in (train_copy, val_copy):
            numbers = {len(list((copy / name).iterdir())) for name in classes}
            if len(numbers) != 1 or 0 in numbers:
                raise ValueError(f"{copy.name}/ is incomplete: images of a class: {numbers}.")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").strip())
    folder = Path(sys.argv[2])
    try:
        prepare(Path(sys.argv[1]), folder)
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        sys.exit(f"Error: {error}")
    print(f"Done; use data=tinyimagenet data.train_path={folder}")
