"""solo-learn's own, untouched programs: solo-learn loads, saves, logs; a method brings its own."""

import json

import pytest
import torch

from solo_margins.files import digits_folder
from solo_margins.versions import form, host_folder

PROGRAMS = host_folder().parent
PRETRAIN, LINEAR = PROGRAMS / "main_pretrain.py", PROGRAMS / "main_linear.py"

pytestmark = pytest.mark.skipif(
    form() != "main" or not PRETRAIN.is_file(), reason="solo-learn's release has no programs"
)

QUIET = ["accelerator=cpu", "data.num_workers=0"]
OURS = ["--config-name", "mocov3_margin.yaml", *QUIET]
SHORT = ["optimizer.batch_size=16", "limit_train_batches=2", "limit_val_batches=0", "max_epochs=1"]
SHORT += ["scheduler.warmup_epochs=0", "+num_sanity_val_steps=0"]

OBSERVED = """
import gc, runpy, sys
sys.argv = sys.argv[1:]
gc.disable()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    from lightning.pytorch import Trainer
    (trainer,) = (x for x in gc.get_objects() if type(x) is Trainer)
    print("Data:", type(trainer.datamodule).__name__, type(trainer.train_dataloader).__name__)
    print("Callbacks:", *(type(callback).__name__ for callback in trainer.callbacks))
"""
"""Runs a program of solo-learn's as it is, and then says what its trainer had."""


def test_our_configuration_trains_and_its_checkpoint_is_probed(start, finish, own, tmp_path):
    lens = ["lens.enabled=true", "lens.every=1"]
    parts = "method_kwargs.simulated_ranks=2"
    run = finish(start("-c", OBSERVED, PRETRAIN, *OURS, *SHORT, *lens, parts))
    assert run.code == 0, run.err
    assert "Data: NoneType DataLoader\n" in run.out
    (callbacks,) = (line for line in run.out.splitlines() if line.startswith("Callbacks: "))
    assert {"Checkpointer", "Lens", "MarginRunCheck"} <= set(callbacks.split())
    ours = {"InterruptGuard", "NonFiniteGuard", "RunCheckpointer", "SeededSteps", "ClosingReport"}
    assert not ours & set(callbacks.split())
    (checkpoint,) = tmp_path.glob("trained_models/mocov3_margin/*/*.ckpt")
    assert (checkpoint.parent / "lens.jsonl").is_file()
    trained = torch.load(checkpoint, weights_only=True)
    assert trained["global_step"] == 2

    args = json.loads((checkpoint.parent / "args.json").read_text())
    assert args["data"]["val_path"] is None, "solo-learn would show 16-pixel images at 224"
    # Values, not references to them.
    assert args["method_kwargs"]["margins"]["angular"] == 0.1
    assert args["optimizer"]["name"] == "sgd"
    assert "variant=margins sets " in run.out
    probe = [
        *("--config-name", "linear.yaml", *QUIET, *SHORT),
        # The name of solo-learn's checkpoints has a =, which Hydra's grammar wants quoted.
        f"pretrained_feature_extractor='{checkpoint}'",
        f"data.train_path={args['data']['train_path']}",
        # solo-learn's own program has trained without validation images.
        f"data.val_path={digits_folder('val')}",
        *("data.dataset=custom", "data.format=image_folder", "data.num_workers=0"),
    ]
    probed = finish(start(LINEAR, *probe))
    assert probed.code == 0, probed.err
    (classifier,) = tmp_path.glob("trained_models/linear/*/*.ckpt")
    kept = torch.load(classifier, weights_only=True)["state_dict"]
    key = "backbone.conv1.weight"
    assert torch.equal(trained["state_dict"][key], kept[key])


def test_a_variant_with_another_optimizer_trains(start, finish, tmp_path):
    """The momentum of the data set's SGD is left out."""
    run = finish(start(PRETRAIN, *OURS, *SHORT, "variant=hard_dp"))
    assert run.code == 0, run.err
    (checkpoint,) = tmp_path.glob("trained_models/mocov3_margin/*/*.ckpt")
    (optimizer,) = torch.load(checkpoint, weights_only=True)["optimizer_states"]
    assert all("exp_avg" in state for state in optimizer["state"].values())


def test_an_undefined_variant_is_said(start, finish):
    run = finish(start(PRETRAIN, *OURS, *SHORT, "variant=curv"))
    assert run.code == 1
    assert "variant=curv is not defined for mocov3_margin on digits: choose one of" in run.err


def test_a_method_of_solo_learns_own_runs_as_without_us(start, finish, own):
    run = finish(start("-c", OBSERVED, PRETRAIN, *own))
    assert run.code == 0, run.err
    assert "Callbacks: Checkpointer TQDMProgressBar ModelSummary\n" in run.out


def test_the_lens_in_a_users_own_configuration(start, finish, own, tmp_path):
    added = ("+lens.enabled=true", "+method_kwargs.simulated_ranks=2")
    run = finish(start(PRETRAIN, *own, "method=mocov3_margin", *added))
    assert run.code == 0, run.err
    (checkpoint,) = tmp_path.glob("trained_models/mocov3_margin/*/*.ckpt")
    assert (checkpoint.parent / "lens.jsonl").is_file()


def test_what_our_method_refuses_is_one_sentence(start, finish):
    run = finish(start(PRETRAIN, *OURS, *SHORT, "method_kwargs.margins.angular=7"))
    assert run.code == 1
    assert "Traceback" not in run.err
    assert "method_kwargs.margins.angular must be a number in" in run.err
