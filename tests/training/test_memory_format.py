"""Networks that crash in channels-last memory on a CPU are trained and evaluated in contiguous.

Which memory is chosen does not depend on the CPU, and neither do these tests.
"""

import json
from pathlib import Path

import pytest
import torch
from solo.args.pretrain import parse_cfg as parse_pretrain_cfg
from solo.methods import METHODS
from torch import nn

from solo_margins import training
from solo_margins.evaluation.knn import knn
from solo_margins.evaluation.probe import probe
from solo_margins.methods.linear import LinearClassifier
from solo_margins.versions import host_folder

ROOT = Path(__file__).resolve().parents[2]
CONTIGUOUS, CHANNELS_LAST = "contiguous", "channels last"
SAID = "stays in contiguous memory"


def layout(tensor):
    return CONTIGUOUS if tensor.is_contiguous() else CHANNELS_LAST


@pytest.fixture
def layouts():
    """Watch a kind of network: how often which memory its weights and its images had."""
    handles = []

    def watch(kind, expected):
        def look(network, inputs):
            if type(network).__name__ == kind:
                # The layout of a 1x1 kernel says nothing.
                weights = [p for p in network.parameters() if p.ndim == 4 and p.shape[-1] > 1]
                found = {layout(tensor) for tensor in (*weights, *inputs)}
                assert found == {expected}, "before a crash"
                seen.append(found)

        seen = []
        handles.append(nn.modules.module.register_module_forward_pre_hook(look))
        return seen

    yield watch
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize(
    ("backbone", "kwargs", "kind", "expected"),
    [
        ("narrow_resnet10", "{width: 8}", "NarrowResNet", CONTIGUOUS),
        ("narrow_resnet10", "{width: 16}", "NarrowResNet", CHANNELS_LAST),
        ("timm/repvgg_a0", "{}", "ByobNet", CONTIGUOUS),  # the images have 3 channels
    ],
)
def test_from_pretraining_to_the_probes(
    backbone, kwargs, kind, expected, layouts, config, linear_config, recwarn
):
    seen = layouts(kind, expected)
    short = ["max_epochs=1", "limit_train_batches=1", "limit_val_batches=1"]
    network = [f"backbone.name={backbone}", f"backbone.kwargs={kwargs}"]
    trained = training.pretrain(config("method=mocov3_margin", *network, *short))
    for finetune in ("false", "true"):
        training.linear(linear_config(trained.checkpoint, f"finetune={finetune}", *short))
    given = [f"pretrained_feature_extractor={trained.checkpoint}", "data.num_workers=0"]
    probe([*given, "max_epochs=1", "passes=1", "optimizer.batch_size=8"], progress=False)
    knn([*given, "k=2"], progress=False)
    # Student and teacher on two views and a validation batch; probes; features of both parts.
    assert len(seen) >= 6 + 2 * 2 + 2 * 2
    said = [w for w in recwarn if SAID in str(w.message)]
    assert bool(said) == (expected == CONTIGUOUS)


def test_nothing_changes_on_a_gpu(raw_config, recwarn):
    settings = ["backbone.name=narrow_resnet10", "backbone.kwargs.width=8"]
    settings += ["accelerator=gpu", "performance.disable_channel_last=false"]
    cfg = parse_pretrain_cfg(raw_config("mocov3_margin", *settings))
    method = METHODS["mocov3_margin"](cfg)
    classifier = LinearClassifier(method.backbone, cfg)
    assert not method.no_channel_last
    assert not classifier.no_channel_last
    assert not cfg.performance.disable_channel_last
    assert not [w for w in recwarn if SAID in str(w.message)]


PROGRAM = """
import json, runpy, sys
from torch import nn

sys.stderr = sys.stdout
seen = set()

def look(network, inputs):
    if type(network).__name__ == "NarrowResNet":
        seen.update(tensor.is_contiguous() for tensor in (network.conv1.weight, *inputs))

nn.modules.module.register_module_forward_pre_hook(look)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps(sorted(seen)))
"""
"""Runs the program that it is given and tells whether images and weights were contiguous."""


@pytest.mark.parametrize("programs", [ROOT, host_folder().parent], ids=["ours", "solo-learn's"])
def test_programs_train_and_say_so_once(programs, python, image_folder, tmp_path):
    if not (programs / "main_pretrain.py").exists():
        pytest.skip("the host has no programs")
    shared = ["data=folder", f"data.train_path={image_folder / 'train'}"]
    shared += [f"data.val_path={image_folder / 'val'}", f"checkpoint.dir={tmp_path / 'runs'}"]
    shared += ["data.num_workers=0", "optimizer.batch_size=8", "max_epochs=1", "accelerator=cpu"]
    network = ["backbone.name=narrow_resnet10", "+backbone.kwargs.width=4", "image.size=64"]
    small = ["method_kwargs.proj_hidden_dim=16", "scheduler.warmup_epochs=0"]

    def run(program, config, *settings):
        command = [programs / program, "--config-name", config]
        out = python("-c", PROGRAM, *command, *shared, *settings)
        assert json.loads(out.splitlines()[-1]) == [True], "contiguous"
        assert out.count(SAID) == 1, out

    run("main_pretrain.py", "simclr_margin.yaml", *network, *small)
    [checkpoint] = (tmp_path / "runs" / "simclr_margin").rglob("*.ckpt")
    assert torch.load(checkpoint, weights_only=True)["global_step"] == 36 // 8
    if programs == ROOT:
        # solo-learn's own program probes with its own classifier.
        named = f"pretrained_feature_extractor={checkpoint}"
        run("main_linear.py", "linear.yaml", named, "finetune=true")
