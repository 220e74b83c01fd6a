"""The law of the scale: its grids, what they choose, and the best scale of each length."""

import json
import math
import sys

import numpy as np
import pytest
from documented import ROOT
from reproduce import choices, command, grid, law, law_paper, optimum, plots
from reproduce.study import PRESETS, Study
from reproduce.tables import Measured, measured

from solo_margins import results

PLANNED = law.planned({})
PILOT_SEEDS = {0, 1, 2}


@pytest.mark.parametrize("name", PLANNED)
def test_no_run_has_a_seed_of_the_pilot_and_every_baseline_is_there(name):
    entries = PLANNED[name].entries
    places = [(entry.row, entry.column) for entry in entries]
    assert len(set(places)) == len(places) > 0
    for entry in entries:
        assert entry.seeds
        assert not set(entry.seeds) & PILOT_SEEDS
        assert entry.baseline is None or (entry.baseline, entry.column) in places
        is_test = {entry.cell.data, entry.probed_on} - {law.CHOOSING}
        assert not is_test or name in law.TESTED


@pytest.mark.parametrize("name", PLANNED)
def test_no_two_runs_share_a_place_in_a_figure(name):
    experiment = PLANNED[name]
    if experiment.axis is not None:
        places = [(plots._curve(e), e.column, e.x, e.y) for e in experiment.entries]
        assert len(set(places)) == len(places)
        assert all(entry.x is not None for entry in experiment.entries)


def test_curves_go_from_left_to_right_wherever_their_baseline_stands():
    from matplotlib import pyplot

    experiment = PLANNED["law_held"]
    assert experiment.entries[0].x == 1 > experiment.entries[1].x
    figures = dict.fromkeys(("linear_acc1", "knn_acc1", *experiment.figures), 50.0)
    items = [Measured(entry, {4: figures}) for entry in experiment.entries]
    figure = plots._curves(pyplot, experiment, items)
    drawn = [list(line.get_xdata()) for axis in figure.axes for line in axis.lines]
    pyplot.close(figure)
    assert drawn
    assert all(xs == sorted(xs) for xs in drawn)


def test_the_test_has_seeds_that_no_choice_has_seen():
    chosen_with = {seed for name, seeds in law.SEEDS.items() for seed in seeds if name != "test"}
    chosen_with -= set(law.SEEDS["few"])  # of the other data set
    assert {entry.seeds for entry in PLANNED["law_test"].entries} == {(11, 12, 13, 14, 15, 16)}
    assert not set(law.SEEDS["test"]) & chosen_with


def test_the_page_has_the_costs_of_the_grids():
    text = (ROOT / "docs" / "results" / "law" / "protocol.md").read_text()
    for line in law.budget()[1:]:
        assert f"| {' | '.join(line)} |" in text


@pytest.mark.parametrize(
    ("preset", "experiments"), [("mini", PLANNED), ("paper", law_paper.experiments({}))]
)
def test_every_cell_composes(preset, experiments, composed):
    seen = set()
    for experiment in experiments.values():
        for cell in (entry.cell for entry in experiment.entries):
            changes = dict(change.split("=", 1) for change in cell.changes)
            keys = (cell.method, cell.data, *changes)
            if keys in seen:
                continue
            seen.add(keys)
            data = grid._data(cell.data, "settings")
            settings = [*grid.settings_for(cell, PRESETS[preset]), *cell.changes]
            cfg = composed(f"{cell.method}.yaml", *data, "variant=baseline", *settings)
            scale = changes["method_kwargs.margins.positive_scale"]
            schedule = cfg.method_kwargs.schedules.positive_scale
            assert schedule.kind == changes.get("method_kwargs.schedules.positive_scale.kind")
            assert cfg.method_kwargs.margins.positive_scale == float(scale)
            assert cfg.optimizer.lr == float(changes["optimizer.lr"])


def test_the_chosen_rate_scale_and_temperature_have_the_highest_accuracy():
    rates = {name: entries[0].x for name, entries in law.rate_entries().items()}
    tuned = {}
    for entries in law.rate_entries().values():
        for entry in entries:
            tuned[entry.cell] = 40 - entry.x  # the smallest rate
    assert law.choose({}, {}, {}) == {}
    assert law.choose(tuned, {}, {}) == {"rates": rates}
    mapped = {}
    for method in law.METHODS:
        for entry in law.map_entries(rates, method, ["short"]):
            is_best = entry.x == 0.5 and "τ = 0.1," in entry.row
            # The map's seeds make s = 1 worse than tuning's did: the rate stays.
            mapped[entry.cell] = 50 if is_best else 0
    assert tuned.keys() & mapped.keys()
    assert law.choose(tuned, mapped, {})["rates"] == rates
    chosen = law.choose(tuned, mapped, {})
    for choice in chosen["primary"].values():
        assert (choice["scale"], choice["temperature"]) == (0.5, 0.1)
    assert not {"test_rates", "best_temperatures"} & chosen.keys()
    controlled = {}
    for entry in law._controls(rates):
        height = {(1, 0.3): 51, (1, 0.25): 51, (0.7, 0.05): 52, (0.25, 0.2): 51}
        controlled[entry.cell] = height.get((entry.y, entry.x), 50)
    best = law.choose(tuned, mapped, controlled)["best_temperatures"]
    for method, temperature in ((law.MOCO, 0.25), (law.SIMCLR, 0.3)):
        sides = {"scale": 0.7, "temperature": 0.05, "baseline_temperature": temperature}
        assert best[method] == sides
    del controlled[entry.cell]
    assert "best_temperatures" not in law.choose(tuned, mapped, controlled)
    of_test = law.test_rate_entries(chosen["primary"])
    for scale, entries in of_test.items():
        tuned.update({e.cell: 50 - abs(e.x - (0.48 if scale == 1 else 0.96)) for e in entries})
    assert law.choose(tuned, mapped, {})["test_rates"] == {1: 0.48, 0.5: 0.96}


def test_a_rate_at_an_end_of_those_tried_is_told(monkeypatch):
    name = "mocov3_margin, τ = 0.1, long"
    monkeypatch.setitem(law.LAW["more_rates"], name, [0.24])
    assert law.tried_rates(name) == [0.24, 0.48, 0.96, 1.92]
    assert [entry.x for entry in law.rate_entries()[name]] == [0.24, 0.48, 0.96, 1.92]
    assert law.at_an_end({"rates": {name: 0.48}}) == []
    for rate in (0.24, 1.92):
        assert law.at_an_end({"rates": {name: rate}}) == [name]
    of_test = {"rates": {name: 0.48}, "test_rates": {1: 0.48, 0.5: 0.96}}
    assert law.at_an_end(of_test) == ["s = 1 in law_rates_test"]


def test_schedules_are_built_around_the_best_constant_scale():
    rates = dict.fromkeys(law.rate_entries(), 0.96)
    grids = law.experiments({"rates": rates, "best_scales": {"middle": 0.8}})
    changes = {
        entry.row.rpartition(", ")[0].partition("steps, ")[2]: entry.cell.changes
        for entry in grids["law_schedule"].entries
        if "→" in entry.row
    }
    key = "method_kwargs.schedules.positive_scale"
    assert {"max_epochs=12", f"{key}.kind=log", f"{key}.from=0.2"} <= {*changes["s*/4 → s*"]}
    assert "method_kwargs.margins.positive_scale=1.6" in changes["s*/2 → 2 s*"]
    assert f"{key}.from=1.6" in changes["2 s* → s*/2"]
    [constant] = [e for e in grids["law_schedule"].entries if "→" not in e.row]
    assert "method_kwargs.margins.positive_scale=0.8" in constant.cell.changes
    assert not law.experiments({"rates": rates})["law_schedule"].entries


def test_the_rate_at_the_papers_size_is_chosen_for_each_length():
    grids = law_paper.experiments({})
    assert len(grids["law"].entries) == 2 * 2 * 3
    accuracies = {entry.cell: -entry.x for entry in grids["law_tuning"].entries}
    best = next(e for e in law_paper.tuning("cifar100", 200) if e.x == 0.48)
    accuracies[best.cell] = 1.0
    rates = law_paper.choose(accuracies)
    assert set(rates.values()) == {0.06, 0.48}
    assert rates["cifar100, 200 epochs"] == 0.48
    rows = {entry.row for entry in law_paper.experiments(rates)["law"].entries}
    assert "MoCo v3, 200 epochs, rate = 0.48, s = 20" in rows
    assert "MoCo v3, 50 epochs, rate = 0.48, s = 20" not in rows
    del accuracies[best.cell]
    with pytest.raises(ValueError, match=r"rate = 0\.48"):
        law_paper.choose(accuracies)


def test_gpu_hours_grow_with_the_runs():
    lines = law_paper.budget()
    assert [line[0] for line in lines[1:]] == ["`law_tuning`", "`law`", "all"]
    least = [float(line[3].split(" to ")[0]) for line in lines[1:]]
    assert 0 < least[0] < least[1] < least[2]


@pytest.mark.parametrize(
    ("best", "scales"),
    [
        (0.6, (0.25, 0.5, 0.7, 1, 1.4, 2, 5, 20)),
        (3.0, (0.25, 0.5, 0.7, 1, 1.4, 2, 5, 20)),
        (1.0, (0.25, 0.5, 0.7, 1, 1.125)),
    ],
)
def test_the_best_scale_of_a_parabola_is_found(best, scales):
    accuracies = {s: [45 - math.log(s / best) ** 2 + d for d in (0, 0.01)] for s in scales}
    assert optimum.best_scale(accuracies) == pytest.approx(best)
    np.testing.assert_allclose(optimum.bootstrap(accuracies, samples=20), best, rtol=0.2)


def test_a_rising_curve_ends_at_the_largest_scale_and_noise_widens_the_interval():
    rising = {s: [40 + s] * 2 for s in (0.25, 0.5, 1, 2)}
    assert optimum.best_scale(rising) == pytest.approx(2)
    random = np.random.default_rng(0)
    spreads = []
    for noise in (0.01, 1.0):
        runs = {
            s: 45 - math.log(s) ** 2 + noise * random.normal(size=3)
            for s in (0.25, 0.5, 0.7, 1, 1.4, 2, 5)
        }
        samples = optimum.bootstrap(runs, samples=200)
        low, high = optimum.Optimum("", 1, 3, 1.0, 1.0, samples).interval
        spreads.append(high / low)
    assert spreads[0] < 1.05 < spreads[1]


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    """A study whose map of SimCLR has its best scale at 0.5 in short runs, at 1 in longer ones."""
    rates = dict.fromkeys(law.rate_entries(), 0.96)
    monkeypatch.setattr(law, "EXPERIMENTS", law.experiments({"rates": rates}))
    study = Study(PRESETS["mini"], tmp_path / "results.jsonl", tmp_path / "work")
    random = np.random.default_rng(0)
    for entry in law.EXPERIMENTS["law_map_simclr"].entries:
        best = 0.5 if law.steps_of(entry.cell) == 1053 else 1
        for seed in entry.seeds:
            height = 50 - 3 * math.log(entry.x / best) ** 2 + 0.01 * random.normal()
            figures = {"linear_acc1": height, "knn_acc1": 0.0, "uniformity": -height, "q": 0.1}
            record = study.record(entry.cell, seed, entry.probed_on, figures=figures)
            results.append(study.file, record)
    return study


def test_optima_and_correlations_are_written_and_drawn(mapped, tmp_path, monkeypatch, capsys):
    items = measured(law.EXPERIMENTS["law_map_simclr"].entries, mapped)
    assert all(len(item.by_seed) == 3 for item in items)
    command_line = ["reproduce", "law_map_simclr", "--preset", "mini", "--optimum"]
    monkeypatch.setattr(sys, "argv", [*command_line, "--output", str(tmp_path)])
    command.main()
    found = optimum.optima(mapped)
    assert [item.steps for item in found] == [1053, 1053, 4212, 4212]
    assert [item.scale for item in found] == pytest.approx([0.5, 0.5, 1, 1], rel=0.05)
    factor, low, high = optimum.rise(found[0], found[-1])
    assert factor == pytest.approx(2, rel=0.1)
    assert 1.5 < low < factor < high < 2.5
    text = (tmp_path / "law_optimum.md").read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    # Both temperatures are compared with their own shorter length, not with the row before.
    assert text.count("| SimCLR, τ = 0.2 | 4,212 | 3 | 1 | 1.0") == 1
    grown = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| SimC")]
    assert [bool(cell) for cell in grown[:4]] == [False, True, False, True]
    # Accuracy follows uniformity exactly here, and q is the same everywhere.
    assert text.count("-1.00") == 4 + 3
    assert "nan" not in text
    assert (tmp_path / "law_optimum.png").stat().st_size > 10_000


def test_the_best_scale_is_compared_with_the_best_of_one_and_without_its_own_seed(
    tmp_path, monkeypatch
):
    rates = dict.fromkeys(law.rate_entries(), 0.96)
    monkeypatch.setattr(law, "EXPERIMENTS", law.experiments({"rates": rates}))
    study = Study(PRESETS["mini"], tmp_path / "results.jsonl", tmp_path / "work")
    # Seed 4 thinks most of s = 0.25, seed 5 of s = 0.5; of s = 1 the best has another temperature.
    above = {(4, 0.25, 0.1): 9.0, (4, 0.5, 0.1): 4.0, (5, 0.5, 0.1): 8.0, (5, 0.25, 0.1): 1.0}
    above |= {(4, 1, 0.3): 2.0, (5, 1, 0.3): 3.0}
    for entry in law.EXPERIMENTS["law_temperatures"].entries:
        if entry.cell.method == law.SIMCLR:
            for seed in entry.seeds:
                height = 40 + above.get((seed, entry.y, entry.x), 0)
                figures = {"linear_acc1": height, "knn_acc1": 30.0}
                record = study.record(entry.cell, seed, entry.probed_on, figures=figures)
                results.append(study.file, record)
    _, line = optimum.best_against_best(study)
    assert line == [
        *("SimCLR", "2,106", "2", "s = 1, τ = 0.3", "s = 0.5, τ = 0.1"),
        *("+3.5 (+2.0, +5.0)", "+0.0 (+2.0, -2.0)", "+0.0 (+0.0, +0.0)", "+0.0 (+0.0, +0.0)"),
    ]


def test_the_scale_with_the_highest_q_is_compared_with_one_and_with_the_best(tmp_path, monkeypatch):
    rates = dict.fromkeys(law.rate_entries(), 0.96)
    monkeypatch.setattr(law, "EXPERIMENTS", law.experiments({"rates": rates}))
    study = Study(PRESETS["mini"], tmp_path / "results.jsonl", tmp_path / "work")
    # s: q, linear probe, kNN; the third seed, which 1 lacks, would choose another.
    seen = {0.25: (0.2, 53.0, 50.0), 0.5: (0.3, 51.5, 52.0), 0.7: (0.3, 40.0, 40.0)}
    seen |= {1: (0.1, 50.0, 49.5), 1.125: (0.0, 10.0, 10.0)}
    for entry in law.EXPERIMENTS["law_map_simclr"].entries:
        if law.steps_of(entry.cell) == 4212 and "τ = 0.2" in entry.row:
            for seed in entry.seeds if entry.x != 1 else entry.seeds[:2]:
                q, linear, knn = seen[entry.x]
                q += {4: 0.0, 5: 0.01, 6: 0.9}[seed] * (entry.x == 0.5 or seed == 6)
                figures = {"q": q, "linear_acc1": linear, "knn_acc1": knn}
                record = study.record(entry.cell, seed, entry.probed_on, figures=figures)
                results.append(study.file, record)
    [_, line] = optimum.chosen_by_q(study)
    assert line == ["SimCLR, τ = 0.2", "4,212", "2", "0.5", "0.25", "+1.5", "-1.5", "+2.5"]


def test_a_part_of_a_grid_leaves_the_rest_of_its_table(mapped, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(command.EXPERIMENTS, "law_map_simclr", law.EXPERIMENTS["law_map_simclr"])
    command_line = ["reproduce", "law_map_simclr", "--preset", "mini", "--table"]
    written = []
    for part in ([], ["--rows", "SimCLR, τ = 0.2", "--seeds", "5"]):
        argv = [*command_line, "--output", str(tmp_path), *part]
        monkeypatch.setattr(sys, "argv", argv)
        command.main()
        written.append((tmp_path / "law_map_simclr.csv").read_text())
        assert "SimCLR, τ = 0.1" in capsys.readouterr().out
    assert written[0] == written[1]
    assert written[0].count("\n") == 1 + 20


def test_the_longest_runs_have_fewer_seeds_and_choose_with_them(mapped):
    entries = law.EXPERIMENTS["law_map_long"].entries
    assert {entry.seeds for entry in entries} == {(4, 5)}
    for entry in entries:
        for seed in entry.seeds:
            assert "long" not in optimum.best_of_moco(mapped)
            figures = {"linear_acc1": -(math.log(entry.x / 0.8) ** 2), "knn_acc1": 0.0}
            record = mapped.record(entry.cell, seed, entry.probed_on, figures=figures)
            results.append(mapped.file, record)
    assert optimum.best_of_moco(mapped) == {"long": 0.8}


def test_a_seed_that_only_some_scales_have_does_not_count(mapped):
    lines = mapped.file.read_text().splitlines(keepends=True)
    whole = [line for line in lines if json.loads(line)["seed"] != 6]
    mapped.file.write_text("".join(whole))
    expected = [item.scale for item in optimum.optima(mapped)]
    started = [line for line in lines if line not in whole and "positive_scale=0.25" in line]
    mapped.file.write_text("".join([*whole, *started]))
    assert len(started) == 4
    assert [item.scale for item in optimum.optima(mapped)] == expected


def test_the_best_scale_of_moco_is_chosen_where_its_map_is_complete(tmp_path, monkeypatch, capsys):
    rates = dict.fromkeys(law.rate_entries(), 0.96)
    monkeypatch.setattr(law, "EXPERIMENTS", law.experiments({"rates": rates}))
    monkeypatch.setattr(law, "CHOSEN", tmp_path / "law_chosen.yaml")
    study = Study(PRESETS["mini"], tmp_path / "results.jsonl", tmp_path / "work")
    for entries in law.rate_entries().values():
        for entry in entries:
            for seed in entry.seeds:
                figures = {"linear_acc1": -abs(entry.x - 0.96), "knn_acc1": 0.0}
                record = study.record(entry.cell, seed, entry.probed_on, figures=figures)
                results.append(study.file, record)
    for entry in law.EXPERIMENTS["law_map"].entries:
        if law.steps_of(entry.cell) == 4212:
            figures = {"linear_acc1": -(math.log(entry.x / 0.6) ** 2), "knn_acc1": 0.0}
            for seed in entry.seeds:
                record = study.record(entry.cell, seed, entry.probed_on, figures=figures)
                results.append(study.file, record)
    command_line = ["reproduce", "law_rates", "--preset", "mini", "--choose"]
    monkeypatch.setattr(sys, "argv", [*command_line, "--output", str(tmp_path)])
    command.main()
    chosen = choices.read(law.CHOSEN)
    assert chosen["rates"] == rates
    assert chosen["best_scales"] == {"middle": 0.6}
    # A map that lacks a seed chooses nothing: the choice would move when the seed is there.
    lines = study.file.read_text().splitlines(keepends=True)
    study.file.write_text("".join(line for line in lines if json.loads(line)["seed"] != 6))
    command.main()
    assert "best_scales" not in choices.read(law.CHOSEN)
    assert "law_chosen.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chosen", "first"), [("rates: {}", "law_map law_map_simclr"), ("{}", "law_rates")]
)
def test_a_grid_without_settings_names_what_comes_before_it(chosen, first, tmp_path, monkeypatch):
    (tmp_path / "chosen.yaml").write_text(chosen)
    monkeypatch.setattr(law, "CHOSEN", tmp_path / "chosen.yaml")
    monkeypatch.setitem(command.EXPERIMENTS, "law_test", law.experiments({})["law_test"])
    with pytest.raises(SystemExit, match=f"run `{first}`, then `law_rates --choose`"):
        command._chosen("law_test", None, None)


def test_the_first_missing_run_is_named(tmp_path, monkeypatch):
    command_line = ["reproduce", "law_rates", "--preset", "mini", "--choose"]
    monkeypatch.setattr(sys, "argv", [*command_line, "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"such as 'MoCo v3, τ = 0\.05, rate = 0\.48"):
        command.main()


def test_an_incomplete_map_has_no_optimum(tmp_path, monkeypatch):
    command_line = ["reproduce", "law_map", "--preset", "mini", "--optimum"]
    monkeypatch.setattr(sys, "argv", [*command_line, "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="no map"):
        command.main()
