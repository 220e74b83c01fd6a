"""The study (docs/results/study): what is tuned, what is fixed, and what is measured besides."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from documented import ROOT
from reproduce import choices, command, grid, methods, protocol
from reproduce.experiments import Cell, Entry
from reproduce.study import PRESETS

from solo_margins import results
from solo_margins.losses import Margins, mocov3_margin_loss_func
from solo_margins.versions import form

FIRST = {row: protocol._tried(row)[0] for row in protocol.ROWS}
FINAL = protocol.final_experiments(FIRST)


def test_every_row_is_tuned_over_six_settings_on_held_out_images():
    entries = protocol.EXPERIMENTS["tune"].entries
    assert len(entries) == len({entry.cell for entry in entries}) == 6 * len(protocol.ROWS)
    entries += protocol.EXPERIMENTS["lower_rates"].entries
    assert {(entry.cell.data, entry.probed_on) for entry in entries} == {2 * (protocol.CHOOSING,)}
    for experiment in FINAL.values():
        for entry in experiment.entries:
            assert protocol.CHOOSING not in (entry.cell.data, entry.probed_on)
            assert not set(entry.seeds) & set(protocol.SEEDS["tune"])


def test_every_cell_composes(composed):
    seen = set()
    held_out = (protocol.EXPERIMENTS[name] for name in protocol.HELD_OUT)
    for experiment in (*held_out, *FINAL.values()):
        for cell in (entry.cell for entry in experiment.entries):
            # One cell for each set of keys: values of numbers compose alike.
            keys = (cell.method, cell.data, cell.variant, *(c.split("=")[0] for c in cell.changes))
            if keys in seen:
                continue
            seen.add(keys)
            named = [*grid._data(cell.data, "settings"), f"variant={cell.variant}"]
            settings = grid.settings_for(cell, PRESETS["mini"])
            cfg = composed(f"{cell.method}.yaml", *named, *settings, *cell.changes)
            assert cfg.backbone.kwargs.width == 16
            rate = next(c for c in cell.changes if c.startswith("optimizer.lr="))
            assert cfg.optimizer.lr == float(rate.split("=")[1])


def test_the_best_settings_are_chosen_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "CHOSEN", tmp_path / "chosen.yaml")
    entries = protocol.EXPERIMENTS["tune"].entries
    accuracies = {entry.cell: 40.0 for entry in entries}
    best = next(e for e in entries if e.row == "BYOL, rate = 0.12")
    accuracies[best.cell] = 41.0
    assert choices.read(protocol.CHOSEN) == {}
    choices.write(protocol.CHOSEN, protocol.choose(accuracies), "tune --choose")
    assert choices.read(protocol.CHOSEN) == {**FIRST, "BYOL": ["optimizer.lr=0.12"]}
    assert not choices.is_committed(protocol.CHOSEN)


def test_tests_wait_for_committed_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "CHOSEN", tmp_path / "chosen.yaml")
    choices.write(protocol.CHOSEN, FIRST, "tune --choose")
    monkeypatch.setattr(command, "EXPERIMENTS", FINAL)
    monkeypatch.setattr(sys, "argv", ["reproduce", "main", "--preset", "mini"])
    with pytest.raises(SystemExit, match="not committed"):
        command.main()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "Choose"]):
        subprocess.run([*git, *words], check=True)
    assert choices.is_committed(protocol.CHOSEN)
    monkeypatch.setattr(sys, "argv", ["reproduce", "main", "--preset", "paper"])
    with pytest.raises(SystemExit, match="--preset mini"):
        command.main()


def test_the_page_has_the_numbers_of_runs_of_the_grids():
    text = (ROOT / "docs" / "results" / "study" / "protocol.md").read_text()
    for line in protocol.budget()[1:]:
        assert f"| {' | '.join(line)} |" in text


STUDY_CHANGES = ("method=mocov3_study", "lens.enabled=true", "lens.every=1")


def study_entry(*changes):
    cell = Cell("mocov3_margin", "digits", "baseline", (*STUDY_CHANGES, *changes))
    return Entry(" ".join(changes), "digits", cell, "digits")


def test_runs_record_weights_q_commit_and_cpu(study):
    """Held, a scale of 20 turns the weights as far as none does; free, it turns them further."""
    plain = study_entry("method_kwargs.margins.positive_scale=1")
    free = study_entry("method_kwargs.margins.positive_scale=20")
    held = study_entry(
        "method_kwargs.margins.positive_scale=20", "+method_kwargs.hold_gradient_norm=true"
    )
    hard = study_entry("method_kwargs.negatives.kind=hard")
    entries = [plain, free, held, hard]
    assert grid.run(grid.targets_of(entries), [1], study) == []
    records = results.read(study.file)
    turns = [record.figures["turn"] for record in records]
    assert turns[1] > 3 * turns[0]
    assert turns[2] == pytest.approx(turns[0], rel=0.5)
    assert turns[3] != turns[0]
    for record in records:
        assert 0 < record.figures["q"] < 1
        assert record.figures["effective_scale"] > 0
        assert record.figures["weight_norm"] > 1
        assert record.figures["effective_rate"] > 0
        assert len(record.details["commit"].split()[0]) == 40 or not (ROOT / ".git").exists()
        assert record.details["cpu"]


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_norm_is_held_and_the_direction_is_not(scale):
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, 4, generator=generator)
    query.requires_grad_()

    def gradient(margins):
        loss = mocov3_margin_loss_func(query, key, 0.2, margins)
        return torch.autograd.grad(loss, query)[0]

    plain, scaled = gradient(Margins()), gradient(Margins(positive_scale=scale))
    held = methods.hold_norm(query, key, 0.2)
    loss = mocov3_margin_loss_func(held, key, 0.2, Margins(positive_scale=scale))
    (found,) = torch.autograd.grad(loss, query)
    torch.testing.assert_close(found, scaled * plain.norm() / scaled.norm())


def test_means_over_a_run_outlive_an_interruption():
    whole, first, second = (methods.WeightRecord() for _ in range(3))
    values = [(0.1, 0.2), (0.3, 0.1), (0.2, 0.6)]
    for value in values:
        whole.add(*value, norm=2.0)
    first.add(*values[0], norm=1.0)
    second.load_state_dict(first.state_dict())
    for value in values[1:]:
        second.add(*value, norm=2.0)
    assert second.state_dict() == pytest.approx(whole.state_dict())
    assert whole.state_dict()["turn"] == pytest.approx(0.3)


def test_images_are_held_out_the_same_way_every_time(tmp_path, python):
    source = tmp_path / "images"
    for split, name, number in (("train", "a", 6), ("train", "b", 5), ("test", "a", 2)):
        (source / split / name).mkdir(parents=True)
        for image in range(number):
            (source / split / name / f"{image}.png").touch()
    script = ROOT / "scripts" / "reproduce" / "hold_out.py"
    found = []
    for output in ("one", "two", "one"):
        python(script, source, tmp_path / output, "--per-class", "2")
        files = (tmp_path / output).rglob("*.png")
        found.append(sorted(str(path.relative_to(tmp_path / output)) for path in files))
    assert found[0] == found[1] == found[2]
    folders = [Path(name).parent for name in found[0]]
    counts = [folders.count(Path("choose") / name) for name in ("train/a", "train/b", "val/a")]
    assert counts == [4, 3, 2]
    choose, test = tmp_path / "one" / "choose", tmp_path / "one" / "test"
    stays = {path.name for path in (choose / "train" / "a").iterdir()}
    assert not stays & {path.name for path in (choose / "val" / "a").iterdir()}
    assert {path.name for path in (test / "train" / "a").iterdir()} == stays
    assert len(list((test / "val" / "a").iterdir())) == 2


COMMITTED = ROOT / "docs" / "results" / "study"


@pytest.mark.skipif(
    not (COMMITTED / "results.jsonl").exists() or form() != "main",
    reason="the study is not finished, or this is not the solo-learn that it was run with",
)
def test_the_committed_tables_are_those_of_the_committed_results():
    from reproduce import tables
    from reproduce.study import Study

    study = Study(PRESETS["mini"], COMMITTED / "results.jsonl", COMMITTED / "work")
    shown = set()
    for name, experiment in protocol.EXPERIMENTS.items():
        items = tables.measured(experiment.entries, study)
        shown |= {
            study.record(item.entry.cell, seed, item.entry.probed_on).id
            for item in items
            for seed in item.by_seed
        }
        if any(item.by_seed for item in items) and (COMMITTED / f"{name}.csv").exists():
            table = tables.as_csv(items, experiment.figures)
            assert table == (COMMITTED / f"{name}.csv").read_text()
    assert study.recorded().keys() <= shown, "no result is without a table"


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def study_tables(text):
    """Return the lines of all tables with differences to a baseline, as cells."""
    lines, is_one = [], False
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_one = False
        elif is_one and not set(line) <= set("|-:"):
            lines.append(cells)
        is_one = is_one or "to baseline [95 %]" in cells
    return lines


def test_pages_show_the_committed_tables():
    """A page may leave columns out; what it shows is what the committed tables say."""
    tables = [path.read_text() for path in (ROOT / "docs" / "results").rglob("*.md")]
    known = [line for table in tables for line in study_tables(table)]
    for page in PAGES:
        for row, *shown in study_tables(page.read_text()):
            fitting = [line for line in known if line[0] == row and set(shown) <= set(line)]
            assert fitting, f"{page.name}: no committed table says {row}: {shown}"
