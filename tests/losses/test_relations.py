"""Settings that are another loss of the literature: against lightly's code, or its formula."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from loss_calls import (
    OWN_MARGINS,
    PUBLIC,
    SOME_MARGINS,
    WITHOUT_NEGATIVES,
    Settings,
    assert_same,
    focal,
    value_and_gradients,
    vectors,
)

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
    aligned_temperature,
    aligned_temperature_by_indexes,
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
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


@pytest.mark.parametrize("kind", ["I", "II"])
@pytest.mark.parametrize("margins", [*SOME_MARGINS, *OWN_MARGINS])
def test_gradient_dissipation_weight_and_ratio(kind, margins):
    """The paradigm of https://arxiv.org/abs/2402.18281, for all margins at once."""
    margins = replace(margins, attenuation_type=kind, beyond_pi="cosine")
    query, key = (F.normalize(vectors(8, seed), dim=1) for seed in (13, 14))
    cosine = query @ key.t()
    angle = cosine.diagonal().acos()
    shifted = ((angle + margins.angular).cos() - margins.subtractive) / 0.2
    itself = torch.eye(len(query), dtype=torch.bool)
    q = torch.where(itself, shifted.unsqueeze(1), cosine / 0.2).softmax(dim=1).diagonal()
    weight = (cosine / 0.2).masked_fill(itself, -torch.inf).softmax(dim=1)  # of negatives only
    dissipation = 1 - q
    ratio = margins.positive_scale * margins.curve_of(angle)
    ratio = ratio * (angle + margins.angular).sin() / angle.sin()
    if margins.scaling is not None:
        ratio = ratio * focal(angle, q)
    if kind == "I":
        dissipation = dissipation / (1 - margins.attenuation * q)
    else:
        ratio = ratio / (1 - margins.attenuation * q)
    moves = weight @ key - ratio.unsqueeze(1) * key
    expected = dissipation.unsqueeze(1) / 0.2 * moves
    expected = expected - (expected * query).sum(dim=1, keepdim=True) * query
    # The loss is the mean, times 2τ.
    (received,) = gradients(lambda x: mocov3_margin_loss_func(x, key, 0.2, margins), query)
    torch.testing.assert_close(received, 0.4 / 8 * expected, rtol=1e-12, atol=1e-12)


LABELS = torch.tensor([2, 0, 6, 1, 2, 5])


@pytest.mark.parametrize(("margin", "subtracted"), [(0.5, 0.0), (0.0, 0.35), (0.3, 0.1)])
def test_margins_of_classes_are_those_of_arcface_and_cosface(margin, subtracted):
    """arXiv 1801.07698 and 1801.09414, with a scale of 16, of embeddings against class weights."""
    embeddings, weights = vectors(len(LABELS), 15), vectors(7, 16)

    def published(x):
        cosine = F.normalize(x, dim=1) @ F.normalize(weights, dim=1).t()
        target = F.one_hot(LABELS, len(weights)).bool()
        with_margin = (cosine.acos() + margin).cos() - subtracted
        return F.cross_entropy(16 * torch.where(target, with_margin, cosine), LABELS)

    margins = Margins(angular=margin, subtractive=subtracted)
    assert_same(
        value_and_gradients(
            lambda x: deepclusterv2_margin_loss_func(x, weights, LABELS, 1 / 16, margins),
            embeddings,
        ),
        value_and_gradients(published, embeddings),
    )


def test_the_subtractive_margin_is_the_additive_margin_of_simkgc():
    """arXiv 2203.02167, Eq. 4: γ is subtracted from the score of the positive triple alone."""
    queries, entities = vectors(6, 17), vectors(6, 18)

    def published(x, y):
        scores = F.cosine_similarity(x.unsqueeze(1), y, dim=2)
        scores = (scores - 0.02 * torch.eye(len(x))) / 0.05
        return F.cross_entropy(scores, torch.arange(len(x)))

    ours = PUBLIC["nnclr"]
    s = Settings(0.05, Margins(subtractive=0.02))
    assert_same(
        value_and_gradients(lambda x, y: ours(y, x, s), queries, entities),
        value_and_gradients(published, queries, entities),
    )


def test_a_negative_angular_margin_ends_the_pull_before_the_angle_of_zero():
    """The margin of MAMA, arXiv 2407.03788: the positive's similarity is cos(θ - m)."""
    margin = 0.4

    def pull(angle, beyond_pi="cosine"):
        """Return value and derivative by the angle, at most 0.0 where the pair is pushed apart."""
        p = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        z = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
        value, gradient, _ = value_and_gradients(
            lambda x, y: byol_curv_loss_func(x, y, Margins(-margin, beyond_pi=beyond_pi)), p, z
        )
        return value.item(), -gradient[0, 1].item()

    for angle in (0.01, 0.1, 0.39, 0.4, 0.41, 1.0, 3.0):
        expected = 2 - 2 * math.cos(angle - margin), 2 * math.sin(angle - margin)
        assert pull(angle) == pytest.approx(expected, abs=1e-12)
        resting = expected if angle > margin else (0.0, 0.0)
        assert pull(angle, "monotone") == pytest.approx(resting, abs=1e-12)
