"""Exports a pretrained backbone as weights for a plain model of torchvision or timm, with a card.

    python -m solo_margins.export trained_models/mocov3_margin/<run> --to torchvision

The weights load with ``strict=True`` and give the same features; both are checked before anything
is written.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from solo_margins import host
from solo_margins.backbones import BACKBONES, TIMM
from solo_margins.checkpoints import find_checkpoint, read_settings
from solo_margins.cli import run_cli, user_errors
from solo_margins.config import setting
from solo_margins.data.image_spec import ImageSpec, image_spec
from solo_margins.host.versions import versions
from solo_margins.lens.logged_metrics import logged_accuracies

# Target to the file with the weights.
TARGETS = {
    "torchvision": "backbone.pth",
    "timm": "model.safetensors",
    "safetensors": "backbone.safetensors",
}
TOLERANCE = 1e-6  # of features, relative to the largest one
ONLINE = {"val_acc1": "online linear classifier", "val_knn_acc1": "online kNN"}


@dataclass
class PlainModel:
    """A model of torchvision, timm or this package, and the lines of Python that build it."""

    network: nn.Module
    library: str
    lines: list[str]

    def copy_layers(self, backbone: nn.Module, names: Sequence[str]) -> None:
        """Replace layers, such as the stem, in which the backbone differs."""
        for name in names:
            layer = getattr(backbone, name)
            if repr(getattr(self.network, name)) != repr(layer):
                # The repr of a layer is its constructor: Conv2d(3, 64, kernel_size=…).
                self.lines.append(f"model.{name} = nn.{layer!r}")
                setattr(self.network, name, copy.deepcopy(layer))

    def program(self, load: tuple[str, str]) -> str:
        """Return the program that builds the model and loads its weights."""
        imports = [load[0], self.library, *(["from torch import nn"] if self.lines[1:] else [])]
        return "\n".join([*sorted(imports), "", *self.lines, load[1]])


def _arguments(kwargs: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in kwargs.items())


def _torchvision(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> PlainModel | None:
    import torchvision

    constructor = f"resnet{name.rpartition('resnet')[2]}"
    if not isinstance(backbone, torchvision.models.ResNet) or not hasattr(
        torchvision.models, constructor
    ):
        return None
    network = getattr(torchvision.models, constructor)(**kwargs)
    line = f"model = models.{constructor}(weights=None{_arguments(kwargs)})"
    model = PlainModel(network, "from torchvision import models", [line])
    model.copy_layers(backbone, ("conv1", "maxpool", "fc"))
    return model


def _timm(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> PlainModel | None:
    import timm

    is_resnet = not name.startswith(TIMM) and hasattr(backbone, "layer4")
    if is_resnet:
        architecture = f"resnet{name.rpartition('resnet')[2]}"
    elif name.startswith(TIMM):
        architecture = name.removeprefix(TIMM)
    else:
        architecture = str((getattr(backbone, "pretrained_cfg", None) or {}).get("architecture"))
    if not timm.is_model(architecture):
        return None
    network = timm.create_model(architecture, pretrained=False, num_classes=0, **kwargs)
    line = f"model = timm.create_model({architecture!r}, num_classes=0{_arguments(kwargs)})"
    model = PlainModel(network, "import timm", [line])
    if is_resnet:
        model.copy_layers(backbone, ("conv1", "maxpool"))
    return model


def _ours(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> PlainModel | None:
    if name not in BACKBONES:
        return None
    line = f"model = BACKBONES[{name!r}](None{_arguments(kwargs)})"
    library = "from solo_margins.backbones import BACKBONES"
    return PlainModel(BACKBONES[name](None, **kwargs), library, [line])


# Target to the functions that may build its model; the first that can does.
BUILDERS: dict[str, tuple[Callable[..., PlainModel | None], ...]] = {
    "torchvision": (_torchvision,),
    "timm": (_timm,),
    "safetensors": (_torchvision, _timm, _ours),
}


def plain_model(target: str, args: DictConfig, backbone: nn.Module, size: int) -> PlainModel:
    """Return a plain model with the weights and the features of a backbone.

    Raises:
        ValueError: the target library has no such model.
    """
    name = str(args.backbone.name)
    kwargs: Any = OmegaConf.to_container(args.backbone.get("kwargs") or OmegaConf.create({}))
    for build in BUILDERS[target]:
        try:
            model = build(name, kwargs, backbone)
            if model is not None and _is_same(model.network, backbone, size):
                return model
        # A library may reject arguments that solo-learn's variant of a model accepts.
        except (RuntimeError, TypeError):
            continue
    raise ValueError(
        f"--to {target}: {target} has no model for the weights of backbone.name={name}"
        + ("; --to safetensors writes them unchanged." if target != "safetensors" else ".")
    )


@torch.no_grad()
def _is_same(network: nn.Module, backbone: nn.Module, size: int) -> bool:
    network.load_state_dict(backbone.state_dict(), strict=True)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    expected, received = backbone.eval()(images), network.eval()(images)
    if expected.shape != received.shape:
        return False
    return bool((expected - received).abs().max() <= TOLERANCE * expected.abs().max().clamp(min=1))


def export(
    checkpoint: str | Path,
    target: str,
    output: str | Path | None = None,
    accuracies: dict[str, str] | None = None,
) -> Path:
    """Write a backbone's weights for a plain model, with a model card, and return the folder.

    Args:
        checkpoint: a pretraining checkpoint, or the folder of its run.
        target: ``"torchvision"``, ``"timm"`` or ``"safetensors"``.
        output: the folder to write; it must not exist.
        accuracies: name to value, for the card, besides those that the run logged.

    Raises:
        ValueError: there is no such model, or the folder exists.
    """
    path = find_checkpoint(checkpoint, named="")
    args = read_settings(path)
    if args is None or setting(args, "backbone.name") is None:
        raise ValueError(
            f"The backbone of {path} is unknown: {path.parent / 'args.json'} has no backbone.name."
        )
    folder = Path(output) if output is not None else Path(f"{path.parent.name}-{target}")
    if folder.exists():
        raise ValueError(f"--output {folder} already exists: choose another folder.")
    backbone = host.build_backbone(args)
    host.load_backbone(backbone, path)
    images = image_spec(args)
    model = plain_model(target, args, backbone, images.size if images else 224)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Under a temporary name until it is complete.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        load = _write_weights(backbone, target, unfinished)
        card = _card(path, args, images, model.program(load), accuracies or {})
        (unfinished / "README.md").write_text(card)
        settings = OmegaConf.to_container(args, resolve=True)
        (unfinished / "settings.json").write_text(json.dumps(settings, indent=1))
        unfinished.chmod(0o755)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return folder


def _write_weights(backbone: nn.Module, target: str, folder: Path) -> tuple[str, str]:
    """Write the weights; return the import and the line of Python that load them."""
    state = {key: value.contiguous() for key, value in backbone.state_dict().items()}
    file = TARGETS[target]
    if target == "torchvision":
        torch.save(state, folder / file)
        how = "import torch", f'torch.load("{file}", weights_only=True)'
    else:
        from safetensors.torch import save_file

        save_file(state, folder / file, metadata={"format": "pt"})
        how = "from safetensors.torch import load_file", f'load_file("{file}")'
    return how[0], f"model.load_state_dict({how[1]}, strict=True)"


def _card(
    checkpoint: Path,
    args: DictConfig,
    images: ImageSpec | None,
    program: str,
    accuracies: dict[str, str],
) -> str:
    rows = {
        "method": args.method,
        "backbone": args.backbone.name,
        "margins": _listed(args, "method_kwargs.margins"),
        "schedules": _listed(args, "method_kwargs.schedules"),
        "polarization": _listed(args, "method_kwargs.polarization"),
        "data": setting(args, "data.name") or args.data.dataset,
        "epochs": args.max_epochs,
        "batch size": args.optimizer.batch_size,
        "optimizer": f"{args.optimizer.name}, learning rate {args.optimizer.lr:g}",
        "seed": setting(args, "seed"),
    }
    if images is not None:
        rows["images"] = f"{images.size} × {images.size} pixels, RGB from 0 to 1"
        rows["mean"], rows["standard deviation"] = list(images.mean), list(images.std)
    measured = {**_logged(checkpoint.parent), **accuracies}
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    return "\n".join(
        [
            f"# {args.backbone.name} by {args.method}",
            "",
            "```python",
            program,
            "```",
            "",
            "The model returns features, without a classifier. `settings.json` has all settings.",
            "",
            "| pretraining | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items() if value is not None),
            "",
            "| accuracy | % |",
            "|---|---:|",
            *(f"| {name} | {value} |" for name, value in measured.items()),
            *(["| not measured | |"] if not measured else []),
            "",
            f"Exported from `{checkpoint.name}` with {made_with}.",
            "",
        ]
    )


def _listed(args: DictConfig, key: str) -> str | None:
    """Return a group of settings as text, or None if it is empty."""
    value = setting(args, key)
    if not OmegaConf.is_config(value) or not value:
        return None
    return ", ".join(f"{name} {entry}" for name, entry in value.items())


def _logged(folder: Path) -> dict[str, str]:
    """Return the last accuracies that a run logged."""
    logged = logged_accuracies(folder, [])
    return {
        f"{title}, validation images": f"{logged[name][max(logged[name])]:.2f}"
        for name, title in ONLINE.items()
        if logged.get(name)
    }


def _accuracy(text: str) -> tuple[str, str]:
    name, _, value = text.rpartition("=")
    try:
        float(value)
    except ValueError:
        name = ""
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=number")
    return name, value


def main(arguments: Sequence[str]) -> None:
    """Export the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m solo_margins.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("checkpoint", help="a pretraining checkpoint, or the folder of its run")
    parser.add_argument("--to", required=True, choices=TARGETS)
    parser.add_argument("--output", help="folder to write; by default <run>-<target>, here")
    parser.add_argument(
        "--accuracy",
        type=_accuracy,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="an accuracy for the card, such as 'linear probe=71.2'",
    )
    options = parser.parse_args(arguments)
    with user_errors():
        folder = export(options.checkpoint, options.to, options.output, dict(options.accuracy))
    print(f"Weights: {folder / TARGETS[options.to]}\nModel card: {folder / 'README.md'}")


if __name__ == "__main__":
    host.load()
    run_cli(main, sys.argv[1:])
