"""What the oldest supported torch cannot do."""

import pytest
import torch

needs_float16_on_cpus = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"),
    reason="before 2.3 torch has no float16 autocast and no loss scaling on CPUs",
)
