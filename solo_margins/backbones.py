"""Backbones that solo-learn does not have, and backbones outside a method.

solo-learn chooses the stem of every backbone whose name starts with ``resnet`` by the data set.
The names of ours do not start with it: their stems depend on the name alone, so that a checkpoint
always fits.
"""

import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from solo_margins.checkpoints import read_checkpoint
from solo_margins.losses.checks import require_count
from solo_margins.method_names import ALIASES, METHOD_NAMES, OF_SOLO_LEARN

logger = logging.getLogger(__name__)


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


def add_timm_backbone(name: str) -> None:
    """Add ``timm/<model>`` to solo-learn's table of backbones, if it is such a name.

    timm has too many models to add all of them.

    Raises:
        ValueError: timm has no such model, or is not installed.
    """
    if not name.startswith(TIMM):
        return
    complaint = complaint_about(name)
    if complaint is not None:
        raise ValueError(complaint)
    from solo.methods.base import BaseMethod

    BaseMethod._BACKBONES.setdefault(name, partial(timm_backbone, name.removeprefix(TIMM)))


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


def drop_null_kwargs(cfg: DictConfig) -> None:
    """Delete null settings in ``backbone.kwargs``, which solo-learn would hand to the backbone.

    A composed configuration cannot leave out what another backbone has set: it says null.
    """
    kwargs = OmegaConf.select(cfg, "backbone.kwargs", default=None) or {}
    for name in list(kwargs):
        if kwargs[name] is None:
            del kwargs[name]


def backbone_constructor(name: str) -> Callable[..., nn.Module]:
    """Return what builds a backbone, or raise ``ValueError`` if there is none of that name."""
    from solo.methods.base import BaseMethod

    add_timm_backbone(name)
    table: Any = BaseMethod._BACKBONES
    if name not in table:
        listed = f"one of {', '.join(sorted(table))}, or timm/<model>"
        raise ValueError(f"backbone.name must be {listed}, got {name!r}.")
    return table[name]


def _whose_vit(method: str) -> str:
    """Return the name by which solo-learn knows the ViT of a method: MoCo v3 has its own.

    solo-learn goes by the name of the method; a class of ours says it as ``trains_vit_of``.
    """
    if method.lower() in OF_SOLO_LEARN:
        return method.lower()
    from solo.methods import METHODS

    if method not in (*METHODS, *METHOD_NAMES, *ALIASES):
        raise ValueError(
            f"The ViT was trained by method={method}, which is not registered here: import what "
            "registers it, or name the method whose ViT it has in a probe, such as "
            "pretrain_method=mocov3."
        )
    # The release lacks some of ours; the others of them train the ordinary one.
    return str(getattr(METHODS.get(method), "trains_vit_of", method))


def build_backbone(cfg: DictConfig, trained_by: type | None = None) -> Any:
    """Return the backbone that a configuration describes, without weights and classifier.

    On CIFAR a ResNet loses its down-sampling stem.

    Args:
        cfg: a configuration of a pretraining or a probe.
        trained_by: the class of the method, which decides between variants of the ViT; by default
            that of ``cfg.pretrain_method`` (linear configurations) or ``cfg.method``.

    Raises:
        ValueError: the backbone is a ViT, and nobody knows which one its method trains.
    """
    name = str(cfg.backbone.name)
    method = OmegaConf.select(cfg, "pretrain_method") or OmegaConf.select(cfg, "method")
    if name.startswith("vit_") and trained_by is not None:
        method = getattr(trained_by, "trains_vit_of", method)
    elif name.startswith("vit_") and method is not None:
        method = _whose_vit(str(method))
    kwargs = OmegaConf.select(cfg, "backbone.kwargs", default=None) or {}
    backbone: Any = backbone_constructor(name)(method, **kwargs)
    if name.startswith("resnet"):
        backbone.fc = nn.Identity()
        if cfg.data.dataset in ("cifar10", "cifar100"):
            # Padding 2 is solo-learn's own choice: its checkpoints expect it.
            backbone.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=2, bias=False)
            backbone.maxpool = nn.Identity()
    return backbone


def backbone_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the backbone in a method's state, without their prefix.

    Keys of older checkpoints, ``encoder.*``, are understood and reported.
    """
    own, old = (
        {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        for prefix in ("backbone.", "encoder.")
    )
    if old and not own:
        logger.warning("Renamed %d keys encoder.* of an older checkpoint to backbone.*.", len(old))
    return own or old


def load_backbone(backbone: nn.Module, checkpoint: str | Path) -> None:
    """Fill a backbone from a pretraining checkpoint, and make sure that all of it was filled.

    Raises:
        ValueError: the checkpoint holds no backbone, or not the one asked for.
    """
    content = read_checkpoint(checkpoint)
    state = backbone_state(content.get("state_dict", content))
    if not state:
        raise ValueError(
            f"{checkpoint} holds no keys backbone.* (nor encoder.*): it is not a "
            "pretraining checkpoint of solo-learn."
        )
    # A classifier that the backbone has lost since is no loss.
    wanted = backbone.state_dict()
    missing = sorted(wanted.keys() - state.keys())
    differing = sorted(k for k in wanted.keys() & state.keys() if wanted[k].shape != state[k].shape)
    if missing or differing:
        example = (missing or differing)[0]
        raise ValueError(
            f"{checkpoint} holds another backbone than the one configured: {len(missing)} of its "
            f"{len(wanted)} tensors are missing and {len(differing)} differ in shape, "
            f"for example {example!r}; check backbone.name and backbone.kwargs."
        )
    backbone.load_state_dict({k: state[k] for k in wanted})
