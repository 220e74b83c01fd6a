"""Backbones by name that solo-learn does not have; their stems depend on nothing but the name.

solo-learn changes the stem of any backbone whose name starts with ``resnet`` by the name of the
data set; these names contain but do not start with it, so that a checkpoint always fits.
"""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class NarrowResNet(nn.Module):
    """A residual network for small images and for processors without many cores.

    The layout is that of ResNet-18, basic blocks in four stages behind a 3×3 stem without pooling,
    at a fraction of its width.

    Args:
        width: channels of the first stage; each further stage has twice as many.
        blocks: residual blocks of each stage.
        stem_stride: 2 halves the image in the stem, which takes a quarter of the time.
    """

    def __init__(
        self, width: int = 16, blocks: Sequence[int] = (2, 2, 2, 2), stem_stride: int = 1
    ) -> None:
        super().__init__()
        from torchvision.models.resnet import BasicBlock

        if not isinstance(width, int) or width < 1:
            raise ValueError(
                f"backbone.kwargs.width must be a whole number of at least 1, got {width!r}"
            )

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
    """Return half of the depth of ``narrow_resnet18``: an epoch of small data in seconds."""
    return NarrowResNet(**{"blocks": (1, 1, 1, 1), **kwargs})


def _small_image_resnet(depth: int, keeps_pool: bool) -> Callable[..., nn.Module]:
    """Return the constructor of a ResNet whose 3×3 stem does not reduce the image.

    With padding 1 the image keeps its size; solo-learn's own stem for CIFAR has padding 2, so that
    the two differ by more than a name.
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


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    # 32 pixels, no pooling
    "cifar_resnet18": _small_image_resnet(18, keeps_pool=False),
    "cifar_resnet50": _small_image_resnet(50, keeps_pool=False),
    # 64 pixels, pooled once
    "pooled_resnet18": _small_image_resnet(18, keeps_pool=True),
    "pooled_resnet50": _small_image_resnet(50, keeps_pool=True),
    # for processors without many cores
    "narrow_resnet18": narrow_resnet18,
    "narrow_resnet10": narrow_resnet10,
}
"""Name in the host's table to constructor, which is called as ``constructor(method, **kwargs)``."""

TIMM = "timm/"
"""Begins the name of a model of timm."""


def timm_backbone(name: str) -> Callable[..., nn.Module]:
    """Return the constructor of a model of timm that returns features.

    Args:
        name: of the model, such as ``"resnet26d"``; arguments of the constructor go to
            ``timm.create_model``.

    Raises:
        KeyError: timm has no model of that name.
    """
    import timm

    if not timm.is_model(name):
        raise KeyError(name)

    def backbone(method: str | None = None, **kwargs: Any) -> nn.Module:
        network: Any = timm.create_model(name, pretrained=False, num_classes=0, **kwargs)
        # Some have a layer between the features that they count and those that they return.
        network.num_features = getattr(network, "head_hidden_size", None) or network.num_features
        return network

    return backbone


class BackboneTable(dict[str, Callable[..., nn.Module]]):
    """Backbones by name, and behind ``timm/`` all of timm's models."""

    def __missing__(self, name: str) -> Callable[..., nn.Module]:
        """Return the constructor of a model of timm."""
        if not str(name).startswith(TIMM):
            raise KeyError(name)
        return timm_backbone(name.removeprefix(TIMM))

    def __contains__(self, name: object) -> bool:
        """Tell whether there is such a backbone."""
        try:
            self[name]  # type: ignore[index]
        except (KeyError, ImportError):
            return False
        return True


def complaint_about(name: str) -> str | None:
    """Return what is wrong with the name of a model of timm, None for any other name."""
    if not name.startswith(TIMM):
        return None
    try:
        import timm
    except ModuleNotFoundError:
        return (
            f"backbone.name={name} needs timm, which is not installed: run `pip install timm`, or "
            '`pip install ".[train]"` in the folder of solo-margins.'
        )
    wanted = name.removeprefix(TIMM)
    if timm.is_model(wanted):
        return None
    close = difflib.get_close_matches(wanted, timm.list_models(), n=3)
    return f"backbone.name={name}: timm {timm.__version__} has no model {wanted!r}" + (
        f"; did you mean {' or '.join(close)}?" if close else "."
    )
