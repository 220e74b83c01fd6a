"""Every loss as a function of two batches: by its public function and by either form."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from solo_margins import losses
from solo_margins.losses import Margins, engine, plain
from solo_margins.losses.margins import ContrastSpec

ALL_MARGINS = [
    Margins(*numbers, attenuation_type=kind, curve=curve, beyond_pi=beyond)
    for numbers in itertools.product(
        (0.0, 0.4, 3.0), (0.0, 0.5), (1.0, 20.0), (0.7, math.inf), (0.0, 0.25, 1.0)
    )
    for kind, curve, beyond in (
        ("I", "power", "cosine"),
        ("II", "root", "monotone"),
        ("I", "superellipse", "cosine"),
    )
]
SOME_MARGINS = [Margins(), *ALL_MARGINS[::7]]
"""A seventh of them, with every value and most pairs of values."""


def focal(angle, q):
    """Return a factor of one's own."""
    return (1 - q) ** 2 * (1 + angle)


OWN_MARGINS = [
    Margins(scaling=focal),
    Margins(0.4, 0.5, 20.0, 0.7, 0.25, scaling=focal),
    Margins(-0.8, 0.1, 2.0, scaling=focal),
    Margins(-math.pi / 2),
    Margins(-1.2, beyond_pi="monotone"),
]
"""With a function of one's own, and with negative angular margins."""


WITHOUT_NEGATIVES = ("byol", "simsiam", "polarization")
OF_BOTH_VIEWS = ("simclr", "simclr gaussian", "debiased", "hard", "module")
"""Losses whose rows are those of both batches."""


def margins_by_row(name, pairs):
    """Return margins that a loss of so many pairs takes, of which each row has its own."""
    rows = 2 * pairs if name in OF_BOTH_VIEWS else pairs
    angular = torch.linspace(-math.pi / 2, math.pi, rows, dtype=torch.float64)
    subtractive = torch.linspace(0.0, 0.5, rows)
    scale = torch.linspace(0.5, 20.0, rows, dtype=torch.float64).flip(0)
    attenuation = 0.0 if name in WITHOUT_NEGATIVES else 0.25
    return [
        Margins(angular=angular),
        Margins(0.4, subtractive, scale, 0.7, attenuation),
        Margins(angular, subtractive, scale, 1.5, attenuation, beyond_pi="monotone", scaling=focal),
    ]


def every_effect(name, pairs):
    """Return margins with everything that a loss of so many pairs takes, each row its own."""
    return margins_by_row(name, pairs)[-1]


TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


@dataclass(frozen=True)
class Settings:
    """What the losses are called with beside two (N, D) batches that belong together row by row."""

    temperature: float | Tensor = 0.2
    margins: Margins = Margins()  # noqa: RUF009
    tile_size: int | None = None  # of the engine, in the calls of TILED
    negatives_weight: float = 0.5
    tau_plus: float = 0.1
    beta: float = 1.0
    mean: float = 0.3
    width: float = 0.4
    band: tuple[float, float] = (0.1, 0.9)
    ids: Tensor | None = None  # (N,) of samples; by default their numbers
    assignments: Tensor | None = None  # (N,) to prototypes, -1 for none; in pairs they are classes
    others: Tensor | None = None  # (K, D) queue and prototypes; by default both batches


def _views(a, b, s):
    ids = torch.arange(len(a)) if s.ids is None else s.ids
    with torch.autocast("cpu", enabled=False):  # it cannot concatenate every mixture of dtypes
        return torch.cat([a, b]), ids.repeat(2)


def _others(a, b, s):
    return _views(a, b, s)[0].detach() if s.others is None else s.others


def _assignments(a, s):
    return torch.arange(len(a)).flip(0) if s.assignments is None else s.assignments


def _spec(s, **more):
    return ContrastSpec(s.temperature, s.margins, **more)


def _hard(s):
    return _spec(s, tau_plus=s.tau_plus, beta=s.beta)


def _gaussian(s):
    return {"mean": s.mean, "width": s.width}


def _tiles(form, s):
    return {} if form is plain else {"tile_size": s.tile_size}


PUBLIC = {
    "mocov3": lambda a, b, s: losses.mocov3_margin_loss_func(a, b, s.temperature, s.margins),
    "nnclr": lambda a, b, s: losses.nnclr_margin_loss_func(b, a, s.temperature, s.margins),
    "generalized": lambda a, b, s: losses.generalized_info_nce_loss_func(
        a, b, s.temperature, s.negatives_weight, s.margins
    ),
    "simclr": lambda a, b, s: losses.simclr_margin_loss_func(
        *_views(a, b, s), s.temperature, s.margins
    ),
    "classes": lambda a, b, s: losses.simclr_margin_loss_func(
        a, _assignments(a, s) // 2, s.temperature, s.margins
    ),
    "debiased": lambda a, b, s: losses.simclr_debiased_loss_func(
        *_views(a, b, s), s.temperature, s.tau_plus, s.margins
    ),
    "hard": lambda a, b, s: losses.simclr_hard_negative_loss_func(
        *_views(a, b, s), s.temperature, s.tau_plus, s.beta, s.margins
    ),
    "mocov2plus": lambda a, b, s: losses.mocov2plus_margin_loss_func(
        a, b, _others(a, b, s).t(), s.temperature, s.margins
    ),
    "mocov3 hard": lambda a, b, s: losses.mocov3_margin_loss_func(
        a, b, s.temperature, s.margins, s.tau_plus, s.beta
    ),
    "nnclr hard": lambda a, b, s: losses.nnclr_margin_loss_func(
        b, a, s.temperature, s.margins, s.tau_plus, s.beta
    ),
    "mocov2plus hard": lambda a, b, s: losses.mocov2plus_margin_loss_func(
        a, b, _others(a, b, s).t(), s.temperature, s.margins, s.tau_plus, s.beta
    ),
    "mocov3 gaussian": lambda a, b, s: losses.mocov3_margin_loss_func(
        a, b, s.temperature, s.margins, **_gaussian(s)
    ),
    "nnclr gaussian": lambda a, b, s: losses.nnclr_margin_loss_func(
        b, a, s.temperature, s.margins, s.tau_plus, **_gaussian(s)
    ),
    "simclr gaussian": lambda a, b, s: losses.simclr_margin_loss_func(
        *_views(a, b, s), s.temperature, s.margins, **_gaussian(s)
    ),
    "mocov2plus gaussian": lambda a, b, s: losses.mocov2plus_margin_loss_func(
        a, b, _others(a, b, s).t(), s.temperature, s.margins, **_gaussian(s)
    ),
    "deepclusterv2": lambda a, b, s: losses.deepclusterv2_margin_loss_func(
        a, _others(a, b, s), _assignments(a, s), s.temperature, s.margins
    ),
    "module": lambda a, b, s: losses.MarginNTXentLoss(s.temperature, 0, True, s.margins)(a, b),
    "byol": lambda a, b, s: losses.byol_curv_loss_func(a, b, s.margins),
    "simsiam": lambda a, b, s: losses.simsiam_curv_loss_func(a, b, s.margins),
    "polarization": lambda a, b, s: losses.distance_polarization_loss_func(
        _views(a, b, s)[0], *s.band
    ),
}


def _by_form(form):
    """Return the losses by the functions of the plain form, or of the engine in tiles."""

    def query_key(query, key, s, spec, with_gradient=False):
        return form.query_key(query, key, spec, with_gradient, **_tiles(form, s))

    def same_id(z, ids, s, spec):
        return form.same_id(z, ids, spec, **_tiles(form, s))

    def views(a, b, s, spec):
        z, ids = _views(a, b, s)
        if s.ids is not None:
            return same_id(z, ids, s, spec)
        return form.views(z, 2, spec, **_tiles(form, s))

    def queue(query, key, s, spec):
        return form.queue(query, key, _others(query, key, s).t(), spec, **_tiles(form, s))

    def prototypes(a, b, s):
        settings = _assignments(a, s), _spec(s)
        return form.prototypes(a, _others(a, b, s), *settings, **_tiles(form, s))

    def polarization(a, b, s):
        return form.polarization(_views(a, b, s)[0], *s.band, **_tiles(form, s))[0]

    return {
        "mocov3": lambda a, b, s: query_key(a, b, s, _spec(s)) * 2 * float(s.temperature),
        "nnclr": lambda a, b, s: query_key(b, a, s, _spec(s), with_gradient=True),
        "generalized": lambda a, b, s: query_key(
            a, b, s, _spec(s, negatives_weight=s.negatives_weight)
        ),
        "simclr": lambda a, b, s: views(a, b, s, _spec(s)),
        "classes": lambda a, b, s: same_id(a, _assignments(a, s) // 2, s, _spec(s)),
        "debiased": lambda a, b, s: views(a, b, s, _spec(s, tau_plus=s.tau_plus)),
        "hard": lambda a, b, s: views(a, b, s, _hard(s)),
        "mocov2plus": lambda a, b, s: queue(a, b, s, _spec(s)),
        "mocov3 hard": lambda a, b, s: query_key(a, b, s, _hard(s)) * 2 * float(s.temperature),
        "nnclr hard": lambda a, b, s: query_key(b, a, s, _hard(s), with_gradient=True),
        "mocov2plus hard": lambda a, b, s: queue(a, b, s, _hard(s)),
        "mocov3 gaussian": lambda a, b, s: (
            query_key(a, b, s, _spec(s, **_gaussian(s))) * 2 * float(s.temperature)
        ),
        "nnclr gaussian": lambda a, b, s: query_key(
            b, a, s, _spec(s, tau_plus=s.tau_plus, **_gaussian(s)), with_gradient=True
        ),
        "simclr gaussian": lambda a, b, s: views(a, b, s, _spec(s, **_gaussian(s))),
        "mocov2plus gaussian": lambda a, b, s: queue(a, b, s, _spec(s, **_gaussian(s))),
        "deepclusterv2": prototypes,
        "module": lambda a, b, s: views(a, b, s, _spec(s)),
        "byol": lambda a, b, s: 2 + 2 * form.positives_only(a, b, s.margins),
        "simsiam": lambda a, b, s: form.positives_only(a, b, s.margins),
        "polarization": polarization,
    }


PLAIN = _by_form(plain)
TILED = _by_form(engine)
FORMS = {"engine": PUBLIC, "tiled": TILED, "plain": PLAIN}


def takes(name, margins):
    """Tell whether a loss takes these margins."""
    return margins.attenuation == 0.0 or name not in ("byol", "simsiam")


def vectors(rows, seed, width=6):
    """Return normally distributed float64 vectors."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, dtype=torch.float64, generator=generator)


def value_and_gradients(loss, *inputs):
    """Return the value of a loss and its gradients by all inputs, None for those without one."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    value = loss(*inputs)
    return [value.detach(), *torch.autograd.grad(value, inputs, allow_unused=True)]


def assert_same(received, expected, tolerance=None, message=None):
    """Compare values and gradients, relative to the largest entry where that exceeds 1."""
    for one, other in zip(received, expected, strict=True):
        if other is None:
            assert one is None, message
            continue
        # A gradient of s = 20 is 20 times that of s = 1.
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(
            one.double() / scale,
            other.double() / scale,
            rtol=0,
            atol=tolerance or TOLERANCE[one.dtype],
            msg=lambda text: f"{message}: {text}",
        )
