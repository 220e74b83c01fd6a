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
    ("changes", "is_the_same_run"),
    [
        ({"name": "other"}, True),
        ({"resume_from_checkpoint": "half.ckpt", "log_dir": "logs"}, True),
        ({"data__train_path": "/elsewhere"}, True),
        ({"data__num_workers": 0}, True),
        ({"checkpoint__dir": "there"}, True),
        ({"wandb__enabled": True}, True),
        ({"results": "x.jsonl", "skip_finished": True}, True),
        ({"accelerator": "gpu", "strategy": "ddp"}, True),
        ({"devices": [3]}, True),
        ({"seed": 1.0}, True),
        ({"method_kwargs__margins__curvature": ".inf"}, True),
        ({"a_later_setting": None}, True),
        ({"data__on_error": "raise"}, True),
        ({"numerics": {"on_nonfinite": "stop", "max_consecutive_skips": 3}}, True),
        ({"seed": 2}, False),
        ({"variant": "margins"}, False),
        ({"devices": [0, 1]}, False),
        ({"data__name": "cifar100"}, False),
        ({"data__fraction": 0.1}, False),
        ({"method_kwargs__margins__positive_scale": 20.5}, False),
        ({"precision": "16-mixed"}, False),
        ({"limit_train_batches": 3}, False),
        ({"a_later_setting": True}, False),
        ({"data__on_error": "skip"}, False),
        ({"method_kwargs__simulated_ranks": 1}, True),
        ({"method_kwargs__simulated_ranks": 2}, False),
        ({"numerics": {"on_nonfinite": "skip"}}, False),
    ],
)
def test_settings_that_define_a_run(changes, is_the_same_run):
    assert (id_of(changed(**changes)) == id_of(CONFIGURATION)) == is_the_same_run


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
