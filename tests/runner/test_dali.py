"""DALI's pipelines on the CPU feed every method, in one process and in two."""

import pytest
import torch
from method_parents import PARENTS, needs

pytest.importorskip("nvidia.dali")

from solo_margins import runner

DALI = ("data.format=dali", "dali.device=cpu")
BATCHES = 4
"""Of an epoch of the small images, of which the last, incomplete one is left out."""


@pytest.mark.parametrize("method", PARENTS)
def test_every_method_trains_from_an_image_folder(config, method):
    settings = [*needs(method), f"method={method}", *DALI]
    if method.startswith("deepclusterv2"):
        with pytest.raises(runner.SetupError, match=r"only with dali\.encode_indexes"):
            runner.pretrain(config(*settings))
        settings.append("dali.encode_indexes_into_labels=true")
    trained, still = (
        torch.load(runner.pretrain(config(*settings, *more)).checkpoint, weights_only=True)
        for more in ((), ("max_epochs=1", "optimizer.lr=0", "optimizer.weight_decay=0"))
    )
    assert trained["global_step"] == 2 * BATCHES
    weights, before = trained["state_dict"], still["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    moved = [key for key in weights if not torch.equal(weights[key], before[key])]
    assert "backbone.convolution.weight" in moved
