"""Split an image folder for choosing and for testing, by links.

    python scripts/reproduce/hold_out.py /data/cifar10 /data/split --per-class 500

Of <source>/train some images of each class are held out. <output>/choose has the rest of them as
train/ and the held-out ones as val/; <output>/test has the same train/, and the test images of
<source> as val/. The same source and seed give the same split.
"""

import argparse
import os
import random
import sys
from pathlib import Path

from solo_margins.data.class_folders import classes_in, images_in


def held_out(folder: Path, number: int, seed: int) -> tuple[list[str], list[str]]:
    """Return the names of the images of a class that stay, and of those that are held out.

    Raises:
        ValueError: the class has no more images than are to be held out.
    """
    names = images_in(folder)
    if len(names) <= number:
        raise ValueError(f"{folder} has {len(names)} images: {number} cannot be held out.")
    chosen = set(random.Random(f"{seed} {folder.name}").sample(names, number))
    return [name for name in names if name not in chosen], sorted(chosen)


def link(source: Path, names: list[str], target: Path) -> None:
    """Link images into another folder; links that are there are left."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (target / name).is_symlink():
            os.symlink(source / name, target / name)


def main() -> None:
    """Make both folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="holds train/ and test/ (or val/)")
    parser.add_argument("output", type=Path, help="a folder for choose/ and test/")
    parser.add_argument("--per-class", type=int, default=500, help="images to hold out")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    source = arguments.source.absolute()
    tested = next((p for p in (source / "test", source / "val") if p.is_dir()), None)
    if tested is None or not (source / "train").is_dir():
        sys.exit(f"Error: {source} must hold train/ and test/ (or val/) with class folders.")
    choose, test = arguments.output / "choose", arguments.output / "test"
    counts = [0, 0]
    for name in classes_in(source / "train"):
        folder = source / "train" / name
        try:
            stays, held = held_out(folder, arguments.per_class, arguments.seed)
        except ValueError as error:
            sys.exit(f"Error: {error}")
        link(folder, stays, choose / "train" / name)
        link(folder, held, choose / "val" / name)
        counts = [counts[0] + len(stays), counts[1] + len(held)]
    test.mkdir(parents=True, exist_ok=True)
    for place, target in ((test / "train", choose.absolute() / "train"), (test / "val", tested)):
        if not place.is_symlink():
            os.symlink(target, place)
    print(f"{choose}: {counts[0]} images to train on, {counts[1]} held out. {test}: to test.")


if __name__ == "__main__":
    main()
