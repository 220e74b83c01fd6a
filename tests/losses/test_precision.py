"""All dtypes, with and without autocast: angle sweeps, result dtypes, agreement with float64."""

import math

import pytest
import torch
from loss_calls import PUBLIC, Settings, focal
from margin_names import named
from older_torch import needs_float16_on_cpus
from torch.utils._python_dispatch import TorchDispatchMode

from solo_margins.losses import (
    Margins,
    byol_curv_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HALF = [torch.bfloat16, torch.float16]
MARGINS = [
    Margins(),
    Margins(angular=0.5),
    Margins(angular=0.5, beyond_pi="monotone"),
    Margins(0.3, 0.2, 20.0, 0.7, 0.9),
    Margins(angular=3.0, curvature=2.5, curve="root"),
    Margins(positive_scale=5.0, curvature=0.7, curve="superellipse"),
    Margins(-0.5, scaling=focal),
    Margins(-0.5, beyond_pi="monotone"),
]


def exact_loss_and_slope(angle, margins):
    """Return BYOL's loss of one pair at that angle and its scaled derivative by the angle."""
    shifted = angle + margins.angular
    similarity, slope = math.cos(shifted), math.sin(shifted)
    if margins.beyond_pi == "monotone" and shifted > math.pi:
        similarity, slope = -2 - similarity, -slope
    if margins.beyond_pi == "monotone" and shifted < 0:
        similarity, slope = 1.0, 0.0
    weight = margins.positive_scale
    if margins.scaling is not None:
        weight *= focal(angle, 0.0)
    if not math.isinf(margins.curvature):
        share = angle / math.pi
        base = 1 - (share if margins.curve == "root" else share**margins.curvature)
        weight *= base if margins.curve == "power" else base ** (1 / margins.curvature)
    return 2 - 2 * (similarity - margins.subtractive), 2 * slope * weight


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("margins", MARGINS, ids=named)
def test_angle_sweep(dtype, margins):
    """From 0 to π the gradient is the derivative by the angle of the pair that the dtype holds.

    Half precision moves the vectors themselves; the angle between the moved ones is measured in
    float64 and the loss must be exact for it.
    """
    margins = Margins(**{**vars(margins), "attenuation": 0.0})
    tolerance = 1e-9 if dtype == torch.float64 else 2e-5
    for degree in [0, 0.01, 0.1, 1, 5, 30, 60, 89, 90, 91, 120, 151.5, 175, 179, 179.9, 180]:
        angle = math.radians(degree)
        first = torch.tensor([[1.0, 0.0]], dtype=torch.float64).to(dtype)
        second = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64).to(dtype)
        held = second.double()[0]
        angle = math.atan2(held[1], held[0])
        expected, slope = exact_loss_and_slope(angle, margins)
        first.requires_grad_()
        loss = byol_curv_loss_func(first, second, margins)
        loss.backward()
        assert loss.item() == pytest.approx(expected, abs=max(tolerance, 4e-7)), degree
        # At exactly 0 and π there is no direction to turn to.
        wanted = 0.0 if held[1] == 0 else -slope
        received = first.grad[0, 1].item()
        half = 1e-2 if dtype == torch.bfloat16 else 1e-3 if dtype == torch.float16 else 0.0
        limit = max(tolerance, half) * max(1.0, abs(slope))
        if 0 < held[1].abs() < 1e-6:
            limit = 1.0 * max(1.0, abs(slope))  # π in float32 is off by more than this angle
        assert received == pytest.approx(wanted, abs=limit), degree


NAMES = (
    "mocov3",
    "simclr",
    "generalized",
    "hard",
    "polarization",
    "nnclr",
    "mocov2plus gaussian",
    "deepclusterv2",
)


def all_losses(first, second, margins):
    found = {}
    for name in NAMES:
        query, key = first, second
        settings = Settings(0.1, margins, tau_plus=0.1, width=0.5)
        if name in ("mocov2plus gaussian", "deepclusterv2"):
            # Targets get no gradient, so both inputs have to be rows.
            with torch.autocast("cpu", enabled=False):
                query = torch.cat([first, second])
            ids = torch.arange(len(first)).repeat(2)
            key = query.flip(0)
            settings = Settings(0.1, margins, width=0.5, assignments=ids, others=second)
        found[name] = PUBLIC[name](query, key, settings)
    found["small temperature"] = PUBLIC["simclr"](first, second, Settings(0.02, margins))
    return found


def pair(dtype):
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 16, 12, generator=generator).to(dtype)
    return first, second


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "autocast",
    [None, torch.bfloat16, pytest.param(torch.float16, marks=needs_float16_on_cpus)],
    ids=named,
)
def test_every_dtype_agrees_with_float64_on_the_same_numbers(dtype, autocast):
    """What a dtype holds is computed in float32 or better, autocast or not."""
    for margins in MARGINS:
        first, second = (x.requires_grad_() for x in pair(dtype))
        exact_first, exact_second = (x.detach().double().requires_grad_() for x in (first, second))
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            received = all_losses(first, second, margins)
        expected = all_losses(exact_first, exact_second, margins)
        for name, value in received.items():
            assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            torch.testing.assert_close(
                value.double(), expected[name], rtol=1e-5, atol=1e-5, msg=name
            )
            found = torch.autograd.grad(value, (first, second), retain_graph=True)
            exact = torch.autograd.grad(expected[name], (exact_first, exact_second))
            for one, other in zip(found, exact, strict=True):
                assert one.dtype == dtype
                # Rounding the result itself to the dtype is all that may be lost.
                limit = 1e-5 + 2 * torch.finfo(dtype).eps * (dtype in HALF)
                scale = max(1.0, other.abs().max().item())
                torch.testing.assert_close(
                    one.double() / scale, other / scale, rtol=0, atol=limit, msg=name
                )


class MadeTensors(TorchDispatchMode):
    """Keeps every tensor of some size that an operation returns."""

    def __init__(self, entries):
        super().__init__()
        self.entries = entries
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() == self.entries:
            self.found.append(result)
        return result


@pytest.mark.parametrize("last", [1.0, 0.0], ids=["ordinary", "a column without direction"])
def test_a_queue_is_copied_once(last):
    """It may be the largest tensor around; normalising it makes the only copy."""
    query, key = pair(torch.float32)
    queue = torch.randn(12, 1000, generator=torch.Generator().manual_seed(1))
    queue[:, -1] *= last
    with MadeTensors(queue.numel()) as made:
        mocov2plus_margin_loss_func(query.requires_grad_(), key, queue).backward()
    storages = {tensor.untyped_storage().data_ptr() for tensor in made.found}
    assert len(storages - {queue.untyped_storage().data_ptr()}) == 1


def test_mixed_dtypes_meet_in_the_wider_one():
    first, second = pair(torch.float64)
    exact = mocov3_margin_loss_func(first, second)
    assert mocov3_margin_loss_func(first, second.float()).dtype == torch.float64
    torch.testing.assert_close(
        mocov3_margin_loss_func(first.float(), second.float()).double(), exact, rtol=1e-5, atol=0
    )
    half = mocov3_margin_loss_func(first.bfloat16(), second.float())
    torch.testing.assert_close(half.double(), exact, rtol=1e-2, atol=0)


@needs_float16_on_cpus
@pytest.mark.parametrize("margins", MARGINS, ids=named)
def test_loss_scaling_of_float16_training(margins):
    """A scaler saves the gradients that float16 alone loses, and its factor goes through."""
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    weights = torch.eye(12).requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=1.0)
    # Small weights of a loss among others bring gradients below what float16 holds.
    small = 1e-7
    for name in all_losses(*pair(torch.float32), margins):
        gradients = {}
        for how in ("exact", "lost", "scaled"):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=how != "exact"):
                first, second = (x.to(weights.dtype) @ weights for x in pair(torch.float32))
                loss = small * all_losses(first, second, margins)[name]
            assert loss.dtype == torch.float32
            if how == "scaled":
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
            gradients[how] = weights.grad.clone()
            with torch.no_grad():
                weights.copy_(torch.eye(12))
        size = gradients["exact"].norm()
        assert (gradients["scaled"] - gradients["exact"]).norm() < 0.02 * size, name
        assert (gradients["lost"] - gradients["exact"]).norm() > 0.05 * size, name
    assert scaler.get_scale() == 65536.0, "a step was skipped"


@needs_float16_on_cpus
@pytest.mark.parametrize("name", all_losses(*pair(torch.float32), Margins()))
def test_a_scaler_skips_steps_until_its_factor_fits(name):
    """Gradients of short vectors are long: float16 cannot hold them times 65536."""
    margins = Margins(positive_scale=5.0)
    start = 0.01 * torch.stack(pair(torch.float32))
    vectors = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([vectors], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    scales = []
    while torch.equal(vectors, start):
        scales.append(scaler.get_scale())
        optimizer.zero_grad()
        loss = 100 * all_losses(*vectors.half(), margins)[name]
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert len(scales) < 20
    assert len(scales) > 1, "no step was skipped"
    assert scales == [2.0 ** (16 - skipped) for skipped in range(len(scales))]
    exact = start.half().float().requires_grad_()
    (gradient,) = torch.autograd.grad(100 * all_losses(*exact, margins)[name], exact)
    # The step is that of a gradient which was never clipped.
    torch.testing.assert_close(start - vectors, gradient, rtol=2e-3, atol=1e-3)
