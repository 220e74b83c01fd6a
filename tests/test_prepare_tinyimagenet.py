"""Tiny ImageNet laid out as image folders, whole or not at all."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_imagenet import content, write_zip

ROOT = Path(__file__).resolve().parents[1]
TOP = "tiny-imagenet-200"


@pytest.fixture
def prepared(tmp_path):
    """Run the script on files, as an archive or unpacked, and return what it made and said."""

    def run(files, is_archive=True, is_damaged=False):
        source = tmp_path / "source"
        if is_archive:
            write_zip(source, files)
            content = bytearray(source.read_bytes())
            content[len(content) // 2] ^= 0xFF * is_damaged
            source.write_bytes(content)
        else:
            for name, data in files.items():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                (source / name).write_bytes(data)
        command = [sys.executable, ROOT / "scripts/prepare_tinyimagenet.py", source, "laid out"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return tmp_path / "laid out", done.stderr

    return run


@pytest.mark.parametrize("is_archive", [True, False])
def test_images_are_laid_out_by_class(prepared, is_archive):
    files = content()
    folder, _ = prepared(files, is_archive)
    expected = {}
    for name, data in files.items():
        parts = name.split("/")
        if "images" in parts and parts[1] == "train":
            expected[f"train/{parts[2]}/{parts[4]}"] = data
    for line in files[f"{TOP}/val/val_annotations.txt"].decode().splitlines():
        file, label = line.split("\t")[:2]
        expected[f"val/{label}/{file}"] = files[f"{TOP}/val/images/{file}"]
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {str(path): data for path, data in found.items()} == expected
    _, said = prepared(files, is_archive)
    assert "laid out exists" in said


@pytest.mark.parametrize(
    ("changed", "data", "named"),
    [
        ("val/val_annotations.txt", None, "val_annotations.txt"),
        ("val/images/val_2.JPEG", None, "val_2.JPEG"),
        ("train/n01629819/images/n01629819_3.JPEG", None, "train/ is incomplete"),
        ("val/val_annotations.txt", b"val_0.JPEG\t../../..\n", "'../../..'"),
    ],
)
def test_what_is_incomplete_is_refused(prepared, changed, data, named):
    files = content()
    if data is None:
        del files[f"{TOP}/{changed}"]
    else:
        files[f"{TOP}/{changed}"] = data
    folder, said = prepared(files)
    assert said.startswith("Error: ")
    assert named in said
    assert "Traceback" not in said
    assert [path.name for path in folder.parent.iterdir()] == ["source"]


def test_a_damaged_archive_is_refused(prepared):
    folder, said = prepared(content(), is_damaged=True)
    assert said.startswith("Error: ")
    assert not folder.exists()
