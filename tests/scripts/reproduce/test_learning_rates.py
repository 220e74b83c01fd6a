"""Every cell of every preset trains with the optimiser of its recipe, at that optimiser's rate."""

from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from reproduce import grid
from reproduce.experiments import EXPERIMENTS
from reproduce.study import PRESETS
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg

ADAM_VARIANTS = ("dp", "debiased", "debiased_dp", "hard", "hard_dp")

# Rates of a whole batch: 256 images in the papers (4096 on ImageNet), 128 in the mini preset.
SGD = {"paper": 0.06, "mini": 0.06}
ADAM = {"paper": 1e-3, "mini": 5e-4}
LARS = {
    "mocov3_margin": {"paper": 0.6 * 16, "mini": 0.6 / 2},
    "simclr_margin": {"paper": 0.3 * 16, "mini": 0.3 / 2},
}


def expected(preset, cell):
    if cell.variant in ADAM_VARIANTS or "optimizer=adam" in cell.changes:
        return "adam", ADAM[preset]
    if cell.data == "imagenet":
        return "lars", LARS[cell.method][preset]
    return "sgd", SGD[preset]


def every_cell():
    """Yield every cell, each once: what it changes in ``method_kwargs`` leaves the optimiser."""
    known, seen = set(), set()
    for cell in (entry.cell for experiment in EXPERIMENTS.values() for entry in experiment.entries):
        changes = tuple(c for c in cell.changes if not c.startswith("method_kwargs."))
        cell = replace(cell, changes=changes)
        if cell in known:
            continue
        known.add(cell)
        # For the quick suite one of the small data sets and of the variants with SGD or LARS.
        variant = cell.variant if cell.variant in ADAM_VARIANTS else None
        like = (cell.method, cell.data == "imagenet", variant, changes)
        marks = [pytest.mark.full] if like in seen else []
        seen.add(like)
        name = " ".join((cell.method, cell.data, cell.variant, *changes))
        yield pytest.param(cell, marks=marks, id=name)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    (folder / "class").mkdir()
    (folder / "class" / "image.png").touch()
    return folder


@pytest.mark.parametrize("cell", every_cell())
@pytest.mark.parametrize("preset", PRESETS)
def test_the_rate_is_that_of_the_optimizer(composed, images, preset, cell):
    cfg = composed(
        f"{cell.method}.yaml",
        f"data={cell.data}",
        f"variant={cell.variant}",
        *grid.settings_for(cell, PRESETS[preset]),
        *cell.changes,
        f"data.train_path={images}",
        "data.unlabelled_folder=null",
    )
    OmegaConf.set_struct(cfg, False)
    # Of the images only the batch size counts.
    cfg.data.name, cfg.data.dataset = "folder", "custom"
    optimizer = parse_pretrain_cfg(cfg).optimizer
    name, rate = expected(preset, cell)
    assert (optimizer.name, optimizer.lr) == (name, pytest.approx(rate))
