"""What becomes of files and arguments that a report cannot use."""

import pytest
from lens_runs import write_run
from report_pages import Page, by_title, report

from solo_margins.lens.__main__ import main
from solo_margins.lens.report import parse
from solo_margins.runner.program import run_as_program

pytest.importorskip("plotly", reason="the extra lens is not installed")


def test_a_half_written_file_shows_what_is_whole(tmp_path, capsys):
    folder = write_run(tmp_path / "run", looks=3)
    path = folder / "lens.jsonl"
    content = path.read_bytes().rstrip(b"\n").split(b"\n")
    content[2] = b"\xff\xfe not JSON"
    content.append(b'{"kind": "observation", "step": 1e999, "epoch": 0, "scalars": {}}')
    path.write_bytes(b"\n".join(content) + b'\n{"kind": "observation", "ste')
    text = report(tmp_path, folder)
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in printed] == [
        "line 3 is unreadable and left out.",
        "line 7 is unreadable and left out.",
        "line 8 is half-written and left out.",
    ]
    assert all(line in Page(text).words for line in printed)
    assert len(by_title(text)["Alignment"]["data"][0]["x"]) == 2


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("args.json", None, "holds no args.json: its settings are not known."),
        ("args.json", '{"seed": 1', "cannot be read"),
        ("args.json", "[1, 2]", "should hold the settings of a run, but is no JSON object."),
        ("logs/version_0/metrics.csv", None, "holds no logs/version_*/metrics.csv"),
        ("logs/version_0/metrics.csv", "step,val_acc1\n1,2\n", "has no column epoch"),
        ("logs/version_0/metrics.csv", "", "has no column epoch"),
        (
            "logs/version_0/metrics.csv",
            b"epoch,val_acc1\n1,\xff\xfe\n",
            "cannot be read to its end",
        ),
        (
            "logs/version_0/metrics.csv",
            "epoch,val_acc1\n1,50\n2,much\n,60\n3",
            "2 accuracies are no numbers and left out.",
        ),
        ("lens.jsonl", "", "does not say what it is of: its first line is missing."),
    ],
)
def test_missing_and_broken_files_are_named(tmp_path, capsys, file, content, note):
    folder = write_run(tmp_path / "run", looks=2)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    text = report(tmp_path, folder)
    printed = capsys.readouterr().err.splitlines()
    assert any(note in line for line in printed), printed
    assert all(line in Page(text).words for line in printed)
    assert "Traceback" not in text


def test_a_header_of_wrong_kinds_is_survived(tmp_path):
    folder = write_run(
        tmp_path / "run",
        looks=2,
        margins={"curvature": None},
        versions=["torch"],
        polarization="on",
        temperature="warm",
        seed={"a": 1},
        host=3,
    )
    plots = by_title(report(tmp_path, folder))
    assert "Angles" in plots
    assert set(plots["Weight of a positive by its angle"]["data"][0]["y"]) == {2.0}


def test_nothing_to_show_is_an_error(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    output = tmp_path / "report.html"
    given = ["report", str(tmp_path / "empty"), str(tmp_path / "absent"), f"output={output}"]
    with pytest.raises(SystemExit) as ended:
        run_as_program(main, given)
    assert ended.value.code == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: There is nothing to show, and no report was written: ")
    assert "absent is no folder of a run" in line
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name the folders of the runs"),
        (["output=a.html"], "Name the folders of the runs"),
        (["run", "output=a.pdf"], r"output must be a file that ends with \.html or \.htm"),
        (["run", "outputs=a.html"], "'outputs=a.html' is neither a folder nor a setting"),
        (["--help"], "'--help' is no folder"),
    ],
)
def test_mistakes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(arguments)


def test_a_file_that_cannot_be_opened_is_named(tmp_path, capsys):
    folder = write_run(tmp_path / "run", looks=2)
    (folder / "lens.jsonl").unlink()
    (folder / "lens.jsonl").mkdir()
    report(tmp_path, folder)
    assert "lens.jsonl cannot be read (Is a directory)." in capsys.readouterr().err
