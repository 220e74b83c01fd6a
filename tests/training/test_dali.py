"""DALI's pipelines on the CPU feed every method, and the programs, as the seed says."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from method_parents import PARENTS, needs
from processes import free_ports
from recorded_batches import recorder

pytest.importorskip("nvidia.dali")

import lightning.pytorch as pl

from solo_margins import training

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "support" / "recorded_batches.py"
DALI = ("data.format=dali", "dali.device=cpu")
BATCHES = 4
"""Of an epoch of the small images, of which the last, incomplete one is left out."""


@pytest.mark.parametrize("method", PARENTS)
def test_every_method_trains_from_an_image_folder(config, method):
    settings = [*needs(method), f"method={method}", *DALI]
    trained, still = (
        torch.load(training.pretrain(config(*settings, *more)).checkpoint, weights_only=True)
        for more in ((), ("max_epochs=1", "optimizer.lr=0", "optimizer.weight_decay=0"))
    )
    assert trained["global_step"] == 2 * BATCHES
    weights, before = trained["state_dict"], still["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    moved = [key for key in weights if not torch.equal(weights[key], before[key])]
    assert "backbone.convolution.weight" in moved


def batches_in(folder, run=0, rank=0):
    """Return the batches of a rank in their order, each as a flat list of tensors."""
    paths = sorted(folder.glob(f"{run}-{rank}-*.pt"))
    return [torch.utils._pytree.tree_leaves(torch.load(path, weights_only=True)) for path in paths]


def are_equal(batch, other):
    return all(map(torch.equal, batch, other))


def assert_seeds_matter(folder, number):
    """Fail unless the first two runs have the same batches, and the third has others."""
    first, same, other = (batches_in(folder, run) for run in range(3))
    assert len(first) == len(same) == len(other) == number
    assert all(map(are_equal, first, same))
    assert not any(are_equal(*pair) for pair in itertools.product(first, other))
    assert not any(are_equal(*pair) for pair in itertools.combinations(first, 2))


def test_runs_train_on_the_batches_of_their_seed(config, linear_config, monkeypatch, tmp_path):
    module, hook = pl.LightningModule, "on_train_batch_start"
    monkeypatch.setattr(module, hook, recorder(tmp_path / "pretraining"))
    settings = ("method=simclr_margin", *DALI)
    runs = [training.pretrain(config(*settings, f"seed={seed}")) for seed in (1, 1, 2)]
    assert_seeds_matter(tmp_path / "pretraining", 2 * BATCHES)
    monkeypatch.setattr(module, hook, recorder(tmp_path / "probing"))
    for seed in (1, 1, 2):
        training.linear(linear_config(runs[0].checkpoint, *DALI, f"seed={seed}"))
    assert_seeds_matter(tmp_path / "probing", 2 * BATCHES)


def test_two_machines_tell_their_images_apart(image_folder, written, tmp_path):
    """Two processes on 127.0.0.1, each the only one of its machine."""
    [port] = free_ports(1)
    together = ("++num_nodes=2", "devices=1", "strategy=ddp", "accelerator=cpu")
    settings = (
        "max_epochs=1",
        "++data.format=dali",
        "++dali={device: cpu}",
    )
    processes = []
    for machine in range(2):
        place = {"NODE_RANK": str(machine), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        processes.append(
            subprocess.Popen(
                [
                    *(sys.executable, "-W", "ignore", RECORDED, tmp_path / f"batches{machine}"),
                    *(ROOT / "main_pretrain.py", *written, *together, *settings),
                ],
                cwd=tmp_path,
                env={**os.environ, **place, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        for process in processes:
            said, _ = process.communicate(timeout=240)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    first, second = (batches_in(tmp_path / f"batches{rank}", rank=rank) for rank in range(2))
    # Each machine has half of 36 images, in batches of 8.
    assert len(first) == len(second) == 2
    for (indexes, *views), (other_indexes, *other_views) in zip(first, second, strict=True):
        # They are those of the images in the whole data set.
        assert len({*indexes.tolist(), *other_indexes.tolist()}) == 16
        assert not any(map(torch.equal, views[:2], other_views[:2]))
