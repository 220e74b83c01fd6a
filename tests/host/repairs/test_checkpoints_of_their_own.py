"""Every run has a folder of its own, which holds its last epoch."""

import json

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger
from omegaconf import OmegaConf
from solo.utils.checkpointer import Checkpointer

pytestmark = pytest.mark.filterwarnings("ignore")


def train(folder, max_epochs=1, logger=False, checkpoint=None, **settings):
    cfg = OmegaConf.create({"name": "boring", "seed": 5, "again": "${seed}"})
    checkpointer = Checkpointer(cfg, logdir=folder / "runs", **settings)
    trainer = Trainer(
        max_epochs=max_epochs,
        limit_train_batches=1,
        limit_val_batches=0,
        accelerator="cpu",
        devices=1,
        callbacks=[checkpointer],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(BoringModel(), ckpt_path=checkpoint)
    return checkpointer


def test_runs_with_a_logger_have_folders_of_their_own(tmp_path):
    first, second = (train(tmp_path, logger=CSVLogger(tmp_path / name)) for name in "ab")
    assert first.path != second.path
    assert len(list((tmp_path / "runs").glob("*/*.ckpt"))) == 2


def test_the_last_epoch_is_kept_whatever_the_frequency(tmp_path):
    checkpointer = train(tmp_path, max_epochs=6, frequency=3)
    [saved] = checkpointer.path.glob("*.ckpt")
    assert saved == checkpointer.last_ckpt
    assert torch.load(saved, weights_only=True)["epoch"] == 5
    assert {path.suffix for path in checkpointer.path.iterdir()} == {".ckpt", ".json"}


def test_earlier_checkpoints_can_be_kept(tmp_path):
    checkpointer = train(tmp_path, max_epochs=3, keep_prev=True)
    assert len(list(checkpointer.path.glob("*.ckpt"))) == 3


def test_a_path_can_be_given_on_the_command_line(tmp_path):
    name = train(tmp_path).last_ckpt.name
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    [override] = parser.OverridesParser.create().parse_overrides([f"path={name}"])
    assert override.value() == name


def test_the_configuration_beside_it_is_resolved(tmp_path):
    args = json.loads((train(tmp_path).path / "args.json").read_text())
    assert args == {"name": "boring", "seed": 5, "again": 5, "wandb_run_id": None}
