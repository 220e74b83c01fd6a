"""The plots of a report: what they show of which runs."""

import math

import pytest
from lens_runs import SETTINGS, observation, write_lens, write_run
from report_pages import plots

BAND = {**SETTINGS["method_kwargs"], "polarization": {"weight": 1.0, "lower": 0.2, "upper": 0.4}}
HISTOGRAMS = "Angles, probabilities and distances"
GRADIENT = "Gradient of a positive by its angle"


def test_a_plot_has_a_line_for_each_run_that_was_measured(tmp_path):
    one = write_run(tmp_path / "one", scalars={"pairs_in_band": 0.4}, method_kwargs=BAND)
    two = write_run(tmp_path / "two", looks=5)
    shown = plots(one, two)
    assert len(shown["Pull and push"].data) == 4
    assert [line.name for line in shown["Alignment"].data] == ["one", "two"]
    assert [line.name for line in shown["Pairs inside the band"].data] == ["one"]
    assert [band.x0 for band in shown[HISTOGRAMS].layout.shapes] == [0.2]


def test_the_slider_moves_all_histograms(tmp_path):
    one = write_run(tmp_path / "one", looks=4, steps=300)
    two = write_run(tmp_path / "two", looks=2, steps=150)
    figure = plots(one, two)[HISTOGRAMS]
    [slider] = figure.layout.sliders
    assert [step.label for step in slider.steps] == ["0", "100", "150", "200", "300"]
    shares = [step.args[0]["y"] for step in slider.steps]
    assert [list(line.y) for line in figure.data] == shares[-1], "the last step is shown first"
    for of_step in shares:
        assert all(sum(share[:-1]) == pytest.approx(100, abs=0.1) for share in of_step)
    # Positives of the first run, then of the second, which shows its last observation.
    assert shares[1][0].index(max(shares[1][0])) > shares[-1][0].index(max(shares[-1][0]))
    assert shares[0][1] == shares[1][1] != shares[2][1] == shares[-1][1]
    assert figure.data[0].x[-1] == pytest.approx(180)


def test_curves_are_those_of_each_runs_margins(tmp_path):
    one = write_run(tmp_path / "one", margins={"positive_scale": 4.0, "curvature": 1.0})
    two = write_run(tmp_path / "two", margins={"positive_scale": 1.0, "curvature": "inf"})
    shown = plots(one, two)
    weight = shown["Weight of a positive by its angle"].data
    assert (weight[0].y[0], weight[0].y[-1]) == (4.0, 0.0)
    assert set(weight[1].y) == {1.0}
    gradient = shown[GRADIENT].data
    assert max(gradient[1].y) == pytest.approx(0.5 / 0.2), "no margins: (1 - q) sin θ / τ"
    assert list(gradient[2].y) == list(gradient[1].y), "the plain loss beside them"


def test_a_method_without_negatives_has_no_attenuation(tmp_path):
    folder = write_run(
        tmp_path / "byol", margins={"positive_scale": 3.0}, method_kwargs={"temperature": None}
    )
    shown = plots(folder)
    assert "Attenuation" not in shown
    assert max(shown[GRADIENT].data[0].y) == 3.0


def test_a_run_without_the_lens_shows_its_accuracy_and_margins(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "lens.jsonl").unlink()
    shown = plots(folder)
    assert {"Validation accuracy, kNN", GRADIENT} <= shown.keys()
    assert "Loss" not in shown


def test_numbers_that_are_not_finite_are_gaps(tmp_path):
    losses = [1.0, math.nan, math.inf, 0.5]
    seen = [
        observation(step, 0.0, loss=loss, uniformity=math.nan) for step, loss in enumerate(losses)
    ]
    write_lens(tmp_path, seen)
    shown = plots(tmp_path)
    assert '"y":[1.0,null,null,0.5]' in shown["Loss"].to_json()
    assert "Uniformity" not in shown


def test_long_runs_are_thinned(tmp_path):
    first = observation(0, 0.0)
    histograms = {"q": first.histograms["q"]}
    write_lens(
        tmp_path,
        [type(first)(step, step / 10, {"loss": 1.0}, histograms) for step in range(1200)],
    )
    shown = plots(tmp_path)
    steps = [int(step.label) for step in shown[HISTOGRAMS].layout.sliders[0].steps]
    assert (len(steps), steps[0], steps[-1]) == (120, 0, 1199)
    assert len(shown["Loss"].data[0].x) == 1000


def test_what_is_scheduled_is_drawn_and_curves_are_of_the_last(tmp_path):
    seen = [
        observation(step, 0.0, temperature=temperature, margins={"angular": 0.1 * step})
        for step, temperature in enumerate((0.5, 0.1))
    ]
    write_lens(tmp_path, seen)
    shown = plots(tmp_path)
    assert list(shown["Angular margin"].data[0].y) == [0.0, 0.1]
    assert list(shown["Temperature"].data[0].y) == [0.5, 0.1]
    assert "Curvature" not in shown
    assert max(shown[GRADIENT].data[-1].y) == pytest.approx(0.5 / 0.1)
