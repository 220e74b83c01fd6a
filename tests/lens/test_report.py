"""The report of runs as files: what it holds and what is escaped."""

import math
import re
import shutil

import pytest
from lens_runs import header, metrics, observation, write_run
from report_pages import Page, by_title, figures, report

from solo_margins.lens.records import Writer
from solo_margins.lens.report_figures import thinned
from solo_margins.lens.report_runs import load_runs
from solo_margins.lens.report_sections import sections

pytest.importorskip("plotly", reason="the extra lens is not installed")


def test_a_report_shows_everything(tmp_path, capsys):
    scalars = {"polarization_loss": 0.01, "pairs_in_band": 0.4, "new_thing": 3.0}
    band = {"weight": 1.0, "lower": 0.2, "upper": 0.4}
    one = write_run(tmp_path / "one", scalars=scalars, polarization=band)
    two = write_run(tmp_path / "two", looks=5, settings={"seed": 2}, seed=2)
    text = report(tmp_path, one, two)
    assert capsys.readouterr().err == ""
    plots = by_title(text)
    for title in (
        "Validation accuracy, online classifier",
        "Validation accuracy, kNN",
        "Angles",
        "Probability q of the positives",
        "Pairwise distances",
        "Share of the gradient that positives get",
        "Effective scale",
        "Alignment",
        "Uniformity",
        "Effective rank",
        "Terms of the contrastive loss",
        "Weight of a positive by its angle",
        "Gradient of a positive by its angle",
        "Attenuation",
        "New thing",
    ):
        assert title in plots, title
    assert [shape["x0"] for shape in plots["Pairwise distances"]["layout"]["shapes"]] == [0.2]
    assert {trace["meta"]["run"] for trace in plots["Alignment"]["data"]} == {0, 1}
    share = plots["Share of the gradient that positives get"]["data"]
    assert len(share) == 4, "two runs, with and without margins"
    words = Page(text).words
    assert "11 % of the positives get no gradient." in words
    assert "What the lens cost" in words
    assert "torch" in words


def test_plots_are_valid_for_plotly(tmp_path):
    from plotly.graph_objects import Figure

    runs, notes = load_runs([write_run(tmp_path / "one", looks=3), write_run(tmp_path / "two")])
    assert notes == []
    for section in sections(runs, notes):
        for figure in section.figures:
            Figure(data=figure.data, layout=figure.layout)
    assert notes == []


def test_histograms_are_shares_of_what_was_seen(tmp_path):
    folder = write_run(tmp_path / "run", looks=4, steps=300)
    plots = by_title(report(tmp_path, folder))
    positives, negatives = plots["Angles"]["data"]
    assert [frame["step"] for frame in positives["meta"]["frames"]] == [0, 100, 200, 300]
    for trace, width in ((positives, 3.0), (negatives, 3.0)):
        for frame in trace["meta"]["frames"]:
            assert (frame["low"], frame["high"]) == (0, 180)
            assert sum(frame["y"]) * width == pytest.approx(100, rel=1e-3)
    # The most frequent angle of positives falls as the synthetic training goes on.
    first, last = (
        positives["meta"]["frames"][place]["y"].index(max(positives["meta"]["frames"][place]["y"]))
        for place in (0, -1)
    )
    assert last < first
    [q] = plots["Probability q of the positives"]["data"]
    assert sum(q["meta"]["frames"][0]["y"]) * 2 == pytest.approx(100, rel=1e-3)


def test_curves_are_those_of_each_runs_margins(tmp_path):
    one = write_run(tmp_path / "one", margins={"positive_scale": 4.0, "curvature": 1.0})
    two = write_run(tmp_path / "two", margins={"positive_scale": 1.0, "curvature": "inf"})
    weight = by_title(report(tmp_path, one, two))["Weight of a positive by its angle"]["data"]
    assert (weight[0]["y"][0], weight[0]["y"][-1]) == (4.0, 0.0)
    assert set(weight[1]["y"]) == {1.0}
    gradient = by_title(report(tmp_path, one, two))["Gradient of a positive by its angle"]["data"]
    assert max(gradient[1]["y"]) == pytest.approx(0.5 / 0.2), "no margins: (1 - q) sin θ / τ"
    assert gradient[2]["y"] == gradient[1]["y"], "the plain loss beside them"


def test_a_method_without_negatives_has_no_attenuation(tmp_path):
    folder = write_run(
        tmp_path / "byol", method="byol_curv", temperature=None, margins={"positive_scale": 3.0}
    )
    plots = by_title(report(tmp_path, folder))
    assert "Attenuation" not in plots
    assert max(plots["Gradient of a positive by its angle"]["data"][0]["y"]) == 3.0


def test_only_differing_settings_are_in_the_open(tmp_path):
    one = write_run(tmp_path / "one")
    two = write_run(tmp_path / "two", settings={"seed": 7, "only_here": True})
    text = report(tmp_path, one, two)
    section = text[text.index('<section id="configuration">') :]
    in_open, folded = section.split("<details>")[0], section.split("<details>")[1]
    assert "seed" in in_open
    assert "only_here" in in_open
    assert "absent" in in_open
    assert "optimizer.lr" not in in_open
    assert "optimizer.lr" in folded.split("</details>")[0]


HOSTILE = "<script>alert(1)</script>"


def test_text_from_files_stays_text(tmp_path):
    folder = write_run(
        tmp_path / HOSTILE,
        name=HOSTILE,
        variant="</script><img src=x onerror=alert(1)>",
        versions={HOSTILE: "\u2028</script>"},
        settings={HOSTILE: "<b>&amp;", "seed": "'\""},
        scalars={f"{HOSTILE}": 1.0},
    )
    writer = Writer(folder)
    with open(writer.path, "a") as file:
        file.write(f'{{"kind": "warning", "step": 1, "name": "x", "text": "{HOSTILE}"}}\n')
    other = write_run(tmp_path / "a" / HOSTILE)
    text = report(tmp_path, folder, other, tmp_path / "nowhere <img src=y>")
    page = Page(text)
    assert HOSTILE in page.words
    assert "nowhere <img src=y>" in page.words
    assert "</script><img src=x onerror=alert(1)>" in page.words
    assert not [tag for tag, _ in page.tags if tag in ("img", "b", "iframe")]
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 3, "ours alone"
    [data] = [script for script in page.scripts if script.startswith("[{")]
    assert "alert(1)" in data
    assert not re.search("[<>&]", data), "as JSON writes them, nothing can end the script"
    labels = [trace["name"] for figure in figures(text) for trace in figure["data"]]
    assert not [label for label in labels if "<" in label], "plotly's labels are HTML too"


def test_nothing_is_to_be_loaded(tmp_path):
    text = report(tmp_path, write_run(tmp_path / "run"))
    page = Page(text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name) or ""
            assert target.startswith("#") or target in ("", "data:,"), (tag, target)
    [policy] = [each["content"] for tag, each in page.tags if "http-equiv" in each]
    assert policy.startswith("default-src 'none'")
    assert "@import" not in text[: text.index("plotly.js v")]


def test_runs_of_one_name_stay_apart(tmp_path):
    folders = [write_run(tmp_path / parent / "run", looks=2) for parent in ("a", "b")]
    text = report(tmp_path, *folders, folders[0])
    words = Page(text).words
    assert "a/run" in words
    assert "b/run" in words
    assert words.count("was named more than once and is shown once.") == 1
    assert len(by_title(text)["Alignment"]["data"]) == 2


def test_a_run_without_the_lens_shows_its_accuracy(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    (folder / "lens.jsonl").unlink()
    text = report(tmp_path, folder)
    assert set(by_title(text)) == {
        "Validation accuracy, online classifier",
        "Validation accuracy, kNN",
        "Weight of a positive by its angle",
        "Gradient of a positive by its angle",
        "Attenuation",
    }
    assert f"{folder} holds no lens.jsonl: the lens was not on" in capsys.readouterr().err
    assert 'id="time"' not in text, "nothing to move through time"


def test_accuracies_of_a_resumed_run_are_joined(tmp_path):
    folder = write_run(tmp_path / "run", looks=2)
    shutil.rmtree(folder / "logs")
    metrics(folder / "logs" / "version_0" / "metrics.csv", {0: 10.0, 1: 20.0, 2: 99.0, 3: 99.0})
    metrics(folder / "logs" / "version_2" / "metrics.csv", {2: 30.0})
    metrics(folder / "logs" / "version_10" / "metrics.csv", {3: 40.0, 4: 50.0})
    [trace] = by_title(report(tmp_path, folder))["Validation accuracy, online classifier"]["data"]
    assert trace["x"] == [0, 1, 2, 3, 4]
    assert trace["y"] == [10, 20, 30, 40, 50]


def test_different_methods_are_pointed_out(tmp_path, capsys):
    one = write_run(tmp_path / "one", looks=2)
    two = write_run(tmp_path / "two", looks=2, method="byol_curv", temperature=None)
    text = report(tmp_path, one, two)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("The runs are of different methods (byol_curv, mocov3_margin)")
    assert line in Page(text).words


def test_numbers_that_are_none_are_gaps(tmp_path):
    folder = tmp_path / "run"
    writer = Writer(folder)
    writer.begin(header(margins={"angular": 9.0}), first_step=0)
    for step, loss in enumerate([1.0, math.nan, math.inf, 0.5]):
        writer.observation(observation(step, 0.0, loss=loss, uniformity=math.nan))
    text = report(tmp_path, folder)
    plots = by_title(text)
    assert plots["Loss"]["data"][0]["y"] == [1.0, None, None, 0.5]
    assert "Uniformity" not in plots
    assert "The margins of run cannot be drawn: angular must be" in Page(text).words


def test_long_runs_are_thinned(tmp_path):
    folder = tmp_path / "run"
    writer = Writer(folder)
    writer.begin(header(), first_step=0)
    seen = observation(0, 0.0)
    for step in range(300):
        writer.observation(type(seen)(step, step / 10, {"loss": 1.0}, {"q": seen.histograms["q"]}))
    plots = by_title(report(tmp_path, folder))
    [trace] = plots["Probability q of the positives"]["data"]
    frames = [frame["step"] for frame in trace["meta"]["frames"]]
    assert (len(frames), frames[0], frames[-1]) == (120, 0, 299)
    assert frames == sorted(set(frames))
    assert len(plots["Loss"]["data"][0]["x"]) == 300
    assert thinned([1, 2, 3], 3) == [1, 2, 3]


def test_a_scheduled_margin_is_drawn(tmp_path):
    folder = tmp_path / "run"
    writer = Writer(folder)
    writer.begin(header(margins={"angular": 0.0}), first_step=0)
    for step in range(3):
        margins = {"angular": 0.1 * step, "curvature": 1, "of_the_future": 2.0 * step}
        writer.observation(observation(step, 0.0, margins=margins))
    plots = by_title(report(tmp_path, folder))
    assert plots["Of the future"]["data"][0]["y"] == [0.0, 2.0, 4.0]
    assert plots["Angular margin m₁, rad"]["data"][0]["y"] == [0.0, 0.1, 0.2]
    assert "Curvature c" not in plots


def test_runs_that_nobody_named_are_shown_by_what_they_are(tmp_path):
    named = [
        write_run(tmp_path / "run-0123abcd", name="baseline"),
        write_run(tmp_path / "run-4567abcd", name="margins"),
        write_run(tmp_path / "chosen", name="other"),
    ]
    runs, _ = load_runs(named)
    assert [run.label for run in runs] == ["baseline", "margins", "chosen"]
    twice = write_run(tmp_path / "run-89ababcd", name="baseline")
    runs, _ = load_runs([*named, twice])
    assert [run.label for run in runs] == ["run-0123abcd", "margins", "chosen", "run-89ababcd"]
