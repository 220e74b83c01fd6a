"""No loss makes the host wait for a device, and a loss launches few operators.

Both cost time on a GPU alone, but can be counted on a CPU.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from host_losses import host_loss
from launches import Launches, launches_of
from loss_calls import (
    PUBLIC,
    Settings,
    assert_same,
    margins_by_row,
    value_and_gradients,
    vectors,
)

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature_by_indexes,
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
    engine,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    plain,
    simclr_margin_loss_func,
    simsiam_curv_loss_func,
)
from solo_margins.losses.margins import ContrastSpec

ALL = Margins(0.2, 0.1, 2.0, 1.5, 0.5)
WITHOUT_ATTENUATION = Margins(0.2, 0.1, 2.0, 1.5)
CLASSES = torch.tensor([2, 0, 0, 4, 1, 2, 0, -1, -1])


@pytest.mark.parametrize("name", PUBLIC)
def test_no_loss_waits_for_a_device(name):
    second = vectors(9, 1)
    for margins in (Margins(), *margins_by_row(name, 9)):
        settings = Settings(margins=margins, assignments=CLASSES, others=vectors(12, 2))
        counted = launches_of(lambda x, s=settings: PUBLIC[name](x, second, s), vectors(9, 0))
        assert not counted.waits, margins


@pytest.mark.parametrize("indexes", [2, torch.arange(5).repeat(2), CLASSES[:9].repeat(2)[:10]])
def test_ids_and_aligned_temperatures_do_not_make_it_wait(indexes):
    def loss(z):
        temperature = aligned_temperature_by_indexes(z, indexes, 0.2)
        return simclr_margin_loss_func(z, indexes, temperature, ALL)

    assert not launches_of(loss, vectors(10, 0)).waits


def test_a_memory_bank_does_not_make_it_wait():
    criterion = MarginNTXentLoss(0.5, (8, 6), margins=ALL)
    assert not launches_of(lambda z: criterion(z, vectors(5, 1)), vectors(5, 0)).waits


def test_what_waits_is_counted():
    x = vectors(3, 0)
    with Launches() as counted:
        x.sum().item()
        x[x > 0]
        x.nonzero()
        torch.equal(x, x)
    assert set(counted.waits) == {"_local_scalar_dense", "index", "nonzero", "equal"}
    assert set(counted.operators) == {"sum", "gt"}


# On a device a tensor's temperature and ids are not read. On a CPU they are, unless like this.


def unread(spec, temperature):
    """Return settings with a temperature that stays a tensor, as it does on a GPU."""
    object.__setattr__(spec, "temperature", temperature)
    return spec


CALLS = {
    "query and key": lambda a, b, spec: engine.query_key(a, b, spec, with_gradient=True),
    "views": lambda a, b, spec: engine.views(torch.cat([a, b]), 2, spec),
    "ids": lambda a, b, spec: engine.same_id(a, CLASSES, spec),
    "queue": lambda a, b, spec: engine.queue(a, b, vectors(12, 2).t(), spec),
    "prototypes": lambda a, b, spec: engine.prototypes(a, b, CLASSES, spec),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "more",
    [{}, {"tau_plus": 0.1, "beta": 1.0}, {"negatives_weight": 0.5}, {"mean": 0.2, "width": 0.3}],
)
@pytest.mark.parametrize("margins", [Margins(), ALL], ids=["margins off", "all margins"])
def test_a_temperature_on_a_device_is_the_number(name, more, margins):
    first, second = vectors(9, 0), vectors(9, 1)
    for temperature in (0.02, 0.3):
        spec = ContrastSpec(temperature, margins, **more)
        on_device = ContrastSpec(temperature, margins, **more)
        unread(on_device, torch.tensor(temperature, dtype=torch.float64))
        results = [
            value_and_gradients(lambda x, s=s: CALLS[name](x, second, s), first)
            for s in (on_device, spec)
        ]
        assert_same(*results)
        waiting = launches_of(lambda x, s=on_device: CALLS[name](x, second, s), first).waits
        assert not waiting


@pytest.mark.parametrize("margins", [Margins(), ALL], ids=["margins off", "all margins"])
@pytest.mark.parametrize("views", [2, 3])
def test_ids_of_views_on_a_device(views, margins):
    """There positives are entries of the matrix; by their number they are compared one by one."""
    z, ids = vectors(4 * views, 0), torch.arange(4).repeat(views)
    spec = ContrastSpec(0.2, margins)
    by_number = value_and_gradients(lambda x: engine.views(x, views, spec), z)
    assert_same(value_and_gradients(lambda x: engine.same_id(x, ids, spec), z), by_number)
    assert_same(value_and_gradients(lambda x: plain.views(x, views, spec), z), by_number)
    for indexes in (ids, views):
        of_public = value_and_gradients(
            lambda x, i=indexes: simclr_margin_loss_func(x, i, 0.2, margins), z
        )
        assert_same(of_public, by_number)


@pytest.mark.parametrize("angle", [0.0, 1e-4, math.pi - 1e-4, math.pi])
def test_close_and_opposite_pairs_by_ids_on_a_device(angle):
    """What rounding makes of the smallest angles is bounded, in value and gradient."""
    turned = torch.tensor([[math.cos(angle), math.sin(angle)]]).repeat(2, 1)
    z = torch.cat([torch.tensor([[1.0, 0.0]] * 2), turned])
    z[1::2] = z[1::2].flip(1)
    ids = torch.arange(2).repeat(2)
    spec = ContrastSpec(0.1, ALL)
    exact = value_and_gradients(lambda x: engine.views(x, 2, spec), z)
    received = value_and_gradients(lambda x: engine.same_id(x, ids, spec), z)
    assert_same(received[:1], exact[:1], 2e-3)
    assert received[1].norm() < 1.1 * exact[1].norm() + 1e-3


# Operators that are not views, forward and backward at 256 pairs, as multiples of solo-learn's own.

PAIRS = 256


def embeddings():
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(PAIRS, 128, generator=generator)
    return first, first + 0.5 * torch.randn(PAIRS, 128, generator=generator)


def unit(x):
    return F.normalize(x, dim=-1)


def steps(name, margins):
    """Return our loss, solo-learn's own, and what both are functions of."""
    a, b = embeddings()
    both, ids = torch.cat([a, b]), torch.arange(PAIRS).repeat(2)
    labels = torch.arange(2 * PAIRS) % 10
    columns = unit(torch.randn(128, 1000, generator=torch.Generator().manual_seed(1)).t()).t()
    clusters, centres = torch.arange(PAIRS) % 100 - 1, columns.t()[:100]
    host = "simclr" if name in ("supcon", "simclr by ids") else name
    hosts = host_loss(host, f"{host}_loss_func")
    spec = ContrastSpec(0.1, margins)
    return {
        "mocov3": (
            lambda x: mocov3_margin_loss_func(x, b, 0.2, margins),
            lambda x: hosts(x, b, 0.2),
            a,
        ),
        "simclr": (
            lambda x: simclr_margin_loss_func(x, 2, 0.1, margins),
            lambda x: hosts(x, ids, 0.1),
            both,
        ),
        "simclr by ids": (
            # As on a GPU; on a CPU ids are read.
            lambda x: engine.same_id(x, ids, spec),
            lambda x: hosts(x, ids, 0.1),
            both,
        ),
        "supcon": (
            lambda x: simclr_margin_loss_func(x, labels, 0.1, margins),
            lambda x: hosts(x, labels, 0.1),
            both,
        ),
        "byol": (lambda x: byol_curv_loss_func(x, b, margins), lambda x: hosts(x, b), a),
        "simsiam": (lambda x: simsiam_curv_loss_func(x, b, margins), lambda x: hosts(x, b), a),
        "nnclr": (
            lambda x: nnclr_margin_loss_func(b, x, 0.1, margins),
            lambda x: hosts(b, x, 0.1),
            a,
        ),
        "mocov2plus": (
            lambda x: mocov2plus_margin_loss_func(x, b, columns, 0.1, margins),
            lambda x: hosts(unit(x), unit(b), columns, 0.1),
            a,
        ),
        "deepclusterv2": (
            lambda x: deepclusterv2_margin_loss_func(x, centres, clusters, 0.1, margins),
            lambda x: F.cross_entropy(unit(x) @ centres.t() / 0.1, clusters, ignore_index=-1),
            a,
        ),
    }[name]


# Without margins, and with all.
BOUNDS = {
    "mocov3": (1.0, 1.55),
    "simclr": (0.75, 1.15),
    "simclr by ids": (0.95, 1.35),
    "supcon": (0.95, 1.35),
    "byol": (0.7, 1.3),
    "simsiam": (0.65, 1.3),
    "nnclr": (1.0, 1.65),
    "mocov2plus": (1.0, 1.55),
    # Its centres are normalised here, and those of the other side are given at length one.
    "deepclusterv2": (1.45, 2.2),
}


@pytest.mark.repository
@pytest.mark.parametrize("name", BOUNDS)
def test_launches_beside_solo_learns(name):
    without, with_all = BOUNDS[name]
    everything = WITHOUT_ATTENUATION if name in ("byol", "simsiam") else ALL
    for margins, bound in ((Margins(), without), (everything, with_all)):
        ours, hosts, x = steps(name, margins)
        number, of_host = (launches_of(loss, x).operators.total() for loss in (ours, hosts))
        assert number <= bound * of_host, f"{number} beside {of_host}"
