"""Settings whose gradient is that of another loss in the literature, against lightly's code."""

from dataclasses import replace

import pytest
import torch
from loss_calls import (
    PUBLIC,
    WITHOUT_NEGATIVES,
    Settings,
    assert_same,
    value_and_gradients,
    vectors,
)

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature,
    aligned_temperature_by_indexes,
    generalized_info_nce_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
)

DECOUPLED = Margins(attenuation=1.0)


@pytest.fixture
def lightly():
    return pytest.importorskip("lightly.loss")


def gradients(loss, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(loss(*inputs), inputs)


@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("views", [0.0, 3.0], ids=["strangers", "q near 1"])
def test_full_attenuation_is_decoupled_contrastive_learning(lightly, temperature, views):
    z0, noise = vectors(8, 0), vectors(8, 1)
    z1 = views * z0 + noise
    ours = gradients(MarginNTXentLoss(temperature, DECOUPLED), z0, z1)
    theirs = gradients(lightly.DCLLoss(temperature=temperature), z0, z1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    if temperature < 0.5:  # it is another gradient than that of InfoNCE
        without = gradients(MarginNTXentLoss(temperature), z0, z1)
        assert (ours[0] - without[0]).abs().max() > 1e-3


def test_the_positive_leaves_the_denominator_of_moco_too():
    query, key, queue = vectors(6, 2), vectors(6, 3), vectors(9, 4)
    u, v, k = (torch.nn.functional.normalize(x, dim=1) for x in (query, key, queue))

    def decoupled(negatives, is_positive=None):
        def loss(query):
            u = torch.nn.functional.normalize(query, dim=1)
            logits = u @ negatives.t() / 0.2
            if is_positive is not None:
                logits = logits.masked_fill(is_positive, -torch.inf)
            return (logits.logsumexp(dim=1) - (u * v).sum(dim=1) / 0.2).mean()

        return loss

    by_queue = gradients(
        lambda q: mocov2plus_margin_loss_func(q, key, queue.t(), 0.2, DECOUPLED), u
    )
    torch.testing.assert_close(by_queue, gradients(decoupled(k), u))
    by_batch = gradients(lambda q: mocov3_margin_loss_func(q, key, 0.2, DECOUPLED) / 0.4, u)
    own = torch.eye(len(query), dtype=torch.bool)
    torch.testing.assert_close(by_batch, gradients(decoupled(v, own), u))


@pytest.mark.parametrize(("factor", "reference"), [(0.5, 0.0), (1.0, 0.4), (0.0, 0.9)])
def test_with_an_aligned_temperature_it_is_model_aware_contrastive_learning(
    lightly, factor, reference
):
    z0, noise = vectors(8, 5), vectors(8, 6)
    z1 = z0 + noise
    temperature = aligned_temperature(z0, z1, 0.1, factor, reference)
    theirs = lightly.MACLLoss(temperature=0.1, alpha=factor, A_0=reference)
    ours = gradients(MarginNTXentLoss(temperature, DECOUPLED), z0, z1)
    # Theirs adds 1e-8 to 1 - q.
    torch.testing.assert_close(ours, gradients(theirs, z0, z1), rtol=1e-6, atol=1e-6)
    assert (temperature == 0.1) == (factor == 0.0)


ASSIGNMENTS = torch.tensor([2, -1, 0, -1, 1, 2, -1, 5, 5])


def test_the_temperature_follows_the_mean_cosine_of_positives():
    query, key = vectors(9, 7), vectors(9, 7) + vectors(9, 8)
    cosine = torch.cosine_similarity(query, key)
    temperature = aligned_temperature(query.requires_grad_(), key, 0.1, 0.7, 0.2)
    assert temperature.item() == pytest.approx(0.1 * (1 + 0.7 * (cosine.mean().item() - 0.2)))
    assert not temperature.requires_grad
    is_positive = torch.arange(9) % 3 > 0
    some = aligned_temperature(query, key, 0.1, 0.7, 0.2, is_positive)
    mean = cosine[is_positive].mean().item()
    assert some.item() == pytest.approx(0.1 * (1 + 0.7 * (mean - 0.2)))
    none = aligned_temperature(query, key, 0.1, 0.7, 0.2, torch.zeros(9, dtype=torch.bool))
    assert none.item() == pytest.approx(0.1 * (1 - 0.7 * 0.2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_positives_by_indexes_are_those_of_simclr(dtype):
    z, ids = vectors(9, 7).to(dtype), ASSIGNMENTS
    numbers = torch.arange(len(z))
    pairs = torch.cartesian_prod(numbers, numbers)
    pairs = pairs[(ids[pairs[:, 0]] == ids[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])]
    cosine = torch.cosine_similarity(z[pairs[:, 0]].double(), z[pairs[:, 1]].double()).mean()
    temperature = aligned_temperature_by_indexes(z, ids, 0.1, 0.7, 0.2)
    assert temperature.item() == pytest.approx(0.1 * (1 + 0.7 * (cosine.item() - 0.2)), rel=1e-5)
    strangers = aligned_temperature_by_indexes(z, numbers, 0.1, 0.7, 0.0)
    assert strangers.item() == pytest.approx(0.1)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in WITHOUT_NEGATIVES])
def test_a_temperature_may_be_a_tensor(name):
    a, b = vectors(9, 7), vectors(9, 8)
    s = Settings(0.15, Margins(0.2, 0.1, 3.0), others=vectors(9, 9), assignments=ASSIGNMENTS)
    expected = value_and_gradients(lambda x, y: PUBLIC[name](x, y, s), a, b)
    for dtype in (torch.float64, torch.float32):
        s = replace(s, temperature=torch.tensor(0.15, dtype=dtype))
        received = value_and_gradients(lambda x, y, s=s: PUBLIC[name](x, y, s), a, b)
        assert_same(received, expected, 1e-9 if dtype == torch.float64 else 1e-5)


def test_a_temperature_stays_above_a_tenth_of_its_base_and_a_number():
    z = vectors(4, 10)
    assert aligned_temperature(z, -z, 0.5, 1.0, 1.0).item() == pytest.approx(0.05)
    z[0] = torch.nan
    temperature = aligned_temperature(z, -z, 0.5, 1.0, 1.0)
    assert temperature.item() == pytest.approx(0.5)
    assert mocov3_margin_loss_func(z, -z, temperature).isnan()


@pytest.mark.parametrize("name", ["base", "factor", "reference"])
@pytest.mark.parametrize("value", [-0.1, 1.1, "1", None])
def test_wrong_alignments(name, value):
    z = vectors(4, 10)
    arguments = {"base": 0.1, name: value}
    if (name, value) == ("base", 1.1):
        arguments["base"] = 0.0
    with pytest.raises(ValueError, match=rf"^{name} must be a number "):
        aligned_temperature(z, z, **arguments)
    with pytest.raises(ValueError, match=rf"^{name} must be a number "):
        aligned_temperature_by_indexes(z, torch.arange(4), **arguments)


def test_a_large_scale_leaves_positives_alone():
    """With s and the learning rate over s the gradient becomes that of β = 0, times 1 - q."""
    query, key = vectors(6, 11), vectors(6, 12)
    cosine = torch.nn.functional.normalize(query, dim=1) @ torch.nn.functional.normalize(key).t()
    q = (cosine / 0.2).softmax(dim=1).diagonal()
    scaled = gradients(
        lambda x: mocov3_margin_loss_func(x, key, 0.2, Margins(positive_scale=1e9)), query
    )[0]
    positives = gradients(lambda x: generalized_info_nce_loss_func(x, key, 0.2, 0.0), query)[0]
    expected = 0.4 * (1 - q).unsqueeze(1) * positives
    torch.testing.assert_close(scaled / 1e9, expected, rtol=1e-6, atol=1e-9)
    # With an attenuation of 1 it is exactly that of β = 0.
    both = Margins(positive_scale=1e9, attenuation=1.0)
    scaled = gradients(lambda x: mocov3_margin_loss_func(x, key, 0.2, both), query)[0]
    torch.testing.assert_close(scaled / 1e9, 0.4 * positives, rtol=1e-6, atol=1e-8)
