"""A CPU process dies of a segmentation fault in `backward` when the network has a 1x1 convolution
with a stride and fewer than 16 input channels, as the stems of RepVGG and MobileOne: PyTorch
writes past its memory there if it is in channels-last format.
"""

from __future__ import annotations

import warnings
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_only
from omegaconf import DictConfig
from torch import nn

from solo_margins.host.changes import Wrap
from solo_margins.host.repairs.trainer_settings import runs_on_cpu

# Numbers in a vector of AVX-512, the widest of any CPU.
VECTOR = 16


def allows_channels_last(network: nn.Module, on_cpu: bool) -> bool:
    """Tell whether a network can be trained in channels-last memory; warn where it cannot.

    For the gradient of a 1×1 convolution with a stride, oneDNN reserves memory for the channels of
    the input, but strides through it by whole vectors: with fewer channels than a vector has
    numbers it writes past the end (https://github.com/uxlfoundation/oneDNN/issues/6035). A
    narrower vector has a lower limit, but what is chosen should not depend on the CPU.
    """
    unsafe = [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d)
        and (layer.kernel_size == (1, 1) and layer.stride != (1, 1) and layer.in_channels < VECTOR)
    ]
    if not unsafe or not on_cpu:
        return True
    if getattr(rank_zero_only, "rank", 0) == 0:
        warnings.warn(
            f"The network stays in contiguous memory (performance.disable_channel_last=true): in "
            f"channels-last memory PyTorch crashes on CPUs in the layer {unsafe[0]}, a 1x1 "
            f"convolution with a stride and fewer than {VECTOR} input channels.",
            stacklevel=2,
        )
    return False


def keep_contiguous(model: Any, cfg: DictConfig) -> None:
    """Keep a model in contiguous memory where channels-last memory would crash.

    Args:
        model: whose ``no_channel_last`` says what memory images get.
        cfg: the model's configuration, which programs ask for the memory of the weights.
    """
    if not model.no_channel_last and not allows_channels_last(model, runs_on_cpu(cfg)):
        model.no_channel_last = cfg.performance.disable_channel_last = True


def keep_method_contiguous(original: Any, self: Any, cfg: DictConfig) -> None:
    """Keep a method in contiguous memory where channels-last memory would crash."""
    original(self, cfg)
    keep_contiguous(self, cfg)


def keep_classifier_contiguous(
    original: Any, self: Any, backbone: Any, cfg: Any, loss_func: Any = None, mixup_func: Any = None
) -> None:
    """Keep a linear classifier in contiguous memory where channels-last memory would crash."""
    original(self, backbone, cfg, loss_func, mixup_func)
    keep_contiguous(self, cfg)


CHANGES = (
    Wrap("methods.base", "BaseMethod.__init__", keep_method_contiguous),
    Wrap("methods.linear", "LinearModel.__init__", keep_classifier_contiguous),
)
