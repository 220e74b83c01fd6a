"""Backbones that solo-learn does not have; their stems depend on their name alone.

solo-learn chooses the stem of every backbone whose name starts with ``resnet`` by the data set.
These names do not start with it, so that a checkpoint always fits.
"""

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from solo_margins.losses.checks import require_count


class NarrowResNet(nn.Module):
    """A narrow residual network for small images and CPUs with few cores.

    The layout is that of ResNet-18, basic blocks in four stages after a 3×3 stem without pooling.

    Args:
        method: the name of the method, which every backbone is told.
        width: channels of the first stage; each further stage has twice as many.
        blocks: residual blocks of each stage.
        stem_stride: 2 halves the image in the stem and takes a quarter of the time.
    """

    def __init__(
        self,
        method: Any = None,
        width: int = 16,
        blocks: Sequence[int] = (2, 2, 2, 2),
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        from torchvision.models.resnet import BasicBlock, conv1x1

        require_count("backbone.kwargs.width", width)
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.stages = nn.Sequential()
        channels = width
        for number, depth in enumerate(blocks):
            planes, stride = width * 2**number, 1 if number == 0 else 2
            stage = nn.Sequential()
            for _ in range(depth):
                shortcut = None
                if stride != 1 or channels != planes:
                    convolution = conv1x1(channels, planes, stride)
                    shortcut = nn.Sequential(convolution, nn.BatchNorm2d(planes))
                stage.append(BasicBlock(channels, planes, stride, shortcut))
                channels, stride = planes, 1
            self.stages.append(stage)
        self.num_features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, num_features) features of (N, 3, H, W) images."""
        out = self.stages(self.relu(self.bn1(self.conv1(images))))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(out, 1), 1)


def small_image_resnet(depth: int, pool: bool, /, method: Any = None, **kwargs: Any) -> nn.Module:
    """Return a ResNet whose 3×3 stem keeps the size of the image.

    Its padding is 1; solo-learn's own stem for CIFAR has padding 2, so the two are different.
    """
    from torchvision.models import resnet

    network: Any = getattr(resnet, f"resnet{depth}")(**kwargs)
    network.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
    if not pool:
        network.maxpool = nn.Identity()
    network.num_features = network.fc.in_features
    network.fc = nn.Identity()
    return network


def timm_backbone(model: str, /, method: Any = None, **kwargs: Any) -> nn.Module:
    """Return a model of timm without its classifier; ``kwargs`` go to ``timm.create_model``."""
    import timm

    network: Any = timm.create_model(model, pretrained=False, num_classes=0, **kwargs)
    # Some models have another layer after the features that num_features counts.
    network.num_features = getattr(network, "head_hidden_size", None) or network.num_features
    return network


# Name in solo-learn's table to constructor, called as ``constructor(method, **kwargs)``.
BACKBONES: dict[str, Callable[..., nn.Module]] = {
    # 32 pixels, no pooling
    **{f"cifar_resnet{depth}": partial(small_image_resnet, depth, False) for depth in (18, 50)},
    # 64 pixels, pooled once
    **{f"pooled_resnet{depth}": partial(small_image_resnet, depth, True) for depth in (18, 50)},
    # for CPUs with few cores
    "narrow_resnet18": NarrowResNet,
    "narrow_resnet10": partial(NarrowResNet, blocks=(1, 1, 1, 1)),
}

TIMM = "timm/"  # prefix of timm's models


class BackboneTable(dict[str, Callable[..., nn.Module]]):
    """Backbones by name; names that start with ``timm/`` are all of timm's models."""

    def __missing__(self, name: str) -> Callable[..., nn.Module]:
        """Return the constructor of a timm model."""
        if name not in self:
            raise KeyError(name)
        return partial(timm_backbone, name.removeprefix(TIMM))

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a backbone."""
        is_of_timm = str(name).startswith(TIMM) and complaint_about(str(name)) is None
        return is_of_timm or super().__contains__(name)


def complaint_about(name: str) -> str | None:
    """Return an error message for an unavailable timm model, None for any other name."""
    if not name.startswith(TIMM):
        return None
    try:
        import timm
    except ModuleNotFoundError:
        return (
            f"backbone.name={name} needs timm, which is not installed: run `pip install timm`, or "
            '`pip install ".[train]"` in the folder of solo-margins.'
        )
    model = name.removeprefix(TIMM)
    if timm.is_model(model):
        return None
    close = " or ".join(difflib.get_close_matches(model, timm.list_models(), n=3))
    hint = f"; did you mean {close}?" if close else "."
    return f"backbone.name={name}: timm {timm.__version__} has no model {model!r}{hint}"
