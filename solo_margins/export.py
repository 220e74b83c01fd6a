"""Takes a pretrained backbone away: weights for a plain model of torchvision or timm, and a card.

    python -m solo_margins.export trained_models/mocov3_margin/<run> --to torchvision

What is written loads with ``strict=True`` and gives the same features; both are checked before
anything is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from solo_margins import host
from solo_margins.backbones import BACKBONES, TIMM
from solo_margins.host.recipe import ImageRecipe, recipe_of
from solo_margins.host.versions import versions
from solo_margins.logged_metrics import logged_accuracies
from solo_margins.runner.checkpoints import find_checkpoint, pretrained_backbone, pretraining_args
from solo_margins.runner.program import explained, run_as_program
from solo_margins.runner.settings import setting

TARGETS = {
    "torchvision": "backbone.pth",
    "timm": "model.safetensors",
    "safetensors": "backbone.safetensors",
}
"""What can be exported to, and the file with the weights."""
TOLERANCE = 1e-6
"""Of features, relative to the largest one."""
ONLINE = {"val_acc1": "online linear classifier", "val_knn_acc1": "online kNN"}


@dataclass
class Plain:
    """A model without weights, and the lines of Python that make it."""

    network: nn.Module
    imports: list[str]
    construction: str
    changes: list[str] = field(default_factory=list)

    def follow(self, backbone: nn.Module, names: Sequence[str]) -> None:
        """Take over layers, such as the stem, in which the backbone differs."""
        for name in names:
            wanted = getattr(backbone, name)
            if repr(getattr(self.network, name)) != repr(wanted):
                # Layers are written as they are constructed: Conv2d(3, 64, kernel_size=…).
                self.changes.append(f"model.{name} = nn.{wanted!r}")
                setattr(self.network, name, _without_weights(wanted))

    def program(self, load: Sequence[str]) -> str:
        """Return the program that makes the model and loads its weights by an import and a line."""
        imports = [load[0], *self.imports, *(["from torch import nn"] if self.changes else [])]
        return "\n".join([*sorted(imports), "", self.construction, *self.changes, load[1]])


def _without_weights(layer: nn.Module) -> nn.Module:
    """Return a new layer of the same kind."""
    if isinstance(layer, nn.Conv2d):
        return nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,  # type: ignore[arg-type]
            layer.stride,  # type: ignore[arg-type]
            layer.padding,  # type: ignore[arg-type]
            bias=layer.bias is not None,
        )
    return nn.Identity()


def _arguments(kwargs: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in kwargs.items())


def _torchvision(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> Plain | None:
    import torchvision

    depth = name.rpartition("resnet")[2]
    if not isinstance(backbone, torchvision.models.ResNet) or not depth.isdecimal():
        return None
    constructor = f"resnet{depth}"
    network = getattr(torchvision.models, constructor)(**kwargs)
    plain = Plain(
        network,
        ["from torchvision import models"],
        f"model = models.{constructor}(weights=None{_arguments(kwargs)})",
    )
    plain.follow(backbone, ("conv1", "maxpool", "fc"))
    return plain


def _timm(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> Plain | None:
    import timm

    if name.startswith(TIMM):
        architecture = name.removeprefix(TIMM)
    elif hasattr(backbone, "layer4"):
        architecture = f"resnet{name.rpartition('resnet')[2]}"
    else:
        architecture = str((getattr(backbone, "pretrained_cfg", None) or {}).get("architecture"))
    if not timm.is_model(architecture):
        return None
    network = timm.create_model(architecture, pretrained=False, num_classes=0, **kwargs)
    plain = Plain(
        network,
        ["import timm"],
        f"model = timm.create_model({architecture!r}, num_classes=0{_arguments(kwargs)})",
    )
    if not name.startswith(TIMM) and hasattr(backbone, "layer4"):
        plain.follow(backbone, ("conv1", "maxpool"))
    return plain


def _ours(name: str, kwargs: dict[str, Any], backbone: nn.Module) -> Plain | None:
    if name not in BACKBONES:
        return None
    return Plain(
        BACKBONES[name](None, **kwargs),
        ["from solo_margins.backbones import BACKBONES"],
        f"model = BACKBONES[{name!r}](None{_arguments(kwargs)})",
    )


MAKERS: dict[str, tuple[Callable[..., Plain | None], ...]] = {
    "torchvision": (_torchvision,),
    "timm": (_timm,),
    "safetensors": (_torchvision, _timm, _ours),
}
"""What can make the plain model for each target, the first that can."""


def plain_model(target: str, args: DictConfig, backbone: nn.Module, size: int) -> Plain:
    """Return a plain model that a backbone's weights fit and that gives the same features.

    Raises:
        ValueError: the target has no such model.
    """
    name = str(args.backbone.name)
    kwargs: Any = OmegaConf.to_container(args.backbone.get("kwargs") or OmegaConf.create({}))
    for make in MAKERS[target]:
        try:
            plain = make(name, kwargs, backbone)
            if plain is not None and _is_same(plain.network, backbone, size):
                return plain
        # A library may refuse arguments that solo-learn's variant of a model takes.
        except (RuntimeError, TypeError):
            continue
    raise ValueError(
        f"--to {target}: it has no model with the weights of backbone.name={name}"
        + ("; --to safetensors writes them as they are." if target != "safetensors" else ".")
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
        output: the folder to write, which must not exist yet.
        accuracies: what the card says besides what the run has logged, by name.

    Raises:
        ValueError: there is no such model, or the folder exists.
    """
    path = find_checkpoint(checkpoint, named="")
    args = pretraining_args(path)
    if setting(args, "backbone.name") is None:
        raise ValueError(
            f"{path.parent / 'args.json'} should say which backbone {path} holds, but does not."
        )
    folder = Path(output) if output is not None else Path(f"{path.parent.name}-{target}")
    if folder.exists():
        raise ValueError(f"--output {folder} exists: name a folder that does not.")
    backbone = pretrained_backbone(args, path, args)
    images = recipe_of(args)
    plain = plain_model(target, args, backbone, images.size if images else 224)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until all of it is there.
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        load = _write_weights(backbone, target, unfinished)
        card = _card(path, args, images, plain.program(load), accuracies or {})
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
    images: ImageRecipe | None,
    program: str,
    accuracies: dict[str, str],
) -> str:
    rows = {
        "method": args.method,
        "backbone": args.backbone.name,
        "margins": _given(args, "method_kwargs.margins"),
        "schedules": _given(args, "method_kwargs.schedules"),
        "polarization": _given(args, "method_kwargs.polarization"),
        "data": setting(args, "data.name") or args.data.dataset,
        "epochs": args.max_epochs,
        "batch size": args.optimizer.batch_size,
        "optimizer": f"{args.optimizer.name}, learning rate {args.optimizer.lr:g}",
        "seed": setting(args, "seed"),
    }
    if images is not None:
        rows["images"] = f"{images.size} × {images.size} pixels, RGB from 0 to 1"
        rows["mean"], rows["standard deviation"] = list(images.mean), list(images.std)
    found = {**_logged(checkpoint.parent, setting(args, "log_dir")), **accuracies}
    measured = {name: value for name, value in found.items() if value}
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
            *(["| none was measured | |"] if not measured else []),
            "",
            f"Exported from `{checkpoint.name}` with {made_with}.",
            "",
        ]
    )


def _given(args: DictConfig, key: str) -> str | None:
    """Return settings as text, None where there are none."""
    value = setting(args, key)
    if not OmegaConf.is_config(value) or not value:
        return None
    return ", ".join(f"{name} {entry}" for name, entry in value.items())


def _logged(folder: Path, log_dir: Any) -> dict[str, str]:
    """Return the last accuracies that a run has logged."""
    logged = logged_accuracies(folder, [], log_dir)
    return {
        f"{title}, validation images": f"{logged[name][max(logged[name])]:.2f}"
        for name, title in ONLINE.items()
        if logged.get(name)
    }


def _accuracy(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    try:
        float(value)
    except ValueError:
        equals = ""
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=number")
    return name, value


def main(arguments: Sequence[str]) -> None:
    """Export what the arguments of a command line name."""
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
        help="goes into the card, such as 'linear probe=71.2'",
    )
    given = parser.parse_args(arguments)
    with explained():
        folder = export(given.checkpoint, given.to, given.output, dict(given.accuracy))
    print(f"Weights: {folder / TARGETS[given.to]}\nModel card: {folder / 'README.md'}")


if __name__ == "__main__":
    host.load()
    run_as_program(main, sys.argv[1:])
