"""Write one of our methods into a checkout of solo-learn, as a contribution to its repository.

    python scripts/export_upstream.py <checkout> --method mocov3_margin

Loss, base class and method are copies of ours whose imports are rewritten; recipe and test are
written for the method. At most eight files are added or changed: all of them, or none.
"""

import argparse
import ast
import sys
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from solo_margins.files import complete_file
from solo_margins.learning_rates import settings_of_optimizer
from solo_margins.losses import Margins

ROOT = Path(__file__).resolve().parents[1]
METHODS_FILE, LOSSES_FILE = "solo/methods/__init__.py", "solo/losses/__init__.py"
IN_A_CHECKOUT = (METHODS_FILE, LOSSES_FILE, "tests/methods/utils.py", "main_pretrain.py")


class Method(NamedTuple):
    """The names of a method's class, of its parent's class, and of its loss in solo-learn."""

    name: str
    parent: str
    loss: str


METHODS = {
    "mocov3_margin": Method("MoCoV3Margin", "MoCoV3", "mocov3_margin"),
    "simclr_margin": Method("SimCLRMargin", "SimCLR", "simclr_margin"),
    "byol_curv": Method("BYOLCurv", "BYOL", "byol_curv"),
    "mocov2plus_margin": Method("MoCoV2PlusMargin", "MoCoV2Plus", "mocov2plus_margin"),
    "nnclr_margin": Method("NNCLRMargin", "NNCLR", "nnclr_margin"),
    "supcon_margin": Method("SupConMargin", "SupCon", "simclr_margin"),
    "deepclusterv2_margin": Method("DeepClusterV2Margin", "DeepClusterV2", "deepclusterv2_margin"),
    "simsiam_curv": Method("SimSiamCurv", "SimSiam", "simsiam_curv"),
    "nnsiam_curv": Method("NNSiamCurv", "NNSiam", "simsiam_curv"),
    "nnbyol_curv": Method("NNBYOLCurv", "NNBYOL", "byol_curv"),
    "wmse_curv": Method("WMSECurv", "WMSE", "byol_curv"),
}

# Modules of ours that become one file: the plain form of the losses, and the base class.
OF_MARGINS = ("checks", "margins", "gather", "plain", "alignment", "polarization")
OF_BASE = (
    "config",
    "scalings",
    "methods.settings",
    "methods.queues",
    "methods.parts",
    "methods.base",
)

MARGINS_DOCSTRING = '''"""Losses with margins: settings, checks, and what all of them compute.

With θ the angles between rows and columns, every margin effect is one of two steps:
z = (cos(θ + m1) - m2) / τ of a positive, and a factor of the gradient that reaches its angle.

References:
    - [0] Understanding Contrastive Learning Through the Lens of Margins, 2023,
      https://arxiv.org/abs/2306.11526. Equation numbers below are those of [0].
"""'''
BASE_DOCSTRING = '"""Base classes of methods with margins: settings, schedules, polarization."""'

# Settings of heads in the exported test, of those that a method has.
SMALL_HEADS = {
    "proj_hidden_dim": 32,
    "proj_output_dim": 16,
    "pred_hidden_dim": 32,
    "temperature": 0.2,
    "queue_size": 16,
    "num_prototypes": [4, 4],
    "kmeans_iters": 2,
    "whitening_iters": 1,
    "whitening_size": 8,
    "whitening_eps": 0.01,
}

RECIPE = """\
# Margins and settings of https://arxiv.org/abs/2306.11526
defaults:
  - _self_
  - wandb: private.yaml
  - override hydra/hydra_logging: disabled
  - override hydra/job_logging: disabled

# disable hydra outputs
hydra:
  output_subdir: null
  run:
    dir: .

$settings
# auto_resume does not compare margins: another run could be continued
auto_resume:
  enabled: False

# overwrite PL stuff
max_epochs: $max_epochs
devices: [0]
sync_batchnorm: True
accelerator: "gpu"
strategy: "ddp"
precision: 16-mixed
"""

TEST = """\
import pytest
import torch
from lightning.pytorch import seed_everything
from solo.methods import $imported

from .utils import gen_base_cfg, gen_batch, gen_trainer, prepare_dummy_dataloaders


def _gen_cfg(name):
    cfg = gen_base_cfg(name, batch_size=8, num_classes=10, momentum=True)
    cfg.method_kwargs = {
$heads
    }
    cfg.data.dataset = "cifar10"
    return cfg


def _fit(model, cfg):
    seed_everything(0)
    train_dl, val_dl = prepare_dummy_dataloaders(
        "cifar10",
        num_large_crops=cfg.data.num_large_crops,
        num_small_crops=0,
        num_classes=cfg.data.num_classes,
        batch_size=cfg.optimizer.batch_size,
    )
    gen_trainer(cfg).fit(model, train_dl, val_dl)
    return model.state_dict()


def test_$method():
    cfg = _gen_cfg("$method")
    cfg.method_kwargs.margins = {"angular": 0.1, "subtractive": 0.2, "positive_scale": 2.0}
    model = $name(cfg)

    # test arguments
    model.add_and_assert_specific_cfg(cfg)

    # test parameters
    assert model.learnable_params is not None

    # test forward
    batch, _ = gen_batch(cfg.optimizer.batch_size, cfg.data.num_classes, "cifar10")
    out = model(batch[1][0])
    assert out["logits"].size() == (cfg.optimizer.batch_size, cfg.data.num_classes)
    assert out["feats"].size() == (cfg.optimizer.batch_size, model.features_dim)

    # test training
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    trained = _fit(model, cfg)
    changed = [name for name in initial if not torch.equal(initial[name], trained[name])]
    assert any(name.startswith("backbone.") for name in changed)


def test_${method}_without_margins():
    # without margins, a training step is that of $parent
    parent_cfg = _gen_cfg("$parent_name")
    parent = $parent(parent_cfg)
    cfg = _gen_cfg("$method")
    model = $name(cfg)
    model.load_state_dict(parent.state_dict())

    expected = _fit(parent, parent_cfg)
    for name, value in _fit(model, cfg).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-4)


def test_${method}_wrong_settings():
    cfg = _gen_cfg("$method")
    cfg.method_kwargs.margins = {"scale": 2.0}
    with pytest.raises(ValueError, match="scale"):
        $name(cfg)
"""


class ExportRefused(ValueError):
    """A method cannot be written; the message is one sentence."""


def parent_of(method: str) -> str:
    """Return the name of the method of solo-learn that a method of ours derives from."""
    return method.rpartition("_")[0]


def places(loss: str) -> dict[str, str]:
    """Return what each of our modules is called in solo-learn, longer names first."""
    moved = {f"solo_margins.losses.{module}": "solo.losses.margins" for module in OF_MARGINS}
    moved["solo_margins.losses.forms"] = "solo.losses.margins"
    moved["solo_margins.losses"] = "solo.losses.margins"
    moved |= {f"solo_margins.{module}": "solo.methods.margin_base" for module in OF_BASE}
    moved["solo_margins.methods.corrected"] = "solo.methods.base"
    moved[f"solo_margins.losses.{parent_of(loss)}"] = f"solo.losses.{loss}"
    moved["solo_margins.methods"] = "solo.methods"
    moved["solo_margins.checkpoints"] = "solo.methods"
    return dict(sorted(moved.items(), key=lambda names: -len(names[0])))


def copied(modules: list[str], target: str, loss: str, docstring: str | None = None) -> str:
    """Return modules of ours, one below the other, as the module ``target`` of solo-learn."""
    moved = places(loss)
    imports: dict[str, set[str]] = {}
    bodies = []
    for module in modules:
        text = ROOT.joinpath("solo_margins", *module.split(".")).with_suffix(".py").read_text()
        tree = ast.parse(text)
        docstring = docstring or f'"""{ast.get_docstring(tree)}\n"""'
        statements = [s for s in tree.body if isinstance(s, (ast.Import, ast.ImportFrom))]
        for statement in statements:
            source = getattr(statement, "module", "")
            names = {ast.unparse(alias) for alias in statement.names}
            if source == "solo_margins.losses" and names == {f"{loss}_loss_func"}:
                source = f"solo.losses.{loss}"
            source = moved.get(source, source)
            if source != target:
                imports.setdefault(source, set()).update(names)
        bodies.append("\n".join(text.splitlines()[statements[-1].end_lineno :]).strip("\n"))
    text = "\n\n\n".join([f"{docstring}\n\n{written_imports(imports)}", *bodies])
    for ours, theirs in moved.items():
        text = text.replace(ours, theirs)
    return text.replace("CorrectedM", "BaseM") + "\n"


def written_imports(imports: dict[str, set[str]]) -> str:
    """Return import statements from modules and their names; the module "" has modules."""
    of_python: list[str] = []
    of_packages: list[str] = []
    for source, names in sorted(imports.items()):
        if source == "":
            lines = [f"import {name}" for name in sorted(names)]
        else:
            lines = [f"from {source} import {', '.join(sorted(names))}"]
            if len(lines[0]) > 100:
                one_a_line = "".join(f"    {name},\n" for name in sorted(names))
                lines = [f"from {source} import (\n{one_a_line})"]
        for line in lines:
            package = line.split()[1].partition(".")[0]
            if package in sys.stdlib_module_names:
                of_python.append(line)
            else:
                of_packages.append(line)
    # Python wants it first.
    of_python.sort(key=lambda line: "__future__" not in line)
    return "\n".join([*of_python, "", *of_packages]).strip()


def recipe(name: str) -> dict[str, Any]:
    """Return our settings of a method on CIFAR-10, without those that have no effect."""
    with initialize_config_module("solo_margins.configs", version_base=None):
        cfg = compose(name, overrides=["data=cifar10", "data.train_path=./datasets"])
    composed: Any = OmegaConf.to_container(cfg, resolve=True)
    kwargs = composed["method_kwargs"]
    for group in ("schedules", "polarization", "negatives"):
        kwargs.pop(group, None)
    off = vars(Margins())
    kwargs["margins"] = {k: v for k, v in kwargs["margins"].items() if v != off[k]}
    optimizer = composed["optimizer"]
    optimizer["kwargs"] = settings_of_optimizer(optimizer["name"], optimizer["kwargs"])
    for view in composed["augmentations"]:
        # solo-learn normalises by what it knows of the data set.
        view.pop("mean")
        view.pop("std")
    data = {"dataset": "cifar10", "train_path": "./datasets", "val_path": "./datasets"}
    settings = {
        "name": f"{name}-cifar10",
        "method": name,
        # Under this name solo-learn has a network for images of 32 pixels.
        "backbone": {"name": composed["backbone"]["name"].removeprefix("cifar_")},
        "method_kwargs": kwargs,
        "momentum": composed.get("momentum"),
        "data": {**data, "format": "image_folder", "num_workers": 4},
        "augmentations": composed["augmentations"],
        "optimizer": composed["optimizer"],
        "scheduler": composed["scheduler"],
        "checkpoint": {"enabled": True, "dir": "trained_models", "frequency": 1},
        "max_epochs": composed["max_epochs"],
    }
    return {key: value for key, value in settings.items() if value is not None}


def with_line_after(text: str, line: str, added: str, file: str) -> str:
    """Return a text with a line added after another, if it is not there yet."""
    if f"{added}\n" in text:
        return text
    if text.count(f"{line}\n") != 1:
        raise ExportRefused(f"{file} has no line {line.strip()!r}, after which ours belongs.")
    return text.replace(f"{line}\n", f"{line}\n{added}\n")


def files_of(name: str, checkout: Path) -> dict[str, str]:
    """Return the files that a method adds to a checkout or changes there, with their content.

    Raises:
        ExportRefused: the folder is no checkout of solo-learn, or it has the method.
    """
    for needed in IN_A_CHECKOUT:
        if not (checkout / needed).is_file():
            raise ExportRefused(f"{checkout} is no checkout of solo-learn: it has no {needed}.")
    method, parent = METHODS[name], parent_of(name)
    registered = (checkout / METHODS_FILE).read_text()
    if f'"{name}"' in registered or (checkout / f"solo/methods/{name}.py").exists():
        raise ExportRefused(f"{checkout} already has the method {name}.")
    for of_parent, ours in (
        (
            f"from solo.methods.{parent} import {method.parent}",
            f"from solo.methods.{name} import {method.name}",
        ),
        (f'    "{parent}": {method.parent},', f'    "{name}": {method.name},'),
        (f'    "{method.parent}",', f'    "{method.name}",'),
    ):
        registered = with_line_after(registered, of_parent, ours, METHODS_FILE)
    losses = (checkout / LOSSES_FILE).read_text()
    base = parent_of(method.loss)
    for of_parent, ours in (
        (
            f"from solo.losses.{base} import {base}_loss_func",
            f"from solo.losses.{method.loss} import {method.loss}_loss_func",
        ),
        (f'    "{base}_loss_func",', f'    "{method.loss}_loss_func",'),
    ):
        losses = with_line_after(losses, of_parent, ours, LOSSES_FILE)

    settings = recipe(name)
    heads = {key: SMALL_HEADS[key] for key in settings["method_kwargs"] if key in SMALL_HEADS}
    max_epochs = settings.pop("max_epochs")
    written = yaml.safe_dump(settings, sort_keys=False)
    names = {**method._asdict(), "method": name, "parent_name": parent}
    test = Template(TEST).substitute(
        names,
        imported=", ".join(sorted([method.name, method.parent])),
        heads="\n".join(f'        "{key}": {value!r},' for key, value in heads.items()),
    )
    of_losses = [f"losses.{module}" for module in OF_MARGINS]
    loss = method.loss
    base_class = copied([*OF_BASE], "solo.methods.margin_base", loss, BASE_DOCSTRING)
    sources = {
        "solo/losses/margins.py": copied(of_losses, "solo.losses.margins", loss, MARGINS_DOCSTRING),
        f"solo/losses/{loss}.py": copied([f"losses.{base}"], f"solo.losses.{loss}", loss),
        "solo/methods/margin_base.py": base_class,
        f"solo/methods/{name}.py": copied([f"methods.{name}"], f"solo.methods.{name}", loss),
        f"tests/methods/test_{name}.py": test,
    }
    # As in all its files.
    comments = takewhile(lambda line: line.startswith("#") or not line, registered.splitlines())
    licence = "\n".join(comments).strip()
    files = {path: f"{licence}\n\n{text}" for path, text in sources.items()}
    for path, text in files.items():
        if (checkout / path).exists() and (checkout / path).read_text() != text:
            raise ExportRefused(f"{checkout} already has another {path}.")
    files[METHODS_FILE], files[LOSSES_FILE] = registered, losses
    files[f"scripts/pretrain/cifar/{name}.yaml"] = Template(RECIPE).substitute(
        settings=written, max_epochs=max_epochs
    )
    return files


def write(checkout: Path, files: dict[str, str]) -> list[str]:
    """Write the files whose content is new and return their names; if one fails, write none.

    Raises:
        ExportRefused: a file cannot be written; what was written is taken back.
    """
    written: dict[str, str | None] = {}  # names to what was there before
    try:
        for name, text in files.items():
            path = checkout / name
            before = path.read_text() if path.is_file() else None
            if before != text:
                with complete_file(path) as unfinished:
                    unfinished.write_text(text)
                written[name] = before
    except BaseException as error:
        for name, before in written.items():
            if before is None:
                (checkout / name).unlink()
            else:
                (checkout / name).write_text(before)
        if isinstance(error, OSError):
            raise ExportRefused(f"{checkout} cannot be written: {error}.") from error
        raise
    return list(written)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("checkout", type=Path, help="folder of a checkout of solo-learn")
    parser.add_argument("--method", required=True, choices=METHODS, help="which method")
    given = parser.parse_args(arguments)
    try:
        for path in write(given.checkout, files_of(given.method, given.checkout)):
            print(path)
    except ExportRefused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
