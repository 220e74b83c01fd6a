"""Half precision, accumulated batches and clipped gradients, for every method."""

import json

import pytest
import torch
from method_parents import PARENTS, needs

from solo_margins import training

CLIP = 0.1
COMBINED = ("accumulate_grad_batches=2", f"gradient_clip_val={CLIP}")
MOMENTUM = 0.9
STEPS = 4
"""Two epochs of four batches, two of them a step."""
DETERMINED = {"wmse_curv": ["method_kwargs.whitening_eps=0.01"]}
"""Features rounded to half precision may have any covariance: this adds to all its eigenvalues."""


@pytest.fixture
def update(config):
    """Train a method and return how far its weights went, as one vector, and by which rate."""

    def train(method, *changes):
        settings = [*needs(method), *DETERMINED.get(method, []), f"method={method}"]
        settings += ["optimizer.lr=0.5", *COMBINED, *changes]
        still = ["optimizer.lr=0", "optimizer.weight_decay=0", "max_epochs=1"]
        still += ["limit_train_batches=2", "limit_val_batches=0"]
        first, last = (training.pretrain(config(*settings, *more)) for more in (still, []))
        saved = torch.load(last.checkpoint, weights_only=True)
        assert saved["global_step"] == STEPS
        before = torch.load(first.checkpoint, weights_only=True)["state_dict"]
        after = saved["state_dict"]
        assert all(value.isfinite().all() for value in after.values())
        assert all(value.dtype != torch.bfloat16 for value in after.values())
        trained = [key for key in before if key.startswith(("backbone", "projector"))]
        trained = [key for key in trained if "running" not in key and "batches" not in key]
        rate = json.loads((last.folder / "args.json").read_text())["optimizer"]["lr"]
        return torch.cat([(after[key] - before[key]).flatten() for key in trained]), rate

    return train


@pytest.mark.parametrize("method", PARENTS)
def test_every_method_trains_in_half_precision(update, method):
    half, rate = update(method, "precision=bf16-mixed")
    exact, _ = update(method)
    # Rounding may choose another nearest neighbour here and there.
    assert torch.nn.functional.cosine_similarity(half, exact, dim=0) > 0.8
    assert 0.25 < half.norm() / exact.norm() < 4
    # A gradient acts again in later steps, through momentum; weight decay adds a little.
    reach = sum(MOMENTUM**later for step in range(STEPS) for later in range(step + 1))
    assert 0 < half.norm() <= 1.1 * reach * rate * CLIP


@pytest.mark.parametrize(
    ("method", "says_so"),
    [("simclr_margin", True), ("byol_curv", False), ("mocov2plus_margin", False)],
)
def test_negatives_of_accumulated_batches_are_told(config, capsys, method, says_so):
    settings = (*needs(method), f"method={method}", "max_steps=1")
    training.pretrain(config(*settings, *COMBINED))
    said = (
        "accumulate_grad_batches=2: an image's negatives are those among the 8 images of its own "
        "batch, not among the 16 images of a step."
    )
    printed = capsys.readouterr().out
    assert (said in printed) == says_so
    assert ("method_kwargs.simulated_ranks" in printed) == says_so
    training.pretrain(config(*settings))
    assert "accumulate_grad_batches" not in capsys.readouterr().out
