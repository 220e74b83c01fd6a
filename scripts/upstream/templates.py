"""Tests of exported losses and methods, in the manner of solo-learn's own."""

from __future__ import annotations

import inspect
from typing import Any

import solo_margins.losses

PACKAGE = '''"""Margins of contrastive losses."""

from solo.utils.margins.margins import Margins

__all__ = ["Margins"]
'''

INPUTS = {
    "query": "torch.randn(b, f).requires_grad_()",
    "key": "torch.randn(b, f)",
    "p": "torch.randn(b, f).requires_grad_()",
    "nn": "torch.randn(b, f)",
    "z": "torch.randn(b, f).requires_grad_()",
    "indexes": "torch.arange(b // 2).repeat(2)",
    "queue": "F.normalize(torch.randn(f, 64), dim=0)",
    "prototypes": "torch.randn(10, f)",
    "assignments": "torch.arange(b) % 10",
    "lower": "0.3",
    "upper": "0.6",
}
"""What a test gives to a parameter of a loss, by its name."""

LIKE = {
    "mocov3_margin_loss_func": "mocov3_loss_func",
    "simclr_margin_loss_func": "simclr_loss_func",
    "byol_curv_loss_func": "byol_loss_func",
    "mocov2plus_margin_loss_func": "mocov2plus_loss_func",
    "nnclr_margin_loss_func": "nnclr_loss_func",
    "simsiam_curv_loss_func": "simsiam_loss_func",
}
"""Losses that equal one of solo-learn's without margins, on unit vectors."""

DESCENT = """import torch
import torch.nn.functional as F  # noqa: F401
from solo.losses import {imported}
from solo.utils.margins import Margins  # noqa: F401


def test_{name}():
    b, f = 32, 128
{inputs}
    loss = {call}
    initial_loss = loss.item()
    assert loss != 0

    for _ in range(20):
        loss = {call}
        loss.backward()
        {trained}.data.add_(-0.5 * {trained}.grad)

        {trained}.grad = None

    assert loss < initial_loss
"""

LIKE_PARENT = """

def test_{name}_without_margins():
    b, f = 32, 128
{inputs}
    # without margins, value and gradient are those of the loss without them
    inputs = ({units})
    expected = {parent}(*inputs)
    (expected_grad,) = torch.autograd.grad(expected, {trained}, retain_graph=True)

    loss = {function}(*inputs)
    (grad,) = torch.autograd.grad(loss, {trained})

    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grad, expected_grad, rtol=1e-3, atol=1e-5)
"""

METHOD = """import pytest
import torch
from lightning.pytorch import seed_everything
from solo.methods import {cls}, {parent_cls}

from .utils import gen_base_cfg, gen_batch, gen_trainer, prepare_dummy_dataloaders


def _gen_cfg(name):
    cfg = gen_base_cfg(name, batch_size=8, num_classes=100, momentum=True)
    cfg.method_kwargs = {{
        "proj_hidden_dim": 32,
        "proj_output_dim": 16,
        "pred_hidden_dim": 32,
        "temperature": 0.2,
{extra}    }}
    cfg.data.dataset = "cifar10"
    cfg.data.num_classes = 10
    return cfg


def _fit(model, cfg):
    seed_everything(0)
    trainer = gen_trainer(cfg)
    train_dl, val_dl = prepare_dummy_dataloaders(
        "cifar10",
        num_large_crops=cfg.data.num_large_crops,
        num_small_crops=0,
        num_classes=cfg.data.num_classes,
        batch_size=cfg.optimizer.batch_size,
    )
    trainer.fit(model, train_dl, val_dl)
    return model.state_dict()


def test_{name}():
    cfg = _gen_cfg("{name}")
    cfg.method_kwargs.margins = {{"angular": 0.1, "subtractive": 0.2, "positive_scale": 2.0}}
    model = {cls}(cfg)

    # test arguments
    model.add_and_assert_specific_cfg(cfg)

    # test parameters
    assert model.learnable_params is not None

    # test forward
    batch, _ = gen_batch(cfg.optimizer.batch_size, cfg.data.num_classes, "cifar10")
    out = model(batch[1][0])
    assert out["logits"].size() == (cfg.optimizer.batch_size, cfg.data.num_classes)
    assert out["feats"].size() == (cfg.optimizer.batch_size, model.features_dim)

    # test training
    initial = {{name: value.clone() for name, value in model.state_dict().items()}}
    trained = _fit(model, cfg)
    changed = [name for name in initial if not torch.equal(initial[name], trained[name])]
    assert any(name.startswith("backbone.") for name in changed)


def test_{name}_without_margins():
    # without margins, a training step is that of {parent_cls}
    parent_cfg = _gen_cfg("{parent}")
    parent = {parent_cls}(parent_cfg)
    cfg = _gen_cfg("{name}")
    model = {cls}(cfg)
    model.load_state_dict(parent.state_dict())

    expected = _fit(parent, parent_cfg)
    for name, value in _fit(model, cfg).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)


def test_{name}_refuses_wrong_settings():
    cfg = _gen_cfg("{name}")
    cfg.method_kwargs.margins = {{"scale": 2.0}}
    with pytest.raises(ValueError, match="scale"):
        {cls}(cfg)
"""

EXTRA: dict[str, dict[str, Any]] = {
    "mocov2plus": {"queue_size": 16},
    "nnclr": {"queue_size": 16},
    "nnsiam": {"queue_size": 16},
    "nnbyol": {"queue_size": 16},
    "deepclusterv2": {"num_prototypes": [4, 4], "kmeans_iters": 2},
    "wmse": {"whitening_iters": 1, "whitening_size": 8, "whitening_eps": 0.01},
}
"""What a method of solo-learn needs besides in a test."""


def method_test(name: str, cls: str, parent: str, parent_cls: str) -> str:
    """Return a test of a method."""
    extra = "".join(f'        "{k}": {v!r},\n' for k, v in EXTRA.get(parent, {}).items())
    return METHOD.format(name=name, cls=cls, parent=parent, parent_cls=parent_cls, extra=extra)


def loss_test(function: str) -> str:
    """Return the tests of a loss."""
    parameters = inspect.signature(getattr(solo_margins.losses, function)).parameters
    required = [name for name, p in parameters.items() if p.default is p.empty]
    trained = next(name for name in required if "requires_grad" in INPUTS[name])
    inputs = "".join(f"    {name} = {INPUTS[name]}\n" for name in required)
    settings = {
        "name": function.removesuffix("_func"),
        "function": function,
        "trained": trained,
        "parent": LIKE.get(function),
    }
    given, arguments = inputs, list(required)
    if "margins" in parameters:
        given += "    margins = Margins(angular=0.1, subtractive=0.2, positive_scale=2.0)\n"
        arguments.append("margins=margins")
    imported = ", ".join(sorted(filter(None, (function, LIKE.get(function)))))
    call = f"{function}({', '.join(arguments)})"
    text = DESCENT.format(inputs=given, call=call, imported=imported, **settings)
    if function in LIKE:
        units = ", ".join(_as_unit(name) for name in required)
        text += LIKE_PARENT.format(inputs=inputs, units=units, **settings)
    return text


def _as_unit(name: str) -> str:
    """Return how a test hands an input on; some of solo-learn's losses want unit vectors."""
    is_vectors = "torch.randn(b" in INPUTS[name]
    return f"F.normalize({name}, dim=1)" if is_vectors else name
