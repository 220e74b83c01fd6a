"""scikit-learn's 1,797 handwritten digits as an image folder, made on first use."""

import os
import shutil
import tempfile
from pathlib import Path

SPLITS = ("train", "val")
# Every fifth image of each class validates: 1,433 train, 364 val, the classes balanced in both.
VALIDATION_EVERY = 5
VERSION = 1


def cache_dir() -> Path:
    """Return where generated data is kept: ``SOLO_MARGINS_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("SOLO_MARGINS_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "solo-margins"


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
    """Write all images beside the folder and move them there in one step: it is whole or absent."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        digits = load_digits()
        seen = [0] * 10
        for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            split = SPLITS[seen[label] % VALIDATION_EVERY == 0]
            seen[label] += 1
            target = unfinished / split / str(label)
            target.mkdir(parents=True, exist_ok=True)
            grey = np.rint(pixels * (255 / 16)).astype(np.uint8)
            Image.fromarray(grey).save(target / f"{number:04d}.png")
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except OSError:
        # Another process may have been faster; its folder is as good as ours.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
