"""Backbones that solo-learn does not have; their stems depend on their name alone.

solo-learn chooses the stem of every backbone whose name starts with ``resnet`` by the data set.
These names do not start with it, so that a checkpoint always fits.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from solo_margins.losses.checks import require_count


class NarrowResNet(nn.Module):
    """A narrow residual network for small images and CPUs with few cores.

    The layout is that of ResNet-18, basic blocks in four stages after a 3×3 stem without pooling.

    Args:
        width: channels of the first stage; each further stage has twice as many.
        blocks: residual blocks of each stage.
        stem_stride: 2 halves the image in the stem and takes a quarter of the time.
    """

    def __init__(
        self, width: int = 16, blocks: Sequence[int] = (2, 2, 2, 2), stem_stride: int = 1
    ) -> None:
        super().__init__()
        from torchvision.models.resnet import BasicBlock

        require_count("backbone.kwargs.width", width)
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        stages: list[nn.Module] = []
        channels = width
        for number, depth in enumerate(blocks):
            planes, stride = width * 2**number, 1 if number == 0 else 2
            stage: list[nn.Module] = []
            for _ in range(depth):
                shortcut = None
                if stride != 1 or channels != planes:
                    shortcut = nn.Sequential(
                        nn.Conv2d(channels, planes, kernel_size=1, stride=stride, bias=False),
                        nn.BatchNorm2d(planes),
                    )
                stage.append(BasicBlock(channels, planes, stride, shortcut))
                channels, stride = planes, 1
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.num_features = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, num_features) features of (N, 3, H, W) images."""
        out = self.stages(self.relu(self.bn1(self.conv1(images))))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(out, 1), 1)


def narrow_resnet18(method: str | None = None, **kwargs: Any) -> NarrowResNet:
    """Return a quarter-width ResNet-18 with a stem for small images."""
    return NarrowResNet(**kwargs)


def narrow_resnet10(method: str | None = None, **kwargs: Any) -> NarrowResNet:
    """Return a ``narrow_resnet18`` of half the depth."""
    return NarrowResNet(**{"blocks": (1, 1, 1, 1), **kwargs})


def _small_image_resnet(depth: int, keeps_pool: bool) -> Callable[..., nn.Module]:
    """Return the constructor of a ResNet whose 3×3 stem keeps the size of the image.

    Its padding is 1; solo-learn's own stem for CIFAR has padding 2, so the two are different.
    """

    def backbone(method: str | None = None, **kwargs: Any) -> nn.Module:
        from torchvision.models import resnet

        network: Any = getattr(resnet, f"resnet{depth}")(**kwargs)
        network.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")
        if not keeps_pool:
            network.maxpool = nn.Identity()
        network.num_features = network.fc.in_features
        network.fc = nn.Identity()
        return network

    return backbone


# Name in solo-learn's table to constructor, called as ``constructor(method, **kwargs)``.
BACKBONES: dict[str, Callable[..., nn.Module]] = {
    # 32 pixels, no pooling
    "cifar_resnet18": _small_image_resnet(18, keeps_pool=False),
    "cifar_resnet50": _small_image_resnet(50, keeps_pool=False),
    # 64 pixels, pooled once
    "pooled_resnet18": _small_image_resnet(18, keeps_pool=True),
    "pooled_resnet50": _small_image_resnet(50, keeps_pool=True),
    # for CPUs with few cores
    "narrow_resnet18": narrow_resnet18,
    "narrow_resnet10": narrow_resnet10,
}

TIMM = "timm/"  # prefix of timm's models


def timm_backbone(name: str) -> Callable[..., nn.Module]:
    """Return the constructor of a timm model without its classifier.

    Args:
        name: the model, such as ``"resnet26d"``; its ``kwargs`` go to ``timm.create_model``.

    Raises:
        KeyError: timm has no model of that name.
    """
    import timm

    if not timm.is_model(name):
        raise KeyError(name)

    def backbone(method: str | None = None, **kwargs: Any) -> nn.Module:
        network: Any = timm.create_model(name, pretrained=False, num_classes=0, **kwargs)
        # Some models have another layer after the features that num_features counts.
        network.num_features = getattr(network, "head_hidden_size", None) or network.num_features
        return network

    return backbone


class BackboneTable(dict[str, Callable[..., nn.Module]]):
    """Backbones by name; names that start with ``timm/`` are all of timm's models."""

    def __missing__(self, name: str) -> Callable[..., nn.Module]:
        """Return the constructor of a timm model."""
        if not str(name).startswith(TIMM):
            raise KeyError(name)
        return timm_backbone(name.removeprefix(TIMM))

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a backbone."""
        try:
            self[name]  # type: ignore[index]
        except (KeyError, ImportError):
            return False
        return True


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
    close = difflib.get_close_matches(model, timm.list_models(), n=3)
    return f"backbone.name={name}: timm {timm.__version__} has no model {model!r}" + (
        f"; did you mean {' or '.join(close)}?" if close else "."
    )
