"""Settings whose gradient is that of another loss in the literature, against lightly's code."""

import pytest
import torch
from loss_calls import vectors

from solo_margins.losses import (
    MarginNTXentLoss,
    Margins,
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
