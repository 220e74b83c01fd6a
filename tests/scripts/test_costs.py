"""Costs on paper: the formulas against what processes and networks count here."""

from pathlib import Path

import costs
import pytest
import torch
from counted_costs import costs_of_one_rank, saved_by
from processes import run_processes
from solo.methods import METHODS
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parents[2]
BATCH, WIDTH = 64, 16


@pytest.mark.parametrize("processes", [1, 4])
def test_a_loss_costs_every_process_what_the_formulas_say(processes):
    if processes == 1:
        counted = [costs_of_one_rank(0, BATCH, WIDTH)]
    else:
        counted = run_processes(processes, costs_of_one_rank, BATCH, WIDTH)
    for of_rank in counted:
        for name, formula in (("simclr", costs.simclr_cost), ("mocov3", costs.mocov3_cost)):
            received, received_backward, flops, kept = of_rank[name]
            cost = formula(BATCH, processes, WIDTH)
            assert received == cost.received, name
            assert received_backward == cost.received_backward, name
            assert flops == cost.flops, name
            assert kept == pytest.approx(cost.kept, rel=0.1), name


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def test_activations():
    """What an encoder saves for two views, whole and in parts that are checkpointed."""
    network, images = encoder(), BATCH
    views = torch.randn(2, images, 3, 8, 8)
    image_bytes = views[0, 0].nbytes
    one = costs.saved_bytes(network, views[0])
    weights = sum(parameter.nbytes for parameter in network.parameters())

    outputs, saved = saved_by(lambda: [network(view.clone()) for view in views])
    counted = saved - weights - views.nbytes
    per_image = one / images
    expected = costs.activation_bytes(per_image, image_bytes, images, views=2)
    assert counted == pytest.approx(expected, rel=0.05)

    parts = 4
    pieces = [piece.clone() for view in views for piece in view.chunk(parts)]
    # A checkpointed part keeps its images; its activations are those of a pass of its own.
    outputs, kept = saved_by(
        lambda: [checkpoint(network, piece, use_reentrant=False) for piece in pieces]
    )
    assert len(outputs) == 2 * parts
    again = costs.saved_bytes(network, pieces[0])
    expected = costs.activation_bytes(per_image, image_bytes, images, views=2, parts=parts)
    assert kept + again == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("method", "symmetric"),
    [
        ("mocov3_margin", True),
        ("mocov3_margin", False),
        ("simclr_margin", True),
        pytest.param("mocov2plus_margin", True, marks=pytest.mark.repository),
        pytest.param("nnbyol_curv", True, marks=pytest.mark.repository),
    ],
)
def test_operations_of_a_real_step(config, method, symmetric):
    """Forward and backward of a step with a recipe's backbone, within 5 %."""
    settings = ["backbone.name=cifar_resnet18", "method_kwargs.proj_hidden_dim=16"]
    if method in costs.ONE_DIRECTION:
        settings.append(f"method_kwargs.symmetric={str(symmetric).lower()}")
    model = METHODS[method](config(method, *settings))
    model.log_dict = lambda values, **_: None
    model.log = lambda key, value, **_: None
    views = [torch.randn(2, 3, 16, 16) for _ in range(2)]
    with FlopCounterMode(display=False) as counter:
        model.training_step([torch.arange(2), views, torch.arange(2)], 0).backward()
    forward = costs.forward_flops(model.backbone, views[0][:1])
    expected = costs.step_flops(forward, 2, *costs.passes(method, symmetric))
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.05)


def test_the_page_shows_what_the_script_prints():
    page = (ROOT / "docs" / "costs.md").read_text()
    for printed in costs.tables():
        assert printed in page, "copy what `python scripts/costs.py` prints to docs/costs.md"
