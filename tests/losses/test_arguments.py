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
    "angular": ([-1.6, 3.2, math.nan, math.inf, "1", None, True], "a number in [-π/2, π]"),
    "subtractive": ([-1e-9, math.nan, math.inf, -math.inf], "a number >= 0"),
    "positive_scale": ([0.0, -1.0, math.nan, math.inf], "a number > 0"),
    "curvature": ([0.0, -2.0, math.nan, -math.inf], "a number > 0 or infinite"),
    "attenuation": ([-0.1, 1.1, math.nan, [0.5]], "a number in [0, 1]"),
    "attenuation_type": (["III", 1, None], "one of I, II"),
    "curve": (["line", None], "one of power, root, superellipse"),
    "beyond_pi": (["linear", 0], "one of cosine, monotone"),
    "scaling": (["focal", 2.0], "None or a function of angles and probabilities"),
}


@pytest.mark.parametrize("field", WRONG_MARGINS)
def test_wrong_margins(field):
    values, allowed = WRONG_MARGINS[field]
    for value in values:
        with pytest.raises(ValueError) as caught:
            Margins(**{field: value})
        assert str(caught.value) == f"{field} must be {allowed}, got {value!r}"


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


@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0, math.nan])
@pytest.mark.parametrize("loss", ["debiased", "hard"])
def test_wrong_tau_plus(loss, value):
    with pytest.raises(ValueError, match=r"^tau_plus must be a number in \[0, 1\), got "):
        LOSSES[loss](tau_plus=value)


def test_wrong_weights_of_negatives():
    for value in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"^beta must be a number >= 0, got "):
            LOSSES["hard"](beta=value)
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


TWO_INPUTS = {
    ("query", "key"): mocov3_margin_loss_func,
    ("query", "key "): generalized_info_nce_loss_func,
    ("query ", "key"): lambda query, key: mocov2plus_margin_loss_func(query, key, X.t()),
    ("nn", "p"): nnclr_margin_loss_func,
    ("p", "z"): byol_curv_loss_func,
    ("p", "z "): simsiam_curv_loss_func,
    ("z0", "z1"): MarginNTXentLoss(),
}


@pytest.mark.parametrize("names", TWO_INPUTS)
def test_wrong_shapes_of_two_inputs(names):
    loss = TWO_INPUTS[names]
    first, second = (name.strip() for name in names)
    with pytest.raises(ValueError) as caught:
        loss(X, X[:3])
    assert str(caught.value) == (
        f"{first} and {second} must have the same shape on the same device, "
        "got torch.float32 of shape (4, 3) on cpu and torch.float32 of shape (3, 3) on cpu"
    )
    for wrong in (X[0], X.unsqueeze(0), X[:0], X[:, :0]):
        with pytest.raises(
            ValueError, match=rf"^{first} must be a tensor of shape \(N, D\), not empty"
        ):
            loss(wrong, wrong)
    with pytest.raises(ValueError, match=f"^{second} must be a tensor"):
        loss(X, [1.0])
    with pytest.raises(ValueError, match=rf"^{first} must be .* float16, got torch\.int64"):
        loss(X.long(), X)
    with pytest.raises(ValueError, match=r"on the same device, got .* on cpu and .* on meta"):
        loss(X, X.to("meta"))


@pytest.mark.parametrize(
    "loss", [simclr_margin_loss_func, simclr_debiased_loss_func, simclr_hard_negative_loss_func]
)
def test_wrong_shapes_of_views(loss):
    with pytest.raises(ValueError) as caught:
        loss(X, torch.arange(3))
    assert str(caught.value) == (
        "indexes must be an integer tensor on cpu that holds one id for each of the 4 rows of z, "
        "got torch.int64 of shape (3,) on cpu"
    )
    with pytest.raises(
        ValueError, match=r"^indexes must be an integer tensor .* got torch.float32"
    ):
        loss(X, torch.zeros(4))
    with pytest.raises(ValueError, match=r"^indexes must be .*, got list$"):
        loss(X, [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r" on cpu.*, got .* on meta$"):
        loss(X, IDS.to("meta"))
    with pytest.raises(ValueError, match=r"^z must be a tensor of shape \(N, D\), .* \(12,\)"):
        loss(X.flatten(), torch.arange(12))


def test_wrong_queue():
    with pytest.raises(ValueError) as caught:
        mocov2plus_margin_loss_func(X, X, X)
    assert str(caught.value) == (
        "queue must have shape (D, K) with D = 3 on cpu, as query has, "
        "got torch.float32 of shape (4, 3) on cpu"
    )
    for wrong in (X[0], X.t()[:, :0]):
        with pytest.raises(ValueError, match=r"^queue must be a tensor of shape \(D, K\), not em"):
            mocov2plus_margin_loss_func(X, X, wrong)
    with pytest.raises(ValueError, match=r"^queue must be a tensor of shape \(D, K\).*, got list"):
        mocov2plus_margin_loss_func(X, X, [1.0])
    with pytest.raises(ValueError, match=r"^queue must be .* float16, got torch\.int64"):
        mocov2plus_margin_loss_func(X, X, X.t().long())
    with pytest.raises(ValueError, match=r" on cpu.*, got .* on meta$"):
        mocov2plus_margin_loss_func(X, X, X.t().to("meta"))


def test_wrong_prototypes():
    with pytest.raises(ValueError) as caught:
        deepclusterv2_margin_loss_func(X, X[:, :2], IDS)
    assert str(caught.value) == (
        "prototypes must have shape (P, D) with D = 3 on cpu, as z has, "
        "got torch.float32 of shape (4, 2) on cpu"
    )
    with pytest.raises(ValueError, match=r"^z must be a tensor of shape \(M, D\), .* \(3,\)"):
        deepclusterv2_margin_loss_func(X[0], X, IDS)
    with pytest.raises(ValueError, match=r"^prototypes must be .* \(P, D\), .* \(0, 3\)"):
        deepclusterv2_margin_loss_func(X, X[:0], IDS)
    with pytest.raises(ValueError, match=r"^prototypes must be a tensor .*, got NoneType"):
        deepclusterv2_margin_loss_func(X, None, IDS)
    with pytest.raises(ValueError, match=r" on cpu.*, got .* on meta$"):
        deepclusterv2_margin_loss_func(X, X.to("meta"), IDS)


def test_wrong_assignments():
    for wrong in (-2, 2):
        with pytest.raises(ValueError) as caught:
            deepclusterv2_margin_loss_func(X, X[:2], torch.tensor([0, 1, -1, wrong]))
        assert str(caught.value) == (
            f"assignments must be integers in [0, 1], or -1 for a row to leave out, got {wrong}"
        )
    with pytest.raises(ValueError) as caught:
        deepclusterv2_margin_loss_func(X, X, IDS[:3])
    assert str(caught.value) == (
        "assignments must be an integer tensor on cpu that holds one prototype for each of the "
        "4 rows of z, got torch.int64 of shape (3,) on cpu"
    )
    with pytest.raises(ValueError, match=r"^assignments must be an integer .* got torch.fl"):
        deepclusterv2_margin_loss_func(X, X, torch.zeros(4))
    with pytest.raises(ValueError, match=r"^assignments must be .*, got list$"):
        deepclusterv2_margin_loss_func(X, X, [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r" on cpu.*, got .* on meta$"):
        deepclusterv2_margin_loss_func(X, X, IDS.to("meta"))


def test_losses_need_torch_alone():
    """Importing them must not import the host, Lightning or Hydra."""
    code = (
        "import sys, solo_margins.losses; "
        "found = {'solo', 'lightning', 'pytorch_lightning', 'hydra', 'omegaconf', 'timm'}"
        " & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("views", [0, 1, 3, -2, True])
def test_a_number_of_views_that_rows_cannot_have(views):
    for loss in (simclr_margin_loss_func, simclr_debiased_loss_func):
        with pytest.raises(ValueError, match=r"^indexes must be "):
            loss(torch.eye(4), views)
    with pytest.raises(ValueError, match=r"^indexes must be "):
        aligned_temperature_by_indexes(torch.eye(4), views, 0.1)
