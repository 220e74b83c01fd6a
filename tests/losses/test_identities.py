"""Identities between margins, gradient scalings and plain contrastive losses.

Others are tested elsewhere: default margins in test_against_host.py, the factors of single entries
in test_relations.py, the arccos form in test_against_naive.py, processes in test_distributed.py.
"""

import math
from dataclasses import replace

import pytest
import torch
from loss_calls import (
    PUBLIC,
    Settings,
    assert_same,
    focal,
    takes,
    value_and_gradients,
    vectors,
)
from margin_names import named

from solo_margins.losses import Margins

SETTINGS = Settings(
    assignments=torch.tensor([5, 0, -1, 7, 5, 2, -1, 1]), others=vectors(8, 2, width=5)
)
SCALINGS = [
    Margins(positive_scale=20.0),
    Margins(curvature=0.7),
    Margins(curvature=2.5, curve="root"),
    Margins(curvature=0.7, curve="superellipse"),
    Margins(attenuation=0.25),
    Margins(attenuation=1.0, attenuation_type="II"),
    Margins(scaling=focal),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "polarization"])
def test_scalings_change_the_gradient_and_not_the_value(name, dtype):
    first, second = (vectors(8, seed, width=5).to(dtype) for seed in (0, 1))
    plain = value_and_gradients(lambda a, b: PUBLIC[name](a, b, SETTINGS), first, second)
    for margins in SCALINGS:
        if not takes(name, margins):
            continue
        s = replace(SETTINGS, margins=margins)
        value, *found = value_and_gradients(lambda a, b, s=s: PUBLIC[name](a, b, s), first, second)
        assert torch.equal(value, plain[0]), margins
        assert (found[0] - plain[1]).abs().max() > 1e-5, margins


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    "name", ["mocov3", "simclr", "classes", "mocov2plus", "nnclr", "deepclusterv2"]
)
def test_attenuation_is_the_subtractive_margin(name, dtype):
    """Type I with α = 1 - exp(-m2/τ), with several positives in a row too."""
    batches = [vectors(8, seed, width=5).to(dtype) for seed in (0, 1)]
    for subtractive in (0.05, 0.4, 2.0):
        margins = Margins(subtractive=subtractive)
        attenuated = Margins(attenuation=1 - math.exp(-subtractive / SETTINGS.temperature))
        received, expected = (
            value_and_gradients(
                lambda a, b, m=m: PUBLIC[name](a, b, replace(SETTINGS, margins=m)), *batches
            )
            for m in (attenuated, margins)
        )
        assert_same(received[1:], expected[1:])


def test_the_curves_agree_where_the_curvature_is_one_and_differ_elsewhere():
    angle = torch.tensor([math.pi / 4], dtype=torch.float64)
    rounded = {
        c: [
            round(Margins(curvature=c, curve=curve).angle_weight(angle).item(), 2)
            for curve in ("power", "root", "superellipse")
        ]
        for c in (1 / 3, 0.7, 1.0)
    }
    assert rounded == {1 / 3: [0.37, 0.42, 0.05], 0.7: [0.62, 0.66, 0.51], 1.0: [0.75] * 3}


# Weights of Gaussian negatives have no gradient, so that finite differences are others.
DIFFERENTIABLE = [name for name in PUBLIC if not name.endswith("gaussian")]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize(
    "margins",
    [
        Margins(angular=0.5, subtractive=0.4),
        Margins(angular=2.5, subtractive=0.1),
        Margins(angular=2.5, beyond_pi="monotone"),
        Margins(angular=-0.9),
        Margins(angular=-0.9, beyond_pi="monotone"),
    ],
    ids=named,
)
def test_gradcheck(name, margins):
    first, second = (vectors(6, seed, width=4).requires_grad_() for seed in (3, 4))
    if name.startswith(("mocov2plus", "byol", "simsiam", "classes", "deepclusterv2")):
        second = second.detach()  # targets
    s = Settings(
        0.2,
        margins,
        others=vectors(7, 5, width=4),
        assignments=torch.tensor([0, 1, -1, 0, 1, 0]),
        band=(0.1, 0.6),
    )
    assert torch.autograd.gradcheck(lambda a, b: PUBLIC[name](a, b, s), (first, second))
