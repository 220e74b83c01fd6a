"""What only a GPU can tell. Collected with ``--device cuda`` alone."""

import pytest
import torch
from distributed_losses import everything_of_one_rank
from loss_calls import PUBLIC, Settings, vectors
from method_parents import PARENTS, needs
from processes import run_processes

from solo_margins import training
from solo_margins.losses import Margins, mocov3_margin_loss_func

ROWS, WIDTH = 300, 128


def value_and_gradients(name, batches, dtype, device):
    """Return the value of a loss and its gradients, in float64 on the CPU."""
    ids = torch.arange(ROWS, device=device)
    others = vectors(2 * ROWS, 2, WIDTH).to(device, dtype)
    margins = Margins(0.3, 0.2, 5.0, 1.5)
    settings = Settings(margins=margins, ids=ids, assignments=ids.flip(0), others=others)
    first, second = (batch.to(device, dtype).requires_grad_() for batch in batches)
    value = PUBLIC[name](first, second, settings)
    gradients = torch.autograd.grad(value, [first, second], allow_unused=True)
    found = [value.detach(), *(gradient for gradient in gradients if gradient is not None)]
    return [numbers.double().cpu() for numbers in found]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PUBLIC)
def test_losses_are_those_of_float64_on_the_cpu(device, name, dtype):
    # What the dtype cannot hold is left out of the comparison.
    batches = [vectors(ROWS, seed, WIDTH).to(dtype) for seed in (0, 1)]
    exact = value_and_gradients(name, batches, torch.float64, "cpu")
    found = value_and_gradients(name, batches, dtype, device)
    for one, other in zip(found, exact, strict=True):
        scale = other.abs().max().item()
        info = torch.finfo(dtype)
        # What is smaller than the smallest number of the dtype is rounded to nothing.
        tolerance = 2e-4 + info.eps + info.tiny * info.eps / scale
        torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=tolerance)


def test_a_compiled_loss_is_the_loss(device):
    query, key = (vectors(64, seed, WIDTH).float().to(device) for seed in (0, 1))
    compiled = torch.compile(mocov3_margin_loss_func, fullgraph=True)
    torch.testing.assert_close(compiled(query, key), mocov3_margin_loss_func(query, key))


def trained(raw_config, method, folder, *overrides):
    """Train two epochs of two steps and return the mean losses."""
    cfg = raw_config(method, *needs(method), *overrides, f"checkpoint.dir={folder}")
    cfg.update(enable_progress_bar=False, enable_model_summary=False, limit_train_batches=2)
    del cfg["performance"]
    run = training.pretrain(cfg)
    state = torch.load(run.checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in state.values())
    return {
        name: value
        for name, value in run.metrics.items()
        if name.startswith("train_") and name.endswith("_loss")
    }


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("method", PARENTS)
def test_methods_train_as_on_the_cpu(raw_config, tmp_path, method, precision):
    here = trained(raw_config, method, tmp_path / "here", f"precision={precision}")
    there = trained(raw_config, method, tmp_path / "there", "accelerator=cpu")
    assert here.keys() == there.keys()
    if method != "deepclusterv2_margin":  # clusters are drawn on the device
        assert here == pytest.approx(there, rel=0.1, abs=0.1)


@pytest.mark.parametrize("reader", ["tensors", "dali"])
def test_images_are_read_on_the_gpu(raw_config, tmp_path, device, reader):
    if reader == "dali":
        pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    dali = "gpu" if device == "cuda" else "cpu"
    settings = (f"data.format={reader}", f"dali.device={dali}")
    losses = trained(raw_config, "simclr_margin", tmp_path, *settings)
    assert losses


def test_two_ranks_are_one_process(device):
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("two ranks over NCCL need two GPUs")
    backend = "nccl" if device == "cuda" else "gloo"
    shares = (7, 5)
    whole, pairs = everything_of_one_rank(0, (sum(shares),))
    ranks = run_processes(2, everything_of_one_rank, shares, device, backend=backend)
    assert sum(rank[1] for rank in ranks) == pairs
    for case, expected in whole.items():
        numbers = zip(*(rank[0][case] for rank in ranks), strict=True)
        mean = [sum(number) / 2 for number in numbers]
        assert mean == pytest.approx(expected, rel=1e-9, abs=1e-9), case
