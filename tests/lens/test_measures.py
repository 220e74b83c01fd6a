"""Numbers of a batch, on vectors for which they are known."""

import math

import numpy as np
import pytest
import torch
from margin_names import named

from solo_margins.lens.capture import StepCapture
from solo_margins.lens.measures import measure, separation
from solo_margins.losses import (
    Margins,
    distance_polarization_with_count,
    mocov3_margin_loss_func,
)
from solo_margins.losses.capture import capture

PLAIN = Margins()


def batch(rows=64, width=16, noise=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    key = torch.randn(rows, width, generator=generator)
    return key + noise * torch.randn(rows, width, generator=generator), key


def measured(margins=PLAIN, noise=0.3, temperature=0.2):
    query, key = batch(noise=noise)
    with capture() as seen:
        mocov3_margin_loss_func(query, key, temperature, margins)
    return measure(StepCapture(seen))


@pytest.mark.parametrize(
    ("margins", "of_positives", "of_negatives"),
    [
        (PLAIN, 1.0, 1.0),
        (Margins(positive_scale=3.0), 3.0, 1.0),
        (Margins(scaling=lambda angle, q: torch.full_like(angle, 0.5)), 0.5, 1.0),
    ],
    ids=named,
)
def test_effective_scales(margins, of_positives, of_negatives):
    found = measured(margins).scalars
    assert found["effective_scale"] == pytest.approx(of_positives)
    assert found["effective_scale_negatives"] == pytest.approx(of_negatives)


def test_both_directions_of_a_step_are_measured():
    query, key = batch()
    with capture() as compared:
        mocov3_margin_loss_func(query, key)
        mocov3_margin_loss_func(key, 2 * query - key)
    one, other = (measure(StepCapture([part])) for part in compared)
    both = measure(StepCapture(compared))
    for name in ("q", "pull", "loss", "negative_angle"):
        mean = (one.scalars[name] + other.scalars[name]) / 2
        assert both.scalars[name] == pytest.approx(mean)
    counts = {name: sum(histogram.counts) for name, histogram in both.histograms.items()}
    assert counts == {"q": 2 * 64, "positive_angle": 2 * 64, "negative_angle": 2 * 64 * 63}


def test_angles_q_and_separation_follow_the_noise():
    close, far = measured(noise=0.05).scalars, measured(noise=50.0).scalars
    assert close["positive_angle"] < 0.1 < 1.2 < far["positive_angle"]
    assert close["negative_angle"] == pytest.approx(math.pi / 2, abs=0.05)
    assert close["angle_separation"] == pytest.approx(1.0)
    assert far["angle_separation"] == pytest.approx(0.5, abs=0.1)
    assert close["q"] > 0.5 > far["q"]
    assert close["alignment"] < 0.01
    assert far["loss"] > math.log(64) * 0.9
    assert far["chance_loss"] == pytest.approx(math.log(64))
    assert close["loss_positive"] + close["loss_negative"] == pytest.approx(close["loss"])


@pytest.mark.parametrize(("temperature", "share"), [(0.25, 0.0), (0.2, 1.0)])
def test_rows_are_saturated_from_99_percent_on(temperature, share):
    """At a right angle to the one negative q is 0.982 and 0.993."""
    with capture() as seen:
        mocov3_margin_loss_func(torch.eye(2), torch.eye(2), temperature)
    assert measure(StepCapture(seen)).scalars["saturated_q"] == share


def test_distances_are_those_of_the_regulariser():
    projections, _ = batch(rows=40)
    found = measure(StepCapture(projections=[projections]), band=(0.3, 0.6))
    loss, count = distance_polarization_with_count(projections, 0.3, 0.6)
    assert found.scalars["polarization_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert found.scalars["pairs_in_band"] == pytest.approx(count.item() / (40 * 39))
    assert sum(found.histograms["distance"].counts) == 40 * 39
    unit = torch.nn.functional.normalize(projections, dim=1)
    square = torch.cdist(unit, unit).square()[~torch.eye(40, dtype=torch.bool)]
    expected = (-2 * square).exp().mean().log().item()
    assert found.scalars["uniformity"] == pytest.approx(expected, rel=1e-4)


def test_rankme_is_that_of_its_paper():
    """Garrido et al., 2023, Eq. 1, on features as they are."""
    features, _ = batch(rows=40, width=24)
    features = features + 3.0
    sigma = torch.linalg.svdvals(features.double())
    share = sigma / sigma.norm(p=1) + 1e-7
    expected = math.exp(-(share * share.log()).sum())
    found = measure(StepCapture(features=[features[:15], features[15:]])).scalars
    assert found["rankme"] == pytest.approx(expected, rel=1e-9)
    assert (found["rankme_rows"], found["feature_width"]) == (40, 24)


@pytest.mark.parametrize("width", [24, 300])
def test_alpha_req_is_the_slope_of_the_eigenvalues(width):
    """Agrawal et al., 2022: the covariance's eigenvalues 11 to 100, weighted by 1/j."""
    generator = torch.Generator().manual_seed(0)
    falling = torch.arange(1, width + 1) ** -0.65
    features = torch.randn(1000, width, generator=generator).double() * falling
    found = measure(StepCapture(features=[features])).scalars
    # As many rows as the lens looks at.
    features = features[torch.linspace(0, 999, int(found["rankme_rows"])).round().long()]
    eigenvalues = torch.linalg.eigvalsh(features.t() @ features / len(features)).flip(0)
    number = np.arange(1, width + 1)[10:100]
    weight = np.sqrt(1 / number)  # polyfit squares it
    slope, _ = np.polyfit(np.log(number), eigenvalues[10:100].log().numpy(), 1, w=weight)
    assert found["alpha_req"] == pytest.approx(-slope, rel=1e-6)


def test_a_mean_of_the_features_hardly_changes_alpha_req():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(512, 256, generator=generator) * torch.arange(1, 257) ** -0.5
    found = [
        measure(StepCapture(features=[features + shift])).scalars["alpha_req"]
        for shift in (-features.mean(dim=0), 10.0)
    ]
    assert found[0] == pytest.approx(found[1], abs=0.05)


@pytest.mark.parametrize(
    ("features", "rank"),
    [
        (torch.zeros(40, 40), 0.0),
        (torch.ones(40, 40), 1.0),
        (torch.eye(40)[:, :19], 19.0),
        (torch.full((40, 40), math.inf), math.nan),
    ],
)
def test_features_without_a_spectrum_have_no_alpha_req(features, rank):
    found = measure(StepCapture(features=[features])).scalars
    assert found["rankme"] == pytest.approx(rank, rel=1e-3, nan_ok=True)
    assert "alpha_req" not in found


def test_separation_counts_pairs():
    positive, negative = torch.rand(7), torch.rand(11)
    pairs = (positive.unsqueeze(1) < negative).double().mean().item()
    assert separation(positive, negative) == pytest.approx(pairs)
    assert separation(torch.ones(3), torch.ones(4)) == 0.5


def test_large_batches_are_sampled_from_the_last_projection_of_each_view():
    earlier, first, second = torch.eye(4)[:3].unsqueeze(1).expand(3, 500, 4)
    found = measure(StepCapture(projections=[earlier, first, second]))
    counts = found.histograms["distance"].counts
    assert sum(counts) == 256 * 255
    assert counts[0] == 2 * 128 * 127  # pairs of the same view


def test_numbers_that_are_not_finite_do_not_stop_a_run():
    """A skipped step may have shown them."""
    query, key = batch(rows=8)
    query[0] = math.nan
    with capture() as seen:
        mocov3_margin_loss_func(query, key)
    found = measure(StepCapture(seen, features=[query], projections=[query]))
    assert math.isnan(found.scalars["rankme"])
    assert math.isnan(found.scalars["loss"])
