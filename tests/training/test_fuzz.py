"""Random settings are taken or refused in a sentence; random files are read as far as possible."""

import json
import re
import warnings
from dataclasses import asdict

import pytest
import yaml
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from solo_margins import results
from solo_margins.cli import sentence_of
from solo_margins.lens import records
from solo_margins.training.checked_config import checked_pretraining
from solo_margins.training.pretrain import build_method, parsed_pretraining

FEW = settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

KEYS = [
    "seed",
    "max_epochs",
    "optimizer.lr",
    "optimizer.batch_size",
    "optimizer.name",
    "scheduler.name",
    "scheduler.warmup_epochs",
    "method_kwargs.temperature",
    "method_kwargs.margins",
    "method_kwargs.margins.angular",
    "method_kwargs.margins.subtractive",
    "method_kwargs.margins.positive_scale",
    "method_kwargs.margins.curvature",
    "method_kwargs.margins.attenuation",
    "method_kwargs.margins.attenuation_type",
    "method_kwargs.polarization.lower",
    "method_kwargs.polarization.weight",
    "method_kwargs.schedules.positive_scale.kind",
    "method_kwargs.schedules.positive_scale.epochs",
    "method_kwargs.symmetric",
    "lens.every",
    "lens.on_collapse",
    "backbone.name",
    "data.fraction",
    "precision",
    "accumulate_grad_batches",
]
VALUES = st.one_of(
    st.integers(-3, 300),
    st.floats(-2.0, 50.0),
    st.sampled_from([".inf", ".nan", "null", "true", "I", "II", "linear", "sgd", "lars", "none"]),
    st.sampled_from(
        ["[]", "{}", "[1]", "{a: 1}", "resnet18", "narrow_resnet10", "bf16-mixed", "''"]
    ),
)


@FEW
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3))
@example({"method_kwargs.margins": "{a: 1}"})
def test_settings_are_taken_or_refused_in_a_sentence(raw_config, given_settings):
    cfg = raw_config("mocov3_margin")
    del cfg["devices"], cfg["accelerator"], cfg["performance"]
    for key, value in given_settings.items():
        try:
            OmegaConf.update(cfg, key, yaml.safe_load(str(value)), force_add=True)
        except (OmegaConfBaseException, ValueError):
            # Two settings that exclude each other, such as a list and a name in it.
            reject()
    try:
        build_method(parsed_pretraining(checked_pretraining(cfg)))
    except Exception as error:
        sentence = sentence_of(error)
        assert sentence
        assert "\n" not in sentence
        assert not re.search(r"object at 0x|Traceback", sentence)


LINES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)
GOOD = results.Record("pretrain", {"seed": 1}, "main", {"val_acc1": 50.0})
MUTATED = st.tuples(
    st.integers(0, len(GOOD.to_json())), st.integers(0, len(GOOD.to_json())), st.binary(max_size=4)
).map(lambda cut: GOOD.to_json()[: cut[0]].encode() + cut[2] + GOOD.to_json()[cut[1] :].encode())


@settings(FEW, max_examples=300)
@given(st.lists(st.one_of(LINES, MUTATED), max_size=6))
def test_whatever_lies_in_a_file_of_results_what_is_good_is_read(tmp_path, lines):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join(lines))
    results.append(path, GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = results.read(path)
    assert found[-1] == GOOD
    assert all(isinstance(record.figures, dict) for record in found)


SEEN = records.Observation(3, 0.5, {"q": 0.5}, {"q": records.Histogram(0.0, 1.0, [1, 2])})


@settings(FEW, max_examples=300)
@given(st.lists(LINES, max_size=6), st.dictionaries(st.text(max_size=9), st.integers(), max_size=3))
def test_whatever_lies_in_a_file_of_the_lens_what_is_good_is_read(tmp_path, lines, extra):
    path = tmp_path / records.FILE
    records.begin(path, {"method": "byol_curv"}, first_step=0)
    with open(path, "ab") as file:
        file.write(b"\n".join(lines) + b"\n")
        file.write(json.dumps({"kind": "observation", **extra}).encode() + b"\n")
    records.add(path, "observation", asdict(SEEN))
    found = records.read(tmp_path)
    assert SEEN in found.observations
    assert found.header["method"]


@pytest.mark.full
@settings(FEW, max_examples=2000, derandomize=False)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4))
def test_many_settings_are_taken_or_refused_in_a_sentence(raw_config, given_settings):
    test_settings_are_taken_or_refused_in_a_sentence.hypothesis.inner_test(
        raw_config, given_settings
    )
