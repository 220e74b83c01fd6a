"""The export as a user runs it, on a copy of a real checkout."""

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml
from solo_margins.host.repairs import load

from solo_margins.registry import OUR_METHODS

REPAIRS = load()

PROJECT = Path(__file__).resolve().parents[2]
STEPS = 2


@pytest.fixture(scope="module")
def export():
    """Run the script in this process and return its exit code."""
    path = PROJECT / "scripts" / "export_upstream.py"
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("export_upstream", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield lambda *arguments: module.main([str(argument) for argument in arguments])
    sys.path.remove(str(path.parent))


def test_it_shows_writes_and_then_has_nothing_to_do(checkout, status, export, capsys):
    assert export(checkout, "--diff") == 0
    shown = capsys.readouterr().out
    assert not status()
    assert "+class MoCoV3Margin(OneDirection, MoCoV3):" in shown
    assert "+            query, key, temperature, self.margins, **self.neg" in shown

    assert export(checkout) == 0
    written = set(capsys.readouterr().out.split())
    assert {line[3:] for line in status()} == written
    for name in OUR_METHODS:
        assert f"tests/methods/test_{name}.py" in written
        assert f"scripts/pretrain/cifar/{name}.yaml" in written
    for path in written:
        text = (checkout / path).read_text()
        assert "solo_margins" not in text
        assert "solo-margins" not in text
        if path.endswith(".py"):
            assert "solo-learn development team" in text.splitlines()[0], path
            assert all(len(line) <= 100 for line in text.splitlines()), path

    assert export(checkout) == 0
    assert "nothing to write" in capsys.readouterr().out
    assert {line[3:] for line in status()} == written


def test_one_method_brings_what_it_needs_and_no_other(checkout, status, export):
    assert export(checkout, "--method", "byol_curv") == 0
    written = {line[3:] for line in status()}
    assert "solo/losses/byol_curv.py" in written
    assert not [path for path in written if "mocov3" in path or "simclr" in path]
    assert not [path for path in written if "engine" in path or "lens" in path]


def test_a_recipe_names_its_paper_settings(checkout, export):
    assert export(checkout, "--method", "mocov3_margin") == 0
    folder = checkout / "scripts/pretrain/cifar"
    recipe = yaml.safe_load((folder / "mocov3_margin.yaml").read_text())
    assert recipe["method_kwargs"]["margins"] == {"positive_scale": 20.0, "curvature": 0.7}
    assert recipe["backbone"] == {"name": "resnet18"}
    assert recipe["data"]["dataset"] == "cifar10"
    views = next(d["augmentations"] for d in recipe["defaults"] if "augmentations" in d)
    assert len(yaml.safe_load((folder / "augmentations" / views).read_text())) == 2


def test_uncommitted_work_is_safe(checkout, status, export, capsys):
    readme = checkout / "README.md"
    readme.write_text(readme.read_text() + "my work\n")
    before = status()
    assert export(checkout) == 1
    assert "uncommitted changes, for example in README.md" in capsys.readouterr().err
    assert status() == before
    assert export(checkout, "--dirty", "--method", "simsiam_curv") == 0
    assert "my work" in readme.read_text()


def test_wrong_names_and_folders_are_said(checkout, status, export, tmp_path, capsys):
    for arguments, sentence in (
        ((tmp_path,), "is not a checkout of solo-learn's repository"),
        ((checkout, "--method", "mocov4"), "--method mocov4 is not one of ours"),
        ((checkout, "--repair", "everything"), "--repair everything is not one of ours"),
    ):
        assert export(*arguments) == 1
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert captured.err.count("\n") == 1
    assert not status()


def test_repairs_fit_together_and_twice(checkout, status, export, capsys):
    names = [repair.name for repair in REPAIRS]
    for name in names:
        assert export(checkout, "--dirty", "--repair", name) == 0
    written = status()
    capsys.readouterr()
    assert export(checkout, "--repair", *names) == 0
    assert "nothing to write" in capsys.readouterr().out
    assert status() == written
    for line in written:
        if line.endswith(".py"):
            compile((checkout / line[3:]).read_text(), line, "exec")


def run_tests(python, folder, *arguments):
    """Run the checkout's own tests without this plugin and return what happened to each."""
    # Whatever fails is told by its outcome, not by an exit code.
    output = python(
        "-c",
        "import sys, pytest; pytest.main(sys.argv[1:])",
        "-rA",
        "--tb=short",
        "--continue-on-collection-errors",
        "-p",
        "no:cacheprovider",
        *arguments,
        cwd=folder,
        timeout=3000,
        env={"PYTHONPATH": str(folder), "SOLO_MARGINS_DISABLE": "1", "OMP_NUM_THREADS": "1"},
    )
    outcomes = {}
    for line in output.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR", "XFAIL") and "::" in rest:
            outcomes[rest.split(" - ")[0]] = outcome
    assert outcomes, output
    return outcomes


@pytest.mark.full
def test_all_repairs_together_make_their_tests_pass(checkout, export, python):
    for repair in REPAIRS:
        assert export(checkout, "--dirty", "--repair", repair.name) == 0
    files = sorted(path for r in REPAIRS for path in checkout.rglob(f"tests/*/test_{r.name}.py"))
    assert len(files) == len(REPAIRS)
    after = run_tests(python, checkout, *files)
    assert set(after.values()) == {"PASSED"}, after


@pytest.mark.full
@pytest.mark.parametrize("repair", [repair.name for repair in REPAIRS])
def test_a_test_needs_its_repair_and_no_other(repair, checkout, export, python, undo_sources):
    assert export(checkout, "--repair", repair) == 0
    (test,) = checkout.rglob(f"tests/*/test_{repair}.py")
    repaired = run_tests(python, checkout, test)
    assert set(repaired.values()) == {"PASSED"}, repaired
    undo_sources()
    assert "FAILED" in run_tests(python, checkout, test).values()


@pytest.mark.full
def test_the_checkouts_own_tests_and_the_new_ones_pass(checkout, export, python):
    areas = [checkout / "tests" / area for area in ("losses", "methods", "utils", "args")]
    before = run_tests(python, checkout, *areas)
    assert export(checkout) == 0
    after = run_tests(python, checkout, *areas)
    assert {name for name, outcome in before.items() if outcome == "PASSED"} <= {
        name for name, outcome in after.items() if outcome == "PASSED"
    }
    new = {name: outcome for name, outcome in after.items() if name not in before}
    assert len(new) >= 3 * len(OUR_METHODS)
    assert set(new.values()) == {"PASSED"}, new


TRAINING = """
import os
import sys
import torch
from lightning.pytorch import Trainer, seed_everything
from omegaconf import OmegaConf

configurations, results = sys.argv[1:]
if {plugin}:
    from solo.methods import METHODS
    METHODS = METHODS
    # The table holds what imports a method when it is first used.
    assert METHODS["byol_curv"].__mro__[0].__module__ == "solo_margins.methods.byol_curv"
else:
    from solo.methods import METHODS
    assert "solo_margins" not in sys.modules

# In float64 the plain form of a loss and the engine do not drift apart.
torch.set_default_dtype(torch.float64)


class Tiny(torch.nn.Sequential):
    num_features = 32

    def __init__(self, method):
        layers = []
        for inputs, outputs in ((3, 16), (16, 32)):
            layers.append(torch.nn.Conv2d(inputs, outputs, 3, stride=2))
            layers += [torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]
        super().__init__(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


METHODS["byol"]._BACKBONES["tiny"] = Tiny
weights = {{}}
for name, settings in OmegaConf.load(configurations).items():
    seed_everything(1)
    method = METHODS[settings.method](settings)
    generator = torch.Generator().manual_seed(2)
    size = (2, 8, 3, 16, 16)
    images = [torch.randn(size, generator=generator).double() for _ in range({steps})]
    data = [
        (torch.arange(8) + 8 * i, [views[0], views[1]], torch.arange(8) % 4)
        for i, views in enumerate(images)
    ]

    class Loader(list):
        dataset = range(8 * {steps})

    trainer = Trainer(
        default_root_dir=os.path.dirname(results),
        max_epochs=2,
        accelerator="cpu",
        precision="64-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(method, Loader(data))
    weights[name] = method.state_dict()
torch.save(weights, results)
"""


@pytest.mark.full
def test_exported_methods_train_to_the_weights_of_ours(checkout, original, export, python):
    import torch
    from method_parents import PARENTS
    from omegaconf import OmegaConf

    # The plugin repairs solo-learn too: two methods have a rate that a repair keeps as it was set.
    repairs = [repair.name for repair in REPAIRS]
    assert export(checkout, "--method", *OUR_METHODS, "--repair", *repairs) == 0
    folder = checkout.parent
    settings = {name: _small(name, overrides) for name, (_, overrides) in PARENTS.items()}
    # solo-learn chooses the variant of a ViT by the name of the method.
    vit = ["backbone.name=vit_tiny", "backbone.kwargs={img_size: 16, patch_size: 8}"]
    settings["vit"] = _small("mocov3_margin", vit)
    OmegaConf.save(settings, folder / "settings.yaml")
    weights = []
    # The plugin on solo-learn as it is, what was exported, and the plugin beside that.
    for place, (plugin, source) in enumerate(
        [(True, original), (False, checkout), (True, checkout)]
    ):
        program = folder / f"training_{place}.py"
        program.write_text(TRAINING.format(plugin=plugin, steps=STEPS))
        paths = f"{source}:{PROJECT}" if plugin else str(source)
        python(
            program,
            folder / "settings.yaml",
            folder / f"{place}.pt",
            timeout=900,
            env={
                "PYTHONPATH": paths,
                "SOLO_MARGINS_DISABLE": "" if plugin else "1",
                "OMP_NUM_THREADS": "1",
            },
        )
        weights.append(torch.load(folder / f"{place}.pt", weights_only=True))
    ours, *others = weights
    for other in others:
        assert other.keys() == ours.keys() == {*OUR_METHODS, "vit"}
        for name, state in ours.items():
            assert state.keys() == other[name].keys(), name
            for key, value in state.items():
                torch.testing.assert_close(
                    other[name][key], value, rtol=1e-9, atol=1e-9, msg=f"{name}: {key}"
                )


def _small(name, overrides):
    """Return settings of a short training with margins."""
    from omegaconf import OmegaConf

    kwargs = {
        "proj_hidden_dim": 16,
        "proj_output_dim": 8,
        "pred_hidden_dim": 16,
        "temperature": 0.2,
        "margins": {"angular": 0.1, "subtractive": 0.2, "positive_scale": 2.0, "curvature": 1.0},
        "polarization": {"weight": 1.0, "lower": 0.2, "upper": 0.6},
    }
    if name.endswith("_margin"):
        kwargs["schedules"] = {"temperature": {"kind": "alignment", "factor": 0.8}}
    if name in ("simclr_margin", "mocov3_margin", "mocov2plus_margin", "nnclr_margin"):
        kwargs["negatives"] = {"kind": "hard"}
    cfg = OmegaConf.create(
        {
            "name": "small",
            "method": name,
            "backbone": {"name": "tiny", "kwargs": {}},
            "method_kwargs": kwargs,
            "momentum": {"base_tau": 0.9, "final_tau": 1.0, "classifier": False},
            "data": {
                "dataset": "cifar10",
                "num_classes": 4,
                "num_large_crops": 2,
                "num_small_crops": 0,
            },
            "optimizer": {
                "name": "sgd",
                "batch_size": 8,
                "lr": 0.05,
                "classifier_lr": 0.1,
                "weight_decay": 0.0,
                "kwargs": {"momentum": 0.9},
            },
            "scheduler": {"name": "warmup_cosine", "warmup_epochs": 1},
            "max_epochs": 2,
            "devices": [0],
            "num_nodes": 1,
        }
    )
    cfg.merge_with_dotlist(overrides)
    cfg.max_epochs = 2
    return cfg


def test_the_documentation_lists_every_repair():
    text = (PROJECT / "docs" / "upstream.md").read_text()
    for repair in REPAIRS:
        assert f"| `{repair.name}` | {repair.symptoms} |" in text
