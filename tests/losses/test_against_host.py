"""Default margins against the losses of the installed host itself, value and gradient."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from host_losses import host_loss

from solo_margins.losses import (
    byol_curv_loss_func,
    deepclusterv2_margin_loss_func,
    mocov2plus_margin_loss_func,
    mocov3_margin_loss_func,
    nnclr_margin_loss_func,
    simclr_margin_loss_func,
    simsiam_curv_loss_func,
)

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
IDS = torch.arange(4).repeat(2)
CLUSTERS = torch.tensor([3, 0, -1, 4, 3, 1, -1, 2])


def is_solo_main():
    host = importlib.util.find_spec("solo")
    return host is not None and (Path(host.origin).parent / "losses/mocov3.py").exists()


def tensors(dtype):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 8, 5, generator=generator).to(dtype)


def assert_same(ours, hosts, *inputs):
    results = []
    for loss in (ours, hosts):
        leaves = [x.clone().requires_grad_() for x in inputs]
        value = loss(*leaves)
        results.append([value.detach(), *torch.autograd.grad(value, leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[one.dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_mocov3(dtype):
    query, key, _ = tensors(dtype)
    assert_same(mocov3_margin_loss_func, host_loss("mocov3", "mocov3_loss_func"), query, key)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.skipif(not is_solo_main(), reason="the other form's takes two views and no indexes")
def test_simclr(dtype):
    hosts = host_loss("simclr", "simclr_loss_func")
    assert_same(
        lambda z: simclr_margin_loss_func(z, IDS), lambda z: hosts(z, IDS), tensors(dtype)[0]
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("ours", "name"), [(byol_curv_loss_func, "byol"), (simsiam_curv_loss_func, "simsiam")]
)
def test_positives_only(dtype, ours, name):
    p, z, _ = tensors(dtype)
    hosts = host_loss(name, f"{name}_loss_func")
    assert_same(lambda x: ours(x, z), lambda x: hosts(x, z), p)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_nnclr(dtype):
    neighbours, predictions, _ = tensors(dtype)
    assert_same(
        nnclr_margin_loss_func, host_loss("nnclr", "nnclr_loss_func"), neighbours, predictions
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_mocov2plus(dtype):
    name = "mocov2plus" if is_solo_main() else "moco"
    hosts = host_loss(name, f"{name}_loss_func")
    query, key, negatives = tensors(dtype)
    key, queue = F.normalize(key, dim=1), F.normalize(negatives, dim=1).t()
    # The host normalises before the loss, ours inside.
    assert_same(
        lambda x: mocov2plus_margin_loss_func(x, key, queue),
        lambda x: hosts(F.normalize(x, dim=1), key, queue),
        query,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_deepclusterv2(dtype):
    """The host averages over heads of prototypes and takes one list of samples for all views."""
    hosts = host_loss("deepclusterv2", "deepclusterv2_loss_func")
    first, second, prototypes = tensors(dtype)
    heads = [prototypes[:5], prototypes[3:]]
    assignments = torch.stack([CLUSTERS, CLUSTERS.flip(0)])

    def ours(*views):
        z = torch.cat(views)
        pairs = zip(heads, assignments, strict=True)
        return sum(deepclusterv2_margin_loss_func(z, head, a.repeat(2)) for head, a in pairs) / 2

    def logits(head, view):
        return F.normalize(view, dim=1) @ F.normalize(head, dim=1).t()

    def theirs(*views):
        outputs = torch.stack([torch.stack([logits(head, v) for v in views]) for head in heads])
        return hosts(outputs, assignments)

    assert_same(ours, theirs, first, second)
