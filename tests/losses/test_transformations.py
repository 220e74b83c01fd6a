"""The transformations of torch.func: grad, vmap, jacrev, jacfwd and their compositions."""

import pytest
import torch
from loss_calls import PUBLIC, Settings, every_effect, vectors
from torch.func import grad, hessian, jacfwd, jacrev, vmap

pytestmark = pytest.mark.parametrize("name", PUBLIC)


def loss_of(name):
    """Return a loss of one batch, with all margins that it takes."""
    settings = Settings(
        margins=every_effect(name, 6),
        assignments=torch.tensor([2, 0, 0, 4, 1, -1]),
        others=vectors(7, 2),
    )
    key = vectors(6, 1)
    return lambda query: PUBLIC[name](query, key, settings)


def gradient_of(loss, query):
    query = query.clone().requires_grad_()
    return torch.autograd.grad(loss(query), query)[0]


@pytest.mark.parametrize("transform", [grad, jacrev, jacfwd])
def test_gradients_are_those_of_autograd(name, transform):
    loss, query = loss_of(name), vectors(6, 0)
    torch.testing.assert_close(transform(loss)(query), gradient_of(loss, query))


def test_vmap_is_a_loop(name):
    loss, queries = loss_of(name), torch.stack([vectors(6, 3), vectors(6, 4)])
    torch.testing.assert_close(vmap(loss)(queries), torch.stack([loss(q) for q in queries]))
    expected = torch.stack([gradient_of(loss, q) for q in queries])
    torch.testing.assert_close(vmap(grad(loss))(queries), expected)


def test_the_hessian_is_that_of_autograd(name):
    loss, query = loss_of(name), vectors(6, 0)
    expected = torch.autograd.functional.hessian(loss, query)
    torch.testing.assert_close(hessian(loss)(query), expected)


def test_several_gradients_in_one_backward_pass(name):
    """As vectorised Jacobians of torch.autograd have them; here the engine has run forwards."""
    loss, query = loss_of(name), vectors(6, 0).requires_grad_()
    upstream = torch.tensor([1.0, -3.0], dtype=torch.float64)
    (found,) = torch.autograd.grad(loss(query), query, upstream, is_grads_batched=True)
    one = gradient_of(loss, query.detach())
    torch.testing.assert_close(found, torch.stack([one, -3.0 * one]))
