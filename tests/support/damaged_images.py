"""Image files of every mode, and files that only look like images."""

import shutil

import numpy as np
from PIL import Image

# Names of files that cannot be read.
UNREADABLE = (
    "text.png",
    "empty.jpg",
    "truncated.png",
    "truncated.jpg",
    "bomb.png",  # above PIL's decompression-bomb limit
    "float.tif",
    "deep.tif",  # grey values of more than 16 bits
)


def _ramp(top, shape=(36, 40)):
    return np.linspace(0, top, shape[0] * shape[1]).reshape(shape)


def write_unreadable(folder, name):
    """Write one of the unreadable files and return its path."""
    path = folder / name
    noise = np.random.default_rng(1).integers(0, 256, (36, 40, 3)).astype(np.uint8)
    if name == "text.png":
        path.write_text("This is no image.")
    elif name == "empty.jpg":
        path.write_bytes(b"")
    elif name.startswith("truncated"):
        Image.fromarray(noise).save(path)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif name == "bomb.png":
        Image.new("1", (18000, 10000)).save(path)
    elif name == "float.tif":
        Image.fromarray(_ramp(1).astype(np.float32)).save(path)
    elif name == "deep.tif":
        Image.fromarray(_ramp(2**30).astype(np.int32)).save(path)
    return path


def write_readable(folder):
    """Write a grey ramp from black to white in every mode that is to be read; return the paths."""
    grey = Image.fromarray(_ramp(255).astype(np.uint8))
    wide = Image.fromarray(_ramp(65535).astype(np.uint16))
    white = Image.new("L", grey.size, 255)
    clear = grey.convert("P")
    clear.info["transparency"] = bytes(range(256))
    animation = {"save_all": True, "append_images": [white]}
    files = {
        "grey.png": (grey, {}),
        "alpha.png": (grey.convert("LA"), {}),
        "cmyk.jpg": (grey.convert("RGB").convert("CMYK"), {"quality": 95}),
        "palette.png": (grey.convert("P"), {}),
        "transparent palette.png": (clear, {"transparency": bytes(range(256))}),
        "sixteen bits.png": (wide, {}),
        "sixteen bits.tif": (wide, {}),
        "wide.tif": (Image.fromarray(_ramp(65535).astype(np.int32)), {}),
        "animated.gif": (grey, animation),
        "animated.png": (grey, animation),
        "animated.webp": (grey.convert("RGB"), {**animation, "lossless": True}),
        "pages.tif": (grey, animation),
    }
    for name, (image, settings) in files.items():
        image.save(folder / name, **settings)
    return [folder / name for name in files]


def copied(folder, target):
    """Copy an image folder whose classes get names with spaces and letters beyond ASCII."""
    for split in ("train", "val"):
        for number, source in enumerate(sorted((folder / split).iterdir())):
            shutil.copytree(source, target / split / f"Klasse {number} äß 猫")
    return target


def classes(folder):
    """Return the class folders of the training images."""
    found = sorted((folder / "train").iterdir())
    return [path for path in found if path.is_dir() and not path.name.startswith(".")]


def hide_files_in(folder):
    """Put in what file managers and notebooks leave behind."""
    for place in (folder, *(path for path in folder.iterdir() if path.is_dir())):
        (place / ".DS_Store").write_bytes(b"\0\1Bud1")
        (place / "._0.jpg").write_bytes(b"\0\5\x16\7")
        (place / "Thumbs.db").write_bytes(b"\0")
        (place / ".ipynb_checkpoints").mkdir()
        (place / ".ipynb_checkpoints" / "0-checkpoint.png").write_bytes(b"old")
