"""Exports a pretrained backbone as weights for a plain model of torchvision or timm, with a card.

    python -m solo_margins.export trained_models/mocov3_margin/<run> --to torchvision

    --to        torchvision or timm, where they have the backbone; safetensors for any
    --output    folder to write; by default <run>-<target> in the current folder

The weights load with ``strict=True`` and give the same features; both are checked before anything
is written.
"""

import argparse
import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from solo_margins import registry
from solo_margins.backbones import BACKBONES, build_backbone, load_backbone
from solo_margins.checkpoints import find_checkpoint, read_settings, write_settings
from solo_margins.cli import run_cli
from solo_margins.config import setting
from solo_margins.data.image_spec import image_spec
from solo_margins.files import complete_folder
from solo_margins.lens.runs import logged_accuracies
from solo_margins.versions import versions

# Target to the file with the weights.
TARGETS = {
    "torchvision": "backbone.pth",
    "timm": "model.safetensors",
    "safetensors": "backbone.safetensors",
}
CARD = Path(__file__).with_name("model_card.md")
TOLERANCE = 1e-6  # of features, relative to the largest one
ONLINE = {"val_acc1": "online linear classifier", "val_knn_acc1": "online kNN"}


@dataclass(frozen=True)
class Candidate:
    """A way to make a model with a library.

    Attributes:
        library: the line that imports it.
        text: how a program calls the function that makes the model.
        function: that function.
        arguments: of the function.
    """

    library: str
    text: str
    function: Callable[..., nn.Module]
    arguments: dict[str, Any]


def _candidates(target: str, name: str, backbone: nn.Module) -> Iterator[Candidate]:
    """Yield the models that a target's library may have for a backbone."""
    from torchvision import models

    resnet = f"resnet{name.rpartition('resnet')[2]}"
    if target != "timm" and hasattr(models, resnet):
        function = getattr(models, resnet)
        yield Candidate("from torchvision import models", f"models.{resnet}", function, {})
    if target != "torchvision":
        import timm

        model = (getattr(backbone, "pretrained_cfg", None) or {}).get("architecture", resnet)
        if timm.is_model(model):
            arguments = {"model_name": model, "num_classes": 0}
            yield Candidate("import timm", "timm.create_model", timm.create_model, arguments)
    if target == "safetensors" and name in BACKBONES:
        library = "from solo_margins.backbones import BACKBONES"
        yield Candidate(library, f"BACKBONES[{name!r}]", BACKBONES[name], {})


def plain_model(target: str, args: DictConfig, backbone: nn.Module, size: int) -> list[str]:
    """Return the lines of Python, after ``import torch``, that make a plain model of a backbone.

    Raises:
        ValueError: the target library has no model with the same weights and features.
    """
    name = str(args.backbone.name)
    kwargs: Any = OmegaConf.to_container(args.backbone.get("kwargs") or OmegaConf.create({}))
    for candidate in _candidates(target, name, backbone):
        arguments = {**candidate.arguments, **kwargs}
        listed = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        lines = [candidate.library, "", f"model = {candidate.text}({listed})"]
        # A library may reject arguments that solo-learn's variant of a model accepts.
        with contextlib.suppress(RuntimeError, TypeError):
            network = candidate.function(**arguments)
            # Layers in which stems differ. The repr of a layer is its constructor: Conv2d(3, …).
            for part in ("conv1", "maxpool", "fc"):
                layer = getattr(backbone, part, None)
                if layer is not None and repr(getattr(network, part, layer)) != repr(layer):
                    lines.append(f"model.{part} = torch.nn.{layer!r}")
                    setattr(network, part, copy.deepcopy(layer))
            if _is_same(network, backbone, size):
                return lines
    advice = "" if target == "safetensors" else "; --to safetensors writes them unchanged"
    raise ValueError(
        f"--to {target}: {target} has no model for the weights of backbone.name={name}{advice}."
    )


@torch.no_grad()
def _is_same(network: nn.Module, backbone: nn.Module, size: int) -> bool:
    network.load_state_dict(backbone.state_dict(), strict=True)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    expected, received = backbone.eval()(images), network.eval()(images)
    allowed = TOLERANCE * max(1.0, expected.abs().max().item())
    is_alike = expected.shape == received.shape
    return is_alike and torch.allclose(received, expected, rtol=0, atol=allowed)


def export(checkpoint: str | Path, target: str, output: str | Path | None = None) -> Path:
    """Write a backbone's weights for a plain model, with a model card, and return the folder.

    Args:
        checkpoint: a pretraining checkpoint, or the folder of its run.
        target: ``"torchvision"``, ``"timm"`` or ``"safetensors"``.
        output: the folder to write; it must not exist.

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
    backbone = build_backbone(args)
    load_backbone(backbone, path)
    images = image_spec(args)
    lines = plain_model(target, args, backbone, images.size if images else 224)
    state = {key: value.contiguous() for key, value in backbone.state_dict().items()}
    file = TARGETS[target]
    with complete_folder(folder) as unfinished:
        if target == "torchvision":
            torch.save(state, unfinished / file)
            load = f'torch.load("{file}", weights_only=True)'
        else:
            from safetensors.torch import save_file

            save_file(state, unfinished / file, metadata={"format": "pt"})
            lines.insert(0, "from safetensors.torch import load_file")
            load = f'load_file("{file}")'
        lines.append(f"model.load_state_dict({load}, strict=True)")
        program = "\n".join(["import torch", *lines])
        (unfinished / "README.md").write_text(_card(path, args, program))
        settings = OmegaConf.to_container(args, resolve=True)
        write_settings(unfinished / "settings.json", settings, indent=1)
    return folder


def _card(checkpoint: Path, args: DictConfig, program: str) -> str:
    rows = {"data": setting(args, "data.name") or args.data.dataset, "seed": setting(args, "seed")}
    for group in ("margins", "schedules", "polarization"):
        values = setting(args, f"method_kwargs.{group}")
        if OmegaConf.is_dict(values):
            rows[group] = ", ".join(f"{name} {value}" for name, value in values.items())
    images = image_spec(args)
    if images is not None:
        rows["images"] = f"{images.size} × {images.size} pixels, RGB from 0 to 1"
        rows["mean"], rows["standard deviation"] = list(images.mean), list(images.std)
    logged = logged_accuracies(checkpoint.parent, [])
    measured = {}
    for name, title in ONLINE.items():
        if logged.get(name):
            last = max(logged[name])
            measured[f"{title}, validation images"] = f"{logged[name][last]:.2f}"
    return CARD.read_text().format(
        args=args,
        program=program,
        pretraining=_table(rows),
        accuracies=_table(measured or {"not measured": " "}),
        checkpoint=checkpoint,
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
    )


def _table(rows: dict[str, Any]) -> str:
    present = {name: value for name, value in rows.items() if value not in (None, "")}
    return "\n".join(f"| {name} | {value} |" for name, value in present.items())


def main(arguments: Sequence[str]) -> None:
    """Export the checkpoint that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m solo_margins.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("checkpoint", help="a pretraining checkpoint, or the folder of its run")
    parser.add_argument("--to", required=True, choices=TARGETS)
    parser.add_argument("--output", help="folder to write; by default <run>-<target>, here")
    options = parser.parse_args(arguments)
    folder = export(options.checkpoint, options.to, options.output)
    print(f"Weights: {folder / TARGETS[options.to]}\nModel card: {folder / 'README.md'}")


if __name__ == "__main__":
    registry.register()
    run_cli(main, sys.argv[1:])
