"""What the lens needs: no training package for curves and loops."""

import pytest

LOOP = """
import json, sys
for name in ("solo", "hydra", "lightning", "pytorch_lightning"):
    sys.modules[name] = None
import torch
from solo_margins.lens import Lens
from solo_margins.losses import MarginNTXentLoss

model, criterion = torch.nn.Linear(8, 4), MarginNTXentLoss()
modules = ("curves", "curve_figure", "figures", "runs", "report", "health")
of_the_reader = {"plotly", "jinja2", "matplotlib"}
of_the_reader |= {f"solo_margins.lens.{name}" for name in modules}
lens = Lens(folder="run", every=2, backbone=model)
for step in range(4):
    with lens.recording(model):
        criterion(*map(model, torch.randn(2, 8, 8))).backward()
lens.finish()
loaded = sorted(of_the_reader & sys.modules.keys())

from solo_margins.lens.__main__ import main

main(["advise", "run"])
main(["report", "run", "output=report.html"])
main(["curves"])
print(json.dumps({"loaded": loaded, "measured": sorted(lens.last.scalars)}))
"""


def test_a_loop_and_the_commands_need_neither_solo_learn_nor_hydra_nor_lightning(answer, tmp_path):
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    found = answer(LOOP)
    assert {"q", "positive_angle", "rankme"} <= set(found["measured"])
    assert found["loaded"] == [], "what observes needs nothing of what reads"
    assert (tmp_path / "lens_curves.png").is_file()
    assert (tmp_path / "report.html").stat().st_size > 1 << 20
