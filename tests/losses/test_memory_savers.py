"""Losses inside what saves memory: checkpointing, offloading, accumulation; and what they save."""

import contextlib

import pytest
import torch
from loss_calls import PUBLIC, Settings, assert_same, every_effect, vectors
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

WIDTH = 64
every_loss = pytest.mark.parametrize("name", PUBLIC)


def loss_of(name):
    """Return a loss of two batches, with all margins that it takes."""
    assignments = torch.tensor([2, 0, 0, 4, 1, -1])
    margins = every_effect(name, 6)
    settings = Settings(margins=margins, assignments=assignments, others=vectors(7, 2))
    return lambda a, b: PUBLIC[name](a, b, settings)


def step(loss, seed=0):
    """Return the weights of a network, and a function of them: the loss of its outputs."""
    weights = vectors(6, 10 + seed).requires_grad_()
    first, second = vectors(6, seed), vectors(6, seed + 1)
    return weights, lambda weights: loss(first @ weights, second @ weights)


def checkpointed(use_reentrant):
    return lambda forward, weights: checkpoint(forward, weights, use_reentrant=use_reentrant)


def offloaded(forward, weights):
    with save_on_cpu():
        return forward(weights)


SAVERS = {
    "checkpoint": checkpointed(use_reentrant=False),
    "reentrant checkpoint": checkpointed(use_reentrant=True),
    "save on CPU": offloaded,
    "checkpoint, offloaded": lambda forward, weights: offloaded(
        lambda weights: checkpointed(use_reentrant=False)(forward, weights), weights
    ),
}


@every_loss
@pytest.mark.parametrize("saver", SAVERS)
def test_value_and_gradient_stay_the_same(name, saver):
    weights, forward = step(loss_of(name))
    expected = forward(weights)
    (gradient,) = torch.autograd.grad(expected, weights)
    found = SAVERS[saver](forward, weights)
    found.backward()
    assert_same([found.detach(), weights.grad], [expected.detach(), gradient])


@every_loss
@pytest.mark.parametrize("saver", [None, *SAVERS])
def test_two_forward_passes_before_one_backward_pass(name, saver):
    steps = [step(loss_of(name), seed) for seed in (0, 5)]
    expected = [torch.autograd.grad(forward(weights), weights)[0] for weights, forward in steps]
    losses = []
    for weights, forward in steps:
        losses.append(forward(weights) if saver is None else SAVERS[saver](forward, weights))
    (losses[0] + 3 * losses[1]).backward()
    found = [weights.grad for weights, _ in steps]
    assert_same(found, [expected[0], 3 * expected[1]])


@every_loss
def test_a_kept_graph_gives_the_same_gradient_again(name):
    weights, forward = step(loss_of(name))
    loss = forward(weights)
    (first,) = torch.autograd.grad(loss, weights, retain_graph=True)
    (second,) = torch.autograd.grad(loss, weights, 2 * torch.ones_like(loss), retain_graph=True)
    (penalised,) = torch.autograd.grad(loss, weights, create_graph=True)
    assert torch.equal(2 * first, second)
    assert_same([first], [penalised.detach()])
    loss.backward()
    assert torch.equal(weights.grad, first)


@every_loss
def test_without_gradient_nothing_is_saved(name):
    weights, forward = step(loss_of(name))
    expected = forward(weights)
    with saved_bytes() as count:
        with torch.no_grad():
            assert torch.equal(forward(weights), expected.detach())
        forward(weights.detach())
    assert count == []


# What a loss saves.


@contextlib.contextmanager
def saved_bytes():
    """Collect the bytes of each tensor that autograd saves in the block."""
    count = []

    def pack(tensor):
        count.append(tensor.numel() * tensor.element_size())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield count


def bytes_saved_by(name, pairs):
    first, second = (vectors(pairs, seed, WIDTH).float().requires_grad_() for seed in (0, 1))
    settings = Settings(
        margins=every_effect(name, pairs),
        assignments=torch.arange(pairs) % 50,
        others=vectors(100, 2, WIDTH).float(),
    )
    if name.startswith("mocov3"):
        second = second.detach()
    with saved_bytes() as count:
        PUBLIC[name](first, second, settings)
    return sum(count)


@every_loss
def test_what_is_saved_is_constant_for_each_pair(name):
    """Embeddings, unit vectors and the gradient, never a matrix."""
    few, many, most = (bytes_saved_by(name, pairs) for pairs in (256, 512, 2048))
    for_a_pair = (many - few) / 256
    assert (most - many) / 1536 == pytest.approx(for_a_pair, abs=1)
    vector = 4 * WIDTH
    # Of each batch the embedding, its unit vector in two places, its gradient, and a length.
    assert for_a_pair <= 2 * (4 * vector + 8)
    if name.startswith("mocov3"):  # keys are targets, which need no gradient
        assert for_a_pair == 1284
