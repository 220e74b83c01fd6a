"""A small Tiny ImageNet in the layout of its archive."""

import io
import zipfile

from PIL import Image

CLASSES = ("n01443537", "n01629819", "n01641577")


def jpeg(number):
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), (number % 256, number // 256, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def content(train=4, val=2, classes=CLASSES):
    """Return the files of a small Tiny ImageNet."""
    files = {"wnids.txt": "".join(f"{name}\n" for name in classes).encode()}
    files["words.txt"] = b"n01443537\tgoldfish\n"
    annotations, number = [], 0
    for label, name in enumerate(classes):
        boxes = "".join(f"{name}_{n}.JPEG\t0\t0\t63\t63\n" for n in range(train))
        files[f"train/{name}/{name}_boxes.txt"] = boxes.encode()
        for n in range(train):
            files[f"train/{name}/images/{name}_{n}.JPEG"] = jpeg(1000 * label + n)
        for _ in range(val):
            files[f"val/images/val_{number}.JPEG"] = jpeg(5000 + number)
            annotations.append(f"val_{number}.JPEG\t{name}\t0\t0\t63\t63\n")
            number += 1
    files["val/val_annotations.txt"] = "".join(reversed(annotations)).encode()
    files["test/images/test_0.JPEG"] = jpeg(9000)
    return {f"tiny-imagenet-200/{name}": data for name, data in files.items()}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path
