"""Small data sets in the very formats that torchvision downloads, and as image folders."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = {"cifar10": 10, "cifar100": 100, "stl10": 10, "tinyimagenet": 200}
CIFAR_FILES = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{n}" for n in range(1, 6)], "test_batch"),
    "cifar100": ("cifar-100-python", ["train"], "test"),
}


def images_of(name, per_class, size, seed=0):
    """Return noisy images (N, size, size, 3) with a brightness for each class, and labels."""
    labels = np.repeat(np.arange(CLASSES[name]), per_class)
    noise = np.random.default_rng(seed).integers(0, 56, (len(labels), size, size, 3))
    brightness = labels * 200 // CLASSES[name]
    return (noise + brightness[:, None, None, None]).astype(np.uint8), labels


def write_cifar(root, name, train, test):
    """Write pickled batches as CIFAR's authors do, and return what torchvision wants to know."""
    folder, train_files, test_file = CIFAR_FILES[name]
    key, names_key, meta_file = (
        ("labels", "label_names", "batches.meta")
        if name == "cifar10"
        else ("fine_labels", "fine_label_names", "meta")
    )
    directory = Path(root) / folder
    directory.mkdir(parents=True)

    def write(file, images, labels):
        rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        content = pickle.dumps({"data": rows, key: labels.tolist()})
        (directory / file).write_bytes(content)
        return [file, hashlib.md5(content).hexdigest()]

    parts = [np.array_split(values, len(train_files)) for values in train]
    train_list = [write(*part) for part in zip(train_files, *parts, strict=True)]
    test_list = [write(test_file, *test)]
    content = pickle.dumps({names_key: [f"class{n:03}" for n in range(CLASSES[name])]})
    (directory / meta_file).write_bytes(content)
    meta = {"filename": meta_file, "key": names_key, "md5": hashlib.md5(content).hexdigest()}
    return {"train_list": train_list, "test_list": test_list, "meta": meta}


def write_stl10(root, train, test, unlabelled):
    """Write STL-10's binary files and return what torchvision wants to know."""
    directory = Path(root) / "stl10_binary"
    directory.mkdir(parents=True)

    def write(file, content):
        (directory / file).write_bytes(content)
        return [file, hashlib.md5(content).hexdigest()]

    def pixels(images):
        # Channels first, and columns before rows.
        return images.transpose(0, 3, 2, 1).tobytes()

    def numbers(labels):
        return (labels + 1).astype(np.uint8).tobytes()

    return {
        "train_list": [
            write("train_X.bin", pixels(train[0])),
            write("train_y.bin", numbers(train[1])),
            write("unlabeled_X.bin", pixels(unlabelled)),
        ],
        "test_list": [
            write("test_X.bin", pixels(test[0])),
            write("test_y.bin", numbers(test[1])),
        ],
    }


def write_folder(root, images, labels, suffix="png", **options):
    """Write images into class folders whose order is that of the labels."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = Path(root) / f"class{label:03}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number:05}.{suffix}", **options)
