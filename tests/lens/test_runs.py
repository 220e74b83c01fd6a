"""Runs as a report reads them, whatever is missing or broken."""

import json

import pytest
from lens_runs import SETTINGS, metrics, write_lens, write_run

from solo_margins.lens.runs import load_runs, logged_accuracies
from solo_margins.losses import Margins


def test_runs_of_one_name_stay_apart(tmp_path):
    folders = [write_run(tmp_path / parent / "run", looks=2) for parent in ("a", "b")]
    runs, notes = load_runs([*folders, folders[0]])
    assert [run.label for run in runs] == ["a/run", "b/run"]
    [note] = notes
    assert str(folders[0]) in note


def test_a_run_is_shown_by_the_name_that_was_chosen_or_by_its_folders(tmp_path):
    unchosen = "-".join([SETTINGS["method"], SETTINGS["data"]["name"], SETTINGS["variant"]])
    names = {"first_try": "first try", "a": "margins", "digits-pos-seed5": unchosen}
    folders = [write_run(tmp_path / folder, looks=2, name=name) for folder, name in names.items()]
    labels = [run.label for run in load_runs(folders)[0]]
    assert labels == ["first try", "margins", "digits-pos-seed5"]
    twice = write_run(tmp_path / "first_try-2", looks=2, name="first try")
    labels = [run.label for run in load_runs([*folders, twice])[0]]
    assert labels == ["first_try", "margins", "digits-pos-seed5", "first_try-2"]


def test_different_methods_are_pointed_out(tmp_path):
    one = write_run(tmp_path / "one", looks=2)
    two = write_run(tmp_path / "two", looks=2, method="byol_curv")
    [note] = load_runs([one, two])[1]
    assert "byol_curv, mocov3_margin" in note


def test_without_args_json_the_lens_knows_the_settings(tmp_path):
    write_lens(tmp_path, [])
    [run], _ = load_runs([tmp_path])
    assert run.settings["optimizer.lr"] == SETTINGS["optimizer"]["lr"]
    assert run.margins == Margins(positive_scale=2.0, curvature=1.0)


def test_records_of_earlier_versions_are_read(tmp_path):
    path = write_run(tmp_path / "run", looks=6) / "lens.jsonl"
    path.write_text(path.read_text().replace('"rankme"', '"effective_rank"'))
    [run], notes = load_runs([path.parent])
    assert notes == []
    assert run.lens.observations[-1].scalars["rankme"] > 12
    assert "effective_rank" not in run.lens.observations[-1].scalars


def test_a_half_written_file_shows_what_is_whole(tmp_path):
    path = write_run(tmp_path / "run", looks=3) / "lens.jsonl"
    content = path.read_bytes().rstrip(b"\n").split(b"\n")
    content[2] = b"\xff\xfe not JSON"
    content.append(b'{"kind": "observation", "step": 1e999, "epoch": 0, "scalars": {}}')
    path.write_bytes(b"\n".join(content) + b'\n{"kind": "observation", "ste')
    [run], notes = load_runs([path.parent])
    parts = ["line 3 is unreadable", "line 7 is unreadable", "line 8 is half-written"]
    assert all(part in note for part, note in zip(parts, notes, strict=True))
    assert len(run.lens.observations) == 2


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("args.json", b'{"seed": 1', "args.json"),
        ("args.json", b"[1, 2]", "args.json"),
        ("args.json", b'{"method_kwargs": {"margins": {"angular": 9}}}', "angular"),
        ("logs/version_0/metrics.csv", None, "metrics.csv"),
        ("logs/version_0/metrics.csv", b"step,val_acc1\n1,2\n", "line 2"),
        ("logs/version_0/metrics.csv", b"epoch,val_acc1\n1,\xff\xfe\n", "line 2"),
        ("logs/version_0/metrics.csv", b"epoch,val_acc1\n1,50\n2,much\n,60\n3", "line 4"),
        ("lens.jsonl", b"", "header"),
        ("lens.jsonl", None, "lens.jsonl"),
        ("lens.jsonl", "folder", "lens.jsonl"),
    ],
)
def test_missing_and_broken_files_are_named(tmp_path, file, content, named):
    folder = write_run(tmp_path / "run", looks=2)
    if file != "lens.jsonl":
        write_lens(folder, [], settings=None)
    path = folder / file
    path.unlink()
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    runs, notes = load_runs([folder])
    assert len(runs) == 1
    assert any(named in note for note in notes), notes


def test_settings_and_headers_of_wrong_kinds_are_survived(tmp_path):
    damaged = write_lens(
        tmp_path / "damaged", [], settings="on", versions=["torch"], method={"a": 1}
    )
    folder = write_run(tmp_path / "odd", looks=2)
    args = json.loads((folder / "args.json").read_text())
    args["method_kwargs"].update(temperature="warm", polarization="on")
    (folder / "args.json").write_text(json.dumps(args))
    (headless, odd), notes = load_runs([damaged.parent, folder])
    assert (headless.versions, headless.settings, headless.margins) == ({}, {}, None)
    assert (odd.number("temperature"), odd.band()) == (None, None)
    assert any("args.json" in note for note in notes)


def test_the_parts_of_a_resumed_run_are_joined(tmp_path):
    logs = tmp_path / "logs"
    metrics(logs / "version_0" / "metrics.csv", {0: 10.0, 1: 20.0, 2: 99.0, 3: 99.0})
    metrics(logs / "version_2" / "metrics.csv", {2: 30.0})
    metrics(logs / "version_10" / "metrics.csv", {3: 40.0, 4: 50.0})
    notes = []
    found = logged_accuracies(tmp_path, notes)
    assert found == {"val_acc1": {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0, 4: 50.0}}
    assert notes == []
