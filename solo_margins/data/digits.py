"""scikit-learn's 1,797 handwritten digits as an image folder, made on first use."""

from pathlib import Path

from solo_margins.files import cache_dir, complete_folder

SPLITS = ("train", "val")
# Every fifth image of each class validates: 1,433 train, 364 val, the classes balanced in both.
VALIDATION_EVERY = 5
VERSION = 1


def digits_folder(split: str) -> str:
    """Return the folder ``<split>/<digit>/<number>.png`` of 8×8 grey images, making it if needed.

    Raises:
        ValueError: the split is neither ``train`` nor ``val``.
    """
    if split not in SPLITS:
        raise ValueError(f"the digits have the splits {' and '.join(SPLITS)}, got {split!r}")
    folder = cache_dir() / f"digits-v{VERSION}"
    if not folder.is_dir():
        _write(folder)
    return str(folder / split)


def _write(folder: Path) -> None:
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    with complete_folder(folder) as unfinished:
        digits = load_digits()
        seen = [0] * 10
        for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            split = SPLITS[seen[label] % VALIDATION_EVERY == 0]
            seen[label] += 1
            target = unfinished / split / str(label)
            target.mkdir(parents=True, exist_ok=True)
            grey = np.rint(pixels * (255 / 16)).astype(np.uint8)
            Image.fromarray(grey).save(target / f"{number:04d}.png")
