"""Tiny ImageNet laid out as image folders: whole, safe, resumable."""

import os
import signal
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tiny_imagenet import content, jpeg, write_zip

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "prepare_tinyimagenet.py"


@pytest.fixture
def script():
    import prepare_tinyimagenet

    return prepare_tinyimagenet


def write_folder(path, files):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def listing(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def expected(files):
    found = {}
    for name, data in files.items():
        parts = name.split("/")
        if parts[1] == "train" and parts[3:4] == ["images"]:
            found[f"train/{parts[2]}/{parts[4]}"] = data
    lines = files["tiny-imagenet-200/val/val_annotations.txt"].decode().splitlines()
    for line in lines:
        file, label = line.split("\t")[:2]
        found[f"val/{label}/{file}"] = files[f"tiny-imagenet-200/val/images/{file}"]
    return found


@pytest.mark.parametrize("source", ["archive", "parent folder", "folder"])
def test_images_are_laid_out_by_class(script, tmp_path, source, capsys):
    files = content()
    if source == "archive":
        given = write_zip(tmp_path / "tiny.zip", files)
    else:
        given = write_folder(tmp_path / "raw", files)
        given = given / "tiny-imagenet-200" if source == "folder" else given
    wanted = tmp_path / "laid out"
    assert script.main([str(given), str(wanted)]) == 0
    assert listing(wanted) == expected(files)
    said = capsys.readouterr()
    assert "18 images written" in said.out
    assert "18/18" in said.err, "progress is shown"
    # Again: nothing to do.
    assert script.main([str(given), str(wanted)]) == 0
    assert "already complete" in capsys.readouterr().out


def without(files, name):
    return {key: data for key, data in files.items() if not key.endswith(name)}


def with_text(files, name, text):
    return {key: text if key.endswith(name) else data for key, data in files.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: without(f, "wnids.txt"), "wnids.txt"),
        (lambda f: without(f, "val_annotations.txt"), "val_annotations.txt is missing"),
        (lambda f: without(f, "n01629819_3.JPEG"), "n01629819 has 3 training images instead of 4"),
        (lambda f: without(f, "val_2.JPEG"), "1 validation images are missing"),
        (lambda f: with_text(f, "wnids.txt", b"n01443537\n"), "val_annotations.txt has the line"),
        (
            lambda f: {**f, "tiny-imagenet-200/train/n00000009/images/a.JPEG": jpeg(1)},
            "n00000009 has images but is not in wnids.txt",
        ),
        (lambda f: with_text(f, "wnids.txt", b"../../etc\n"), "which is no class"),
        (
            lambda f: with_text(f, "annotations.txt", b"../x.JPEG\tn01443537\t0\t0\t1\t1\n"),
            "val_annotations.txt has the line",
        ),
        (lambda f: with_text(f, "annotations.txt", b"\xff\xfe"), "is no text"),
        (lambda f: with_text(f, "n01443537_0.JPEG", b""), "n01443537_0.JPEG is empty"),
        (lambda f: with_text(f, "n01443537_0.JPEG", b"GIF89a"), "is no whole JPEG"),
        (lambda f: {**f, "tiny-imagenet-200/../../evil": b"x"}, "unsafe path"),
        (lambda f: {**f, "/etc/evil": b"x"}, "unsafe path"),
        (lambda f: {**f, "C:\\evil": b"x"}, "unsafe path"),
        (lambda f: {**f, "tiny-imagenet-200/bomb": bytes(2**23)}, "not Tiny ImageNet"),
        (lambda f: content(classes=[f"n{n:08}" for n in range(200)], train=1, val=1), "of 500"),
    ],
)
def test_what_is_unsafe_damaged_or_incomplete_is_refused(script, tmp_path, capsys, change, message):
    archive = write_zip(tmp_path / "tiny.zip", change(content()))
    wanted = tmp_path / "laid out"
    assert script.main([str(archive), str(wanted)]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("Error: ")
    assert message in said
    assert not (wanted / "train").exists()
    assert not (wanted / "val").exists()
    assert not (tmp_path / "evil").exists()


def test_links_are_refused(script, tmp_path, capsys):
    archive = write_zip(tmp_path / "tiny.zip", content())
    link = zipfile.ZipInfo("tiny-imagenet-200/train/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    assert script.main([str(archive), str(tmp_path / "out")]) == 1
    assert "link" in capsys.readouterr().err
    raw = write_folder(tmp_path / "raw", content())
    (raw / "tiny-imagenet-200" / "train" / "more").symlink_to("/etc")
    assert script.main([str(raw), str(tmp_path / "out")]) == 1
    assert "is a link" in capsys.readouterr().err


def test_damaged_bytes_are_found_by_their_checksum(script, tmp_path, capsys):
    archive = write_zip(tmp_path / "tiny.zip", content())
    with zipfile.ZipFile(archive) as opened:
        entry = opened.getinfo("tiny-imagenet-200/train/n01629819/images/n01629819_2.JPEG")
    data = bytearray(archive.read_bytes())
    start = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    data[start] ^= 0xFF
    archive.write_bytes(data)
    assert script.main([str(archive), str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "is damaged at 'tiny-imagenet-200/train/n01629819/images/n01629819_2.JPEG'" in said
    archive.write_bytes(bytes(data[: len(data) // 2]))
    assert script.main([str(archive), str(tmp_path / "out")]) == 1
    assert "is no readable zip archive" in capsys.readouterr().err
    assert script.main([str(tmp_path / "nowhere"), str(tmp_path / "out")]) == 1
    assert "nowhere does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out" / "train").exists()


def test_a_killed_run_goes_on_where_it_was(script, tmp_path, capsys):
    files = content(train=600, val=2)
    archive, wanted = write_zip(tmp_path / "tiny.zip", files), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, SCRIPT, archive, wanted], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    work = wanted / script.WORK_FOLDER
    deadline = time.monotonic() + 60
    while len(list(work.rglob("*.JPEG"))) < 100 and process.poll() is None:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (wanted / "train").exists()
    whole = expected(files)
    before = listing(work)
    before.pop("image.part", None)
    assert 100 <= len(before) < len(whole)
    assert all(whole[name] == data for name, data in before.items()), "an image is half written"
    # What an earlier archive has left does not come along.
    (work / "train" / "n00000000").mkdir()
    (work / "train" / "n00000000" / "old.JPEG").write_bytes(b"old")
    assert script.main([str(archive), str(wanted)]) == 0
    assert f"{len(whole) - len(before):,} images written" in capsys.readouterr().out
    assert listing(wanted) == whole


def test_a_run_killed_between_the_two_folders_goes_on(script, tmp_path):
    files = content()
    archive, wanted = write_zip(tmp_path / "tiny.zip", files), tmp_path / "out"
    assert script.main([str(archive), str(wanted)]) == 0
    (wanted / script.WORK_FOLDER).mkdir()
    os.replace(wanted / "train", wanted / script.WORK_FOLDER / "train")
    assert script.main([str(archive), str(wanted)]) == 0
    assert listing(wanted) == expected(files)


def test_a_folder_with_other_content_is_left_alone(script, tmp_path, capsys):
    archive, wanted = write_zip(tmp_path / "tiny.zip", content()), tmp_path / "out"
    write_folder(wanted, {"train/mine/cat.JPEG": b"mine"})
    assert script.main([str(archive), str(wanted)]) == 1
    assert "choose another destination" in capsys.readouterr().err
    assert listing(wanted) == {"train/mine/cat.JPEG": b"mine"}
