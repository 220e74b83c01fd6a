"""The plots of a report: what they show of which runs."""

import math

import pytest
from lens_runs import SETTINGS, observation, write_lens, write_run
from report_pages import plots

BAND = {**SETTINGS["method_kwargs"], "polarization": {"weight": 1.0, "lower": 0.2, "upper": 0.4}}
HISTOGRAMS = "Angles, probabilities and distances"


def test_everything_is_shown(tmp_path):
    """Every number of measures.py, which writes two of them for polarized runs alone."""
    one = write_run(
        tmp_path / "one",
        scalars={"polarization_loss": 0.01, "pairs_in_band": 0.4, "saturated_q": 0.1},
        method_kwargs=BAND,
    )
    two = write_run(tmp_path / "two", looks=5)
    shown = plots(one, two)
    assert list(shown) == [
        "Validation accuracy, online classifier",
        "Validation accuracy, kNN",
        HISTOGRAMS,
        "Pull and push",
        "Effective scale",
        "Silenced positives",
        "Saturated rows",
        "Mean angle",
        "Separation",
        "Mean probability of the positives",
        "Alignment",
        "Uniformity",
        "Effective rank",
        "Loss",
        "Terms of the contrastive loss",
        "Distance polarization",
        "Pairs inside the band",
        "Weight of a positive by its angle",
        "Gradient of a positive by its angle",
        "Attenuation",
    ]
    assert len(shown["Pull and push"].data) == 4
    assert [line.name for line in shown["Alignment"].data] == ["one", "two"]
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
    gradient = shown["Gradient of a positive by its angle"].data
    assert max(gradient[1].y) == pytest.approx(0.5 / 0.2), "no margins: (1 - q) sin θ / τ"
    assert list(gradient[2].y) == list(gradient[1].y), "the plain loss beside them"


def test_a_method_without_negatives_has_no_attenuation(tmp_path):
    folder = write_run(
        tmp_path / "byol", margins={"positive_scale": 3.0}, method_kwargs={"temperature": None}
    )
    shown = plots(folder)
    assert "Attenuation" not in shown
    assert max(shown["Gradient of a positive by its angle"].data[0].y) == 3.0


def test_a_run_without_the_lens_shows_its_accuracy_and_margins(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "lens.jsonl").unlink()
    assert list(plots(folder)) == [
        "Validation accuracy, online classifier",
        "Validation accuracy, kNN",
        "Weight of a positive by its angle",
        "Gradient of a positive by its angle",
        "Attenuation",
    ]


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
    seen = observation(0, 0.0)
    write_lens(
        tmp_path,
        [
            type(seen)(step, step / 10, {"loss": 1.0}, {"q": seen.histograms["q"]})
            for step in range(1200)
        ],
    )
    shown = plots(tmp_path)
    steps = [int(step.label) for step in shown[HISTOGRAMS].layout.sliders[0].steps]
    assert (len(steps), steps[0], steps[-1]) == (120, 0, 1199)
    assert len(shown["Loss"].data[0].x) == 1000


def test_a_scheduled_margin_is_drawn(tmp_path):
    margins = [{"angular": 0.1 * step, "curvature": 1.0, "curve": "power"} for step in range(3)]
    write_lens(tmp_path, [observation(step, 0.0, margins=m) for step, m in enumerate(margins)])
    shown = plots(tmp_path)
    assert list(shown["Angular margin"].data[0].y) == [0.0, 0.1, 0.2]
    assert "Curvature" not in shown
    assert "Temperature" not in shown


def test_a_scheduled_temperature_is_drawn_and_curves_are_of_the_last(tmp_path):
    write_lens(tmp_path, [observation(n, 0.0, temperature=t) for n, t in enumerate((0.5, 0.1))])
    shown = plots(tmp_path)
    assert list(shown["Temperature"].data[0].y) == [0.5, 0.1]
    assert max(shown["Gradient of a positive by its angle"].data[-1].y) == pytest.approx(0.5 / 0.1)
