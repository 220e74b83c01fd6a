"""A run of a method of ours leaves solo-learn and every other package as they were.

Both programs run in processes of their own, after all modules of solo-learn were imported and their
functions, classes and tables noted. What is another object afterwards is a change. Entries added to
the tables METHODS and _BACKBONES are no change.
"""

import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from solo_margins.versions import host_folder

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.repository

OBSERVED = """
import importlib, json, pkgutil, runpy, sys

import lightning.pytorch, torchmetrics
hooks = list(sys.meta_path)
import solo.methods

PACKAGES = ("solo", "lightning", "torchmetrics", "timm", "hydra", "omegaconf")
for info in pkgutil.walk_packages(solo.__path__, "solo."):
    try:
        importlib.import_module(info.name)
    except Exception:
        pass  # it needs a package that is not installed


def is_foreign(name):
    return name.split(".")[0] in PACKAGES


def noted():
    found = {}
    for name, module in list(sys.modules.items()):
        if not is_foreign(name) or module is None:
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and is_foreign(value.__module__):
                found[value.__module__, value.__qualname__, "__bases__"] = value.__bases__
                for attribute, inner in list(vars(value).items()):
                    kinds = (staticmethod, classmethod, property)
                    is_code = callable(inner) or isinstance(inner, kinds)
                    if is_code and attribute not in ("__doc__", "_abc_impl"):
                        found[value.__module__, value.__qualname__, attribute] = inner
            elif callable(value):
                found[name, key, ""] = value
    return found


def tables():
    return {"METHODS": solo.methods.METHODS, "_BACKBONES": solo.methods.BaseMethod._BACKBONES}


before, tables_before = noted(), {name: (table, dict(table)) for name, table in tables().items()}
classes = {key[:2] for key in before if key[2]}
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    if end.code:
        raise
after = noted()
changed = []
for key, value in before.items():
    if key in after and after[key] is not value and after[key] != value:
        changed.append(key)
changed += [key for key in after if key not in before and key[2] and key[:2] in classes]
for name, (table, entries) in tables_before.items():
    if tables()[name] is not table:
        changed.append([name])
    changed += [[name, key] for key, value in entries.items() if table.get(key) is not value]
    if name == "METHODS":
        changed += [[name, key] for key, value in table.items() if not isinstance(value, type)]
for hook in sys.meta_path:
    # Packages that were imported meanwhile may have hooks of their own.
    if hook not in hooks and type(hook).__module__.startswith(("solo_margins", "hydra_plugins")):
        changed.append([str(hook)])
print(json.dumps(["changed", changed]))
"""

SHORT = [
    "--config-name",
    "mocov3_margin.yaml",
    "accelerator=cpu",
    "data.num_workers=0",
    "max_epochs=1",
    "limit_train_batches=1",
    "limit_val_batches=1",
    "optimizer.batch_size=16",
]


@pytest.mark.parametrize("owner", ["solo-learn", "solo-margins"])
def test_a_run_changes_nothing_of_others(python, tmp_path, owner):
    folder = host_folder().parent if owner == "solo-learn" else ROOT
    out = python("-W", "ignore", "-c", OBSERVED, folder / "main_pretrain.py", *SHORT)
    [line] = [line for line in out.splitlines() if line.startswith('["changed"')]
    assert json.loads(line)[1] == []
    assert list(tmp_path.glob("trained_models/mocov3_margin/*/*.ckpt"))


TWO_STEPS = """
import runpy, sys
import torch
from lightning.pytorch import Trainer

sys.argv = sys.argv[1:]
target = sys.argv.pop()
fit = Trainer.fit


def fit_and_save(self, model, *arguments, **settings):
    fit(self, model, *arguments, **settings)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.save({"state": state, "step": self.global_step}, target)


Trainer.fit = fit_and_save
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_method_of_solo_learns_is_bit_for_bit_what_it_was(python, raw_config, tmp_path):
    cfg = raw_config("mocov3", "backbone.name=resnet18", "max_epochs=1", "limit_train_batches=2")
    cfg.update({"devices": "1", "strategy": "auto", "seed": 3, "limit_val_batches": 1})
    cfg.data.format = "image_folder"
    cfg.checkpoint.enabled = False
    cfg.enable_progress_bar = cfg.enable_model_summary = False
    cfg.hydra = {"output_subdir": None, "run": {"dir": "."}}
    OmegaConf.save(cfg, tmp_path / "own.yaml")
    program = host_folder().parent / "main_pretrain.py"
    arguments = ["--config-path", tmp_path, "--config-name", "own"]
    results = []
    for disabled in ("0", "1"):
        target = tmp_path / f"{disabled}.pt"
        environment = {"SOLO_MARGINS_DISABLE": disabled}
        python("-W", "ignore", "-c", TWO_STEPS, program, *arguments, target, env=environment)
        results.append(torch.load(target, weights_only=True))
    with_plugin, without = results
    assert with_plugin["step"] == without["step"] == 2
    assert with_plugin["state"].keys() == without["state"].keys()
    for name, value in without["state"].items():
        assert torch.equal(with_plugin["state"][name], value), name
