"""Which settings define a run, and the id that is made of them."""

import json
import math
import subprocess
import sys

import pytest

from solo_margins.same_run import defining_settings, run_id

CONFIGURATION = {
    "name": "study",
    "method": "mocov3_margin",
    "method_kwargs": {"margins": {"positive_scale": 20, "curvature": math.inf}},
    "data": {"name": "cifar10", "train_path": "/a", "dataset": "cifar10", "num_workers": 4},
    "optimizer": {"lr": 0.06, "kwargs": {"momentum": 0.9}},
    "variant": "pos",
    "seed": 1,
    "devices": "1",
    "gradient_clip_val": None,
    "checkpoint": {"dir": "here"},
}


def changed(**changes):
    cfg = json.loads(json.dumps(CONFIGURATION))
    for key, value in changes.items():
        *parents, last = key.split("__")
        part = cfg
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value
    return cfg


def id_of(configuration, kind="pretrain", host="main"):
    return run_id(kind, host, defining_settings(configuration))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"resume_from_checkpoint": "half.ckpt", "log_dir": "logs"},
        {"data__train_path": "/elsewhere"},
        {"data__dataset": "custom"},
        {"data__num_workers": 0},
        {"checkpoint__dir": "there"},
        {"wandb__enabled": True},
        {"results": "x.jsonl", "skip_finished": True},
        {"accelerator": "gpu", "strategy": "ddp"},
        {"devices": [3]},
        {"seed": 1.0},
        {"method_kwargs__margins__curvature": ".inf"},
        {"a_later_setting": None},
        {"backbone": {"kwargs": {}}},
        {"data__on_error": "raise"},
        {"numerics": {"on_nonfinite": "stop", "max_consecutive_skips": 3}},
    ],
)
def test_ignored_settings_do_not_change_the_id(changes):
    assert id_of(changed(**changes)) == id_of(CONFIGURATION)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"variant": "margins"},
        {"devices": [0, 1]},
        {"data__name": "cifar100"},
        {"data__fraction": 0.1},
        {"method_kwargs__margins__positive_scale": 20.5},
        {"precision": "16-mixed"},
        {"limit_train_batches": 3},
        {"a_later_setting": True},
        {"data__on_error": "skip"},
        {"numerics": {"on_nonfinite": "skip"}},
    ],
)
def test_every_other_setting_changes_the_id(changes):
    assert id_of(changed(**changes)) != id_of(CONFIGURATION)


def test_kind_and_version_of_the_host_change_the_id():
    ids = {id_of(CONFIGURATION, kind, host) for kind in ("a", "b") for host in ("main", "pypi")}
    assert len(ids) == 4


def test_the_order_of_settings_does_not_matter():
    assert id_of(dict(reversed(CONFIGURATION.items()))) == id_of(CONFIGURATION)


def test_a_folder_without_a_name_is_known_by_its_path():
    here, there = (changed(data__name="folder", data__train_path=path) for path in ("/a", "/b"))
    assert id_of(here) != id_of(there)


def test_neither_torch_nor_the_host_is_needed():
    code = (
        "import sys, solo_margins.same_run; "
        "found = {'torch', 'solo', 'omegaconf', 'lightning'} & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_batch_is_not_all_of_them():
    one, every = ({"limit_train_batches": limit} for limit in (1, 1.0))
    assert defining_settings(one) != defining_settings(every)
    assert defining_settings({"accumulate_grad_batches": 1}) == {"accumulate_grad_batches": 1}
