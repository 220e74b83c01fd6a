"""Wrong arguments: a ``ValueError`` that names the argument, its range and the value received."""

import dataclasses
import math
import subprocess
import sys

import pytest
import torch

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature_by_indexes,
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
    distance_polarization_loss_func,
    distance_polarization_with_count,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_debiased_loss_func,
    simclr_hard_negative_loss_func,
    simclr_margin_loss_func,
    simsiam_curv_loss_func,
)

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
IDS = torch.arange(2).repeat(2)

WRONG_MARGINS = {
    "angular": [-1.6, 3.2, math.nan, math.inf, "1", None, True],
    "subtractive": [-1e-9, math.nan, math.inf, -math.inf],
    "positive_scale": [0.0, -1.0, math.nan, math.inf],
    "curvature": [0.0, -2.0, math.nan, -math.inf],
    "attenuation": [-0.1, 1.1, math.nan, [0.5]],
    "attenuation_type": ["III", 1, None],
    "curve": ["line", None],
    "beyond_pi": ["linear", 0],
    "scaling": ["focal", 2.0],
}


@pytest.mark.parametrize("field", WRONG_MARGINS)
def test_wrong_margins(field):
    for value in WRONG_MARGINS[field]:
        with pytest.raises(ValueError, match=f"^{field} must be ") as caught:
            Margins(**{field: value})
        assert repr(value) in str(caught.value)


def test_every_field_of_margins_is_checked():
    assert set(WRONG_MARGINS) == {field.name for field in dataclasses.fields(Margins)}


def test_margins_are_immutable_comparable_and_take_integers():
    assert Margins(angular=1, positive_scale=20) == Margins(angular=1.0, positive_scale=20.0)
    assert isinstance(Margins(angular=1).angular, float)
    assert len({Margins(), Margins(angular=0.0)}) == 1
    assert Margins(angular=math.pi).angular == math.pi
    assert Margins(angular=-math.pi / 2).angular == -math.pi / 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Margins().angular = 0.1


def test_is_off_says_whether_anything_changes():
    assert Margins().is_off
    assert Margins(attenuation_type="II", curve="root", beyond_pi="monotone").is_off
    for setting in (
        {"angular": 0.1},
        {"subtractive": 0.1},
        {"positive_scale": 2.0},
        {"curvature": 5.0},
        {"attenuation": 0.1},
        {"scaling": torch.mul},
        {"angular": torch.zeros(3)},
    ):
        assert not Margins(**setting).is_off


ROWS = torch.tensor([0.1, 0.2, 0.3, 0.4])
WRONG_TENSORS = {
    "angular": [ROWS + 3.0, ROWS - 2.0, ROWS * math.nan],
    "subtractive": [ROWS - 0.2],
    "positive_scale": [ROWS - 0.1, ROWS / 0.0],
    "curvature": [ROWS],
    "attenuation": [ROWS],
}


@pytest.mark.parametrize("field", WRONG_TENSORS)
def test_wrong_tensors_of_margins(field):
    of_wrong_kind = [ROWS.unsqueeze(1), ROWS[0], ROWS.long(), ROWS.clone().requires_grad_()]
    for value in (*WRONG_TENSORS[field], *of_wrong_kind):
        with pytest.raises(ValueError, match=rf"^{field} must be a number"):
            Margins(**{field: value})


def test_tensors_of_margins_are_compared_by_their_numbers():
    first, same = (Margins(angular=ROWS.clone(), scaling=torch.mul) for _ in range(2))
    assert first == same
    assert len({first, same, Margins(angular=ROWS)}) == 2
    for other in (ROWS + 0.1, ROWS[:3], ROWS.double(), 0.1):
        assert first != Margins(angular=other, scaling=torch.mul)
    # In float32, bounds are rounded too.
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        Margins(angular=torch.tensor([-math.pi / 2, math.pi], dtype=dtype))


LOSSES = {
    "mocov3": lambda **s: mocov3_margin_loss_func(X, X, **s),
    "generalized": lambda **s: generalized_info_nce_loss_func(X, X, **s),
    "simclr": lambda **s: simclr_margin_loss_func(X, IDS, **s),
    "debiased": lambda **s: simclr_debiased_loss_func(X, IDS, **s),
    "hard": lambda **s: simclr_hard_negative_loss_func(X, IDS, **s),
    "module": lambda **s: MarginNTXentLoss(**s)(X, X),
    "mocov2plus": lambda **s: mocov2plus_margin_loss_func(X, X, X.t(), **s),
    "nnclr": lambda **s: nnclr_margin_loss_func(X, X, **s),
    "deepclusterv2": lambda **s: deepclusterv2_margin_loss_func(X, X, IDS, **s),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_wrong_temperature(loss):
    for value in (0, 0.0, -0.1, math.nan, math.inf, "0.1", None):
        with pytest.raises(ValueError, match=r"^temperature must be a number > 0, got "):
            LOSSES[loss](temperature=value)
    for tensor in (
        torch.tensor(0.0),
        torch.tensor(math.nan),
        torch.tensor([0.1]),
        torch.tensor(1),
        torch.tensor(0.1, requires_grad=True),
    ):
        with pytest.raises(ValueError, match=r"^temperature must be a number > 0"):
            LOSSES[loss](temperature=tensor)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("field", ["angular", "subtractive", "positive_scale"])
def test_tensors_of_margins_need_a_number_for_each_row(loss, field):
    for rows in (3, 5, 9):
        with pytest.raises(ValueError, match=rf"^margins\.{field} must hold one number for each"):
            LOSSES[loss](margins=Margins(**{field: torch.full((rows,), 0.1)}))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "scaling",
    [
        lambda angle, q: 1.0,
        lambda angle, q: angle.new_ones(7, 1),
        lambda angle, q: angle.new_ones(1, 1, 1),
        lambda angle, q: angle / 0.0,
    ],
    ids=["no tensor", "wrong rows", "too many axes", "infinite"],
)
def test_wrong_results_of_scaling(loss, scaling):
    with pytest.raises(ValueError, match=r"^scaling must return "):
        LOSSES[loss](margins=Margins(scaling=scaling))


@pytest.mark.parametrize("loss", LOSSES)
def test_wrong_kind_of_margins(loss):
    with pytest.raises(ValueError, match=r"^margins must be a Margins object, got 0\.5"):
        LOSSES[loss](margins=0.5)


WRONG_WEIGHTS = {
    "tau_plus": (-0.1, 1.0, 2.0, math.nan),
    "beta": (-0.1, math.nan, math.inf),
    "mean": (-1.1, 1.1, math.nan, "0"),
    "width": (0.0, -1.0, math.nan, math.inf, None),
}


@pytest.mark.parametrize("loss", ["mocov3", "mocov2plus", "nnclr", "simclr"])
@pytest.mark.parametrize("name", WRONG_WEIGHTS)
def test_wrong_weights_of_negatives(loss, name):
    for value in WRONG_WEIGHTS[name]:
        with pytest.raises(ValueError, match=rf"^{name} must be a number "):
            LOSSES[loss](**{name: value})
    with pytest.raises(ValueError, match=r"^beta must be 0 where mean is set"):
        LOSSES[loss](mean=0.5, beta=1.0)


def test_wrong_weight_of_the_denominator():
    for value in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^negatives_weight must be a number >= 0, got "):
            LOSSES["generalized"](negatives_weight=value)


@pytest.mark.parametrize(
    ("lower", "upper"), [(0.0, 0.5), (0.5, 1.0), (0.6, 0.4), (0.5, 0.5), (math.nan, 0.5), (-1, 2)]
)
@pytest.mark.parametrize(
    "loss", [distance_polarization_loss_func, distance_polarization_with_count]
)
def test_wrong_band(loss, lower, upper):
    with pytest.raises(
        ValueError, match=r"^(lower|upper) must be a number with 0 < lower < upper < 1, got "
    ):
        loss(X, lower, upper)


@pytest.mark.parametrize("loss", [byol_curv_loss_func, simsiam_curv_loss_func])
def test_attenuation_needs_negatives(loss):
    with pytest.raises(ValueError, match=r"^margins\.attenuation must be 0 .*, got 0\.5"):
        loss(X, X, Margins(attenuation=0.5))
    with pytest.raises(ValueError, match=r"^margins must be a Margins object, got 0\.5"):
        loss(X, X, 0.5)


# Tensors of wrong shapes, dtypes and devices. The message begins with the argument's name.

PAIRS = {
    "mocov3": mocov3_margin_loss_func,
    "generalized": generalized_info_nce_loss_func,
    "mocov2plus": lambda query, key: mocov2plus_margin_loss_func(query, key, X.t()),
    "nnclr": nnclr_margin_loss_func,
    "byol": byol_curv_loss_func,
    "simsiam": simsiam_curv_loss_func,
    "module": MarginNTXentLoss(),
}
NAMES = {"nnclr": ("nn", "p"), "byol": ("p", "z"), "simsiam": ("p", "z"), "module": ("z0", "z1")}


@pytest.mark.parametrize("loss", PAIRS)
def test_wrong_pairs(loss):
    first, second = NAMES.get(loss, ("query", "key"))
    for wrong in (X[0], X.unsqueeze(0), X[:0], X[:, :0], X.long(), [1.0]):
        with pytest.raises(ValueError, match=f"^{first} must be a tensor"):
            PAIRS[loss](wrong, X)
        with pytest.raises(ValueError, match=f"^{second} must be a tensor"):
            PAIRS[loss](X, wrong)
    for other in (X[:3], X.to("meta")):
        with pytest.raises(ValueError, match=f"^{first} and {second} must have the same shape"):
            PAIRS[loss](X, other)


OF_ONE_TENSOR = {
    "indexes": lambda ids: simclr_margin_loss_func(X, ids),
    "indexes of debiased": lambda ids: simclr_debiased_loss_func(X, ids),
    "indexes of hard": lambda ids: simclr_hard_negative_loss_func(X, ids),
    "indexes of a temperature": lambda ids: aligned_temperature_by_indexes(X, ids, 0.1),
    "z": lambda z: simclr_margin_loss_func(z, 2),
    "z of prototypes": lambda z: deepclusterv2_margin_loss_func(z, X, IDS),
    "queue": lambda queue: mocov2plus_margin_loss_func(X, X, queue),
    "prototypes": lambda centres: deepclusterv2_margin_loss_func(X, centres, IDS),
    "assignments": lambda ids: deepclusterv2_margin_loss_func(X, X[:2], ids),
}
NOT_MATRICES = (X[0], X.unsqueeze(0), X[:0], X[:, :0], X.long(), [1.0], None)
NOT_IDS = (IDS[:3], IDS.unsqueeze(0), torch.zeros(4), [0, 1, 0, 1], IDS.to("meta"), None)
WRONG_TENSORS_OF = {
    "indexes": (*NOT_IDS, 0, 1, 3, -2, True),
    "z": NOT_MATRICES,
    "queue": (*NOT_MATRICES, X, X.t().to("meta")),
    "prototypes": (*NOT_MATRICES, X[:, :2], X.to("meta")),
    "assignments": (*NOT_IDS, IDS - 2, IDS + 1),
}


@pytest.mark.parametrize("argument", OF_ONE_TENSOR)
def test_wrong_tensors(argument):
    name = argument.partition(" ")[0]
    for wrong in WRONG_TENSORS_OF[name]:
        with pytest.raises(ValueError, match=f"^{name} must "):
            OF_ONE_TENSOR[argument](wrong)


def test_losses_need_torch_alone():
    """Importing them must not import the host, Lightning or Hydra."""
    code = (
        "import sys, solo_margins.losses; "
        "found = {'solo', 'lightning', 'pytorch_lightning', 'hydra', 'omegaconf', 'timm'}"
        " & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
