"""What a run asks of its devices: the trainer's settings and the memory format of the network."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.config import device_numbers
from solo_margins.ranks import is_rank_zero

if TYPE_CHECKING:
    from torch import nn

# Numbers in a vector of AVX-512, the widest of any CPU.
VECTOR = 16


def runs_on_cpu(cfg: DictConfig) -> bool:
    """Tell whether Lightning trains on a CPU; without an accelerator it takes a GPU if there is."""
    accelerator = OmegaConf.select(cfg, "accelerator", default=None)
    if accelerator in (None, "None", "auto"):
        import torch

        return not (torch.cuda.is_available() or torch.backends.mps.is_available())
    return bool(accelerator == "cpu")


def complete_trainer_settings(cfg: DictConfig) -> DictConfig:
    """Return the configuration with a strategy and devices that Lightning 2 accepts.

    Without a strategy Lightning chooses one. solo-learn scales learning rates by
    ``len(cfg.devices)``, so devices are written as a list, of CPU processes as well.
    """
    if OmegaConf.select(cfg, "strategy", default=None) in (None, "None"):
        cfg.strategy = "auto"
    on_cpu = runs_on_cpu(cfg)
    if OmegaConf.select(cfg, "accelerator", default=None) in (None, "None", "auto"):
        cfg.accelerator = "cpu" if on_cpu else "gpu"
    cfg.devices = device_numbers(OmegaConf.select(cfg, "devices", default=None), on_cpu)
    return cfg


def allows_channels_last(network: nn.Module, on_cpu: bool) -> bool:
    """Tell whether a network can be trained in channels-last memory; warn where it cannot.

    For the gradient of a 1x1 convolution with a stride, oneDNN reserves memory for the channels of
    the input, but strides through it by whole vectors: with fewer channels than a vector has
    numbers it writes past the end (https://github.com/uxlfoundation/oneDNN/issues/6035), and the
    process dies of a segmentation fault. The stems of RepVGG and MobileOne are such networks. A
    narrower vector has a lower limit, but what is chosen should not depend on the CPU.
    """
    from torch import nn

    unsafe = [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Conv2d)
        and (layer.kernel_size == (1, 1) and layer.stride != (1, 1) and layer.in_channels < VECTOR)
    ]
    if not unsafe or not on_cpu:
        return True
    if is_rank_zero():
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
