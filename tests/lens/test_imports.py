"""What the lens needs: no training package for curves and loops, no solo-learn for Lightning."""

import pytest
from PIL import Image

CODE = """
import json, sys
from pathlib import Path
from solo_margins.lens.__main__ import main

import solo_margins.lens

margins = ["margins.angular=0.5", "margins.subtractive=0.2", "margins.curvature=1.5"]
main(["curves", *margins, "output=new/curves.png"])
loaded = sorted({"solo", "hydra", "plotly"} & sys.modules.keys())

sys.modules["solo"] = sys.modules["hydra"] = None
import torch
import lightning.pytorch as pl
from solo_margins.lens import Lens, records
from solo_margins.losses import mocov3_margin_loss_func

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Linear(8, 4)
    def training_step(self, batch, index):
        return mocov3_margin_loss_func(self.backbone(batch[0]), self.backbone(batch[0] + 1))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

images = torch.utils.data.TensorDataset(torch.randn(16, 8))
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
lens = Lens(every=2, folder="run")
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=1, callbacks=[lens], enable_checkpointing=False, **quiet
)
trainer.fit(Module(), torch.utils.data.DataLoader(images, batch_size=4))
run = records.read(Path("run"))
names = [sorted(seen.scalars) for seen in run.observations]
print(json.dumps({"loaded": loaded, "method": run.header["method"], "names": names}))
"""


def test_curves_load_no_solo_learn_and_no_hydra_and_the_callback_neither(answer, tmp_path):
    pytest.importorskip("matplotlib")
    found = answer(CODE)
    assert found["loaded"] == []
    assert found["method"] == "Module"
    first, second = found["names"]
    assert first == second
    assert {"q", "positive_angle", "effective_rank"} <= set(first)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["curves.png"]
    with Image.open(tmp_path / "new" / "curves.png") as picture:
        assert picture.width > 1500
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    # The chosen margins, and the line that says what the subtractive one amounts to.
    assert {(0xC2, 0x41, 0x0C), (0x1D, 0x4E, 0xD8)} <= colours


LOOP = """
import json, sys
for name in ("solo", "hydra", "lightning", "pytorch_lightning"):
    sys.modules[name] = None
import torch
from solo_margins.lens import Lens
from solo_margins.losses import MarginNTXentLoss

model, criterion = torch.nn.Linear(8, 4), MarginNTXentLoss()
of_the_reader = {
    "plotly",
    "jinja2",
    "matplotlib",
    *(
        f"solo_margins.lens.{name}"
        for name in ("curves", "curve_figure", "figures", "runs", "report", "health")
    ),
}
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
    assert {"q", "positive_angle", "effective_rank"} <= set(found["measured"])
    assert found["loaded"] == [], "what observes needs nothing of what reads"
    assert (tmp_path / "lens_curves.png").is_file()
    assert (tmp_path / "report.html").stat().st_size > 1 << 20
