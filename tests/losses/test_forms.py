"""The engine against the plain form, compiled code, and derivatives of derivatives."""

import functools
import shutil
import threading
from dataclasses import replace

import pytest
import torch
from loss_calls import (
    FORMS,
    OWN_MARGINS,
    PLAIN,
    PUBLIC,
    SOME_MARGINS,
    TILED,
    TOLERANCE,
    WITHOUT_NEGATIVES,
    Settings,
    assert_same,
    every_effect,
    margins_by_row,
    takes,
    value_and_gradients,
    vectors,
)
from naive_losses import NAIVE

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature,
    distance_polarization_with_count,
    engine,
    mocov3_margin_loss_func,
    plain,
)
from solo_margins.losses.capture import CapturedContrast, capture
from solo_margins.losses.margins import ContrastSpec

TEMPERATURES = (0.02, 0.1, 0.5, torch.tensor(0.13), torch.tensor(0.03, dtype=torch.float64))
TILES = (None, 1, 3, 100)
ASSIGNMENTS = (
    torch.tensor([2, 0, 0, 4, 1, 2, 3, 8, 8]),
    torch.tensor([2, -1, 0, -1, 1, 2, -1, 5, 5]),
    torch.tensor([-1, -1, 4, -1, -1, -1, -1, -1, -1]),
)
EVERYTHING = Margins(0.3, 0.2, 5.0, 1.5, 0.5)
# The other losses are one of these with other arguments.
DISTINCT = (
    "mocov3",
    "hard",
    "mocov2plus gaussian",
    "deepclusterv2",
    "module",
    "byol",
    "polarization",
)


def settings_of(number, margins):
    """Return other settings for every number, so that a sweep over margins meets all of them."""
    return Settings(
        temperature=TEMPERATURES[number % 5],
        margins=margins,
        tile_size=TILES[number % 4],
        negatives_weight=(0.0, 0.3, 1.0, 1.5)[number % 4],
        tau_plus=(0.0, 0.1, 0.6)[number % 3],
        beta=(0.0, 0.5, 1.0, 1e-30)[number % 4],
        band=((0.1, 0.9), (0.3, 0.5))[number % 2],
        assignments=ASSIGNMENTS[number % 3],
        others=vectors((11, 9)[number % 2], 2),
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", PUBLIC)
def test_the_engine_is_the_plain_form(name, dtype):
    batches = vectors(9, 0), vectors(9, 1)
    of_all = [*SOME_MARGINS, *OWN_MARGINS, *margins_by_row(name, 9)]
    for number, margins in enumerate(of_all):
        if not takes(name, margins):
            continue
        s = settings_of(number, margins)
        expected = value_and_gradients(lambda a, b, s=s: PLAIN[name](a, b, s), *batches)
        s = replace(s, others=s.others.to(dtype))
        forms = FORMS.values() if dtype == torch.float32 else [PUBLIC, TILED]
        for form in forms:
            received = value_and_gradients(
                lambda a, b, s=s, form=form: form[name](a, b, s), *(x.to(dtype) for x in batches)
            )
            assert received[0].dtype == dtype
            # Debiased negatives are a difference: where it is a tenth of its terms, rounding is
            # ten times as large.
            corrected = ("debiased", "hard", "nnclr gaussian")
            is_difference = name.endswith(corrected) and dtype == torch.float32
            assert_same(received, expected, 3e-5 if is_difference else None, message=s)


STRUCTURES = {
    "three views": torch.arange(5).repeat(3),
    "interleaved": torch.arange(8).repeat_interleave(2),
    "one sample twice among two views": torch.tensor([0, 1, 1, 0, 1, 1]),
    "classes of all sizes": torch.tensor([3, 3, 7, 3, 9, 9, 7, -2, 5, 9, 9, 3]),
    "one class and a stranger": torch.tensor([1, 1, 1, 1, 0]),
    "strangers": torch.arange(5),
}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("tile_size", TILES)
def test_any_structure_of_positives(structure, tile_size):
    ids = STRUCTURES[structure]
    z = vectors(len(ids), 4)
    for number, margins in enumerate([*SOME_MARGINS[::4], *margins_by_row("classes", len(ids))]):
        tau = TEMPERATURES[number % 5]
        expected = value_and_gradients(
            lambda x, m=margins, t=tau: plain.same_id(x, ids, ContrastSpec(t, m)), z
        )
        received = value_and_gradients(
            lambda x, m=margins, t=tau: engine.same_id(x, ids, ContrastSpec(t, m), tile_size), z
        )
        assert_same(received, expected, message=margins)


@pytest.mark.parametrize("temperature", [0.002, 0.1])
def test_automatic_tiles_of_large_batches(temperature):
    """Large enough for the automatic choice to cut the matrix into tiles."""
    batches = vectors(560, 7, width=8), vectors(560, 8, width=8)
    s = Settings(temperature, Margins(0.2, 0.1, 3.0, 1.5, 0.5))
    for name in ("simclr",) if temperature < 0.1 else ("simclr", "hard", "polarization"):
        assert_same(
            value_and_gradients(lambda a, b, name=name: PUBLIC[name](a, b, s), *batches),
            value_and_gradients(lambda a, b, name=name: PLAIN[name](a, b, s), *batches),
            message=name,
        )
    query, key, queue = vectors(70, 23), vectors(70, 24), vectors(20_000, 25)
    s = replace(s, others=queue)
    assert_same(
        value_and_gradients(lambda a: PUBLIC["mocov2plus"](a, key, s), query),
        value_and_gradients(lambda a: PLAIN["mocov2plus"](a, key, s), query),
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mocov2plus", "deepclusterv2", "byol", "simsiam"])
def test_targets_get_no_gradient(form, name):
    a, b = vectors(4, 26).requires_grad_(), vectors(4, 27).requires_grad_()
    others = vectors(5, 28).requires_grad_()
    FORMS[form][name](a, b, Settings(others=others)).backward()
    assert b.grad is None
    assert others.grad is None
    assert a.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [torch.int8, torch.int32, torch.int64], ids=str)
def test_integers_of_any_dtype(kind):
    a, b = vectors(9, 29), vectors(9, 30)
    for name in ("deepclusterv2", "classes"):
        wide, narrow = (
            [form[name](a, b, Settings(assignments=ids)) for form in FORMS.values()]
            for ids in (ASSIGNMENTS[1], ASSIGNMENTS[1].to(kind))
        )
        assert torch.equal(torch.stack(wide), torch.stack(narrow)), name


@pytest.mark.parametrize("band", [(0.1, 0.9), (0.3, 0.5), (0.98, 0.99)])
@pytest.mark.parametrize("rows", [1, 2, 11])
def test_count_of_pairs_inside_the_band(band, rows):
    z = vectors(rows, 17)
    unit = torch.nn.functional.normalize(z, dim=1)
    pairs = [(i, j) for i in range(rows) for j in range(rows) if i != j]
    expected = sum(band[0] < (1 - unit[i] @ unit[j]) / 2 < band[1] for i, j in pairs)
    assert plain.polarization(z, *band)[1] == expected
    for tile_size in TILES:
        x = z.clone().requires_grad_()
        loss, count = engine.polarization(x, *band, tile_size)
        assert count.item() == expected
        assert not count.requires_grad
        loss.backward()
        with torch.no_grad():
            assert engine.polarization(x, *band, tile_size)[1] == expected
    assert distance_polarization_with_count(z, *band)[1] == expected


# The vectors that a loss compares can be captured.


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - {"polarization"}))
def test_captured_vectors_are_those_of_the_loss(name):
    a, b = vectors(9, 0).requires_grad_(), vectors(9, 1)
    s = settings_of(1, Margins() if name in WITHOUT_NEGATIVES else EVERYTHING)
    with capture() as captured:
        PUBLIC[name](a, b, s)
    PUBLIC[name](a, b, s)  # after the block
    [one] = captured
    assert not one.rows.requires_grad
    if isinstance(one, CapturedContrast):
        columns, is_positive, is_negative = one.positives.as_masks(one.columns)
        total = plain.total_loss(one.rows, columns, is_positive, is_negative, one.spec)
        mean = total / is_positive.any(dim=1).sum()
    else:
        mean = plain.pair_losses(one.rows, one.targets, one.margins).mean()
    expected = PLAIN[name](a, b, s)
    if name.startswith("mocov3"):
        expected = expected / (2 * s.temperature)
    if name == "byol":
        expected = expected / 2 - 1
    torch.testing.assert_close(mean, expected.detach(), rtol=1e-9, atol=1e-9)


def test_every_open_block_captures_until_it_ends():
    a, b = vectors(4, 0), vectors(4, 1)
    with capture() as outer:
        with pytest.raises(ValueError), capture() as inner:
            mocov3_margin_loss_func(a, b[:3])
        with capture() as inner:
            mocov3_margin_loss_func(a, b)
        mocov3_margin_loss_func(a, b)
    mocov3_margin_loss_func(a, b)
    assert (len(outer), len(inner)) == (2, 1)


def test_a_block_captures_its_own_thread():
    a, b = vectors(4, 0), vectors(4, 1)
    with capture() as captured:
        thread = threading.Thread(target=mocov3_margin_loss_func, args=(a, b))
        thread.start()
        thread.join()
    assert captured == []


# Inside torch.compile the plain form runs, without a graph break.


def all_losses(names, s):
    of_each = {name: replace(s, margins=every_effect(name, 9)) for name in names}
    return lambda a, b: tuple(PUBLIC[name](a, b, of_each[name]) for name in names)


def assert_compiled_is_the_same(names, s, *batches, backend):
    torch._dynamo.reset()
    eager = all_losses(names, s)
    compiled = torch.compile(eager, fullgraph=True, backend=backend)
    results = []
    for function in (compiled, eager):
        inputs = [x.clone().requires_grad_() for x in batches]
        # In one graph for all losses, what one of them does not use may get zeros.
        gradients = functools.partial(
            torch.autograd.grad, inputs=inputs, retain_graph=True, materialize_grads=True
        )
        results.append([[value.detach(), *gradients(value)] for value in function(*inputs)])
    for name, received, expected in zip(names, *results, strict=True):
        assert_same(received, expected, 1e-5, name)


@pytest.mark.parametrize(("names", "backend"), [(DISTINCT, "eager"), (("mocov3",), "aot_eager")])
def test_compiled_losses_have_no_graph_break(names, backend):
    batches = vectors(9, 0).float(), vectors(9, 1).float()
    s = replace(settings_of(1, EVERYTHING), others=vectors(11, 2).float())
    assert_compiled_is_the_same(names, s, *batches, backend=backend)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend needs a C++ compiler")
def test_losses_compiled_by_the_default_backend():
    batches = vectors(9, 0).float(), vectors(9, 1).float()
    s = Settings(margins=EVERYTHING)
    assert_compiled_is_the_same(["mocov3", "hard"], s, *batches, backend="inductor")


def test_compiled_code_follows_settings_and_sizes():
    """Nothing is fixed at its first value: temperature, margins, batch size, memory bank."""
    torch._dynamo.reset()
    compiled = torch.compile(mocov3_margin_loss_func, fullgraph=True, backend="eager")
    for rows, temperature, scale in (
        (9, 0.2, 1.0),
        (9, 0.3, 2.0),
        (11, 0.25, 3.0),
        (9, torch.tensor(0.4), 1.0),
        (9, torch.tensor(0.1), 1.0),
    ):
        query, key = vectors(rows, 0), vectors(rows, 1)
        arguments = (query, key, temperature, Margins(0.3, 0.2, scale, 0.7, 0.9))
        torch.testing.assert_close(compiled(*arguments), mocov3_margin_loss_func(*arguments))

    def aligned(query, key):
        temperature = aligned_temperature(query, key, 0.2, 0.8)
        return mocov3_margin_loss_func(query, key, temperature)

    compiled = torch.compile(aligned, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(query, key), aligned(query, key))
    compiled = torch.compile(mocov3_margin_loss_func, fullgraph=True, backend="eager")
    wide = torch.tensor(0.3, dtype=torch.float64)
    assert compiled(query.float(), key.float(), wide).dtype == torch.float32
    banks = [MarginNTXentLoss(0.5, (8, 6), margins=EVERYTHING) for _ in range(2)]
    banks[1].load_state_dict(banks[0].state_dict())
    compiled = torch.compile(banks[0], fullgraph=True, backend="eager")
    for seed in range(2):
        query, key = vectors(5, seed).requires_grad_(), vectors(5, seed + 9)
        torch.testing.assert_close(compiled(query, key), banks[1](query, key))
        torch.testing.assert_close(banks[0].state_dict(), banks[1].state_dict())


def test_a_state_of_the_memory_bank_stays_as_it_was():
    criterion = MarginNTXentLoss(0.5, (8, 6))
    state = criterion.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    criterion(vectors(5, 0).requires_grad_(), vectors(5, 1)).backward()
    torch.testing.assert_close(dict(state), before, rtol=0, atol=0)
    assert not torch.equal(criterion.bank, state["bank"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_compiled_losses_stay_in_full_precision(dtype):
    torch._dynamo.reset()
    first, second = vectors(9, 0).to(dtype), vectors(9, 1).to(dtype)

    def loss(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return mocov3_margin_loss_func(x, second, 0.2, EVERYTHING)

    received = value_and_gradients(torch.compile(loss, fullgraph=True, backend="eager"), first)
    assert received[0].dtype == torch.float32
    assert received[1].dtype == dtype
    exact = value_and_gradients(
        lambda x: mocov3_margin_loss_func(x, second.double(), 0.2, EVERYTHING), first.double()
    )
    assert_same(received[:1], exact[:1], 1e-5)
    assert_same(received[1:], exact[1:], torch.finfo(dtype).eps)


# Under create_graph=True the backward pass is the plain form's.


def second_derivatives(loss, *inputs):
    """Return the gradients, and the gradients of their product with fixed directions."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(loss(*inputs), inputs, create_graph=True, **options)
    product = sum((x * vectors(*x.shape[:1], 7 + i)).sum() for i, x in enumerate(first))
    return [*(x.detach() for x in first), *torch.autograd.grad(product, inputs, **options)]


@pytest.mark.parametrize("name", PUBLIC)
def test_second_derivatives_are_those_of_the_papers_form(name):
    """Scalings define their own: those of the angles in Eq. 17, with the weights held fixed."""
    a, b = vectors(9, 0), vectors(9, 1)
    s = Settings(others=vectors(11, 2), assignments=torch.tensor([2, 0, 0, 4, 1, 2, 3, 8, 8]))
    for number, margins in enumerate((*SOME_MARGINS[::6], *OWN_MARGINS, every_effect(name, 9))):
        if not takes(name, margins):
            continue
        s = replace(s, margins=margins, temperature=(0.2, 0.02)[number % 2])
        ours, papers = (
            second_derivatives(lambda x, y, s=s, form=form: form[name](x, y, s), a, b)
            for form in (PUBLIC, NAIVE)
        )
        assert_same(ours, papers, 1e-7, message=margins)
