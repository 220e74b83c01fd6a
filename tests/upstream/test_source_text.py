"""Our sources as solo-learn's, without a checkout: what is written compiles and is its own."""

import ast
import re
from pathlib import Path

import pytest

from solo_margins import host
from solo_margins.host.main_form.repairs import REPAIRS
from solo_margins.registry import OUR_METHODS
from solo_margins.upstream import host_files
from solo_margins.upstream.layout import place_of
from solo_margins.upstream.modules import exported, needed_modules, replaced_losses

METHOD_MODULES = [target.split(":")[0] for target in OUR_METHODS.values()]
NAMES_OF_THE_HOST = [*host.CONTRACT, *host.OTHER_METHODS]
PLACES = {name: f"solo.somewhere.{name.lower()}" for name in NAMES_OF_THE_HOST}


@pytest.fixture(scope="module")
def texts():
    """Return every exported module by its place."""
    return {place_of(module): exported(module, PLACES) for module in needed_modules(METHOD_MODULES)}


def test_no_two_modules_have_one_place(texts):
    assert len(texts) == len(needed_modules(METHOD_MODULES))
    assert {f"solo.methods.{name}" for name in OUR_METHODS} <= texts.keys()


def test_exported_modules_import_only_what_is_exported_or_solo_learns(texts):
    for place, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("solo"):
                is_theirs = node.module.startswith("solo.somewhere.")
                assert is_theirs or node.module in texts, (place, node.module)


def test_exported_modules_use_every_name_that_they_import_and_no_other(texts):
    for place, text in texts.items():
        tree = ast.parse(text)
        imported = {
            alias.asname or alias.name.split(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert imported - used <= {"annotations"}, place


def test_exported_modules_have_no_trace_of_the_plugin(texts):
    for place, text in texts.items():
        assert not re.search(r"solo[_-]margins|\bhost\b|\blens\b|_observation", text), place


def test_a_method_replaces_the_loss_of_its_parent_as_a_member(texts):
    for name, module in zip(OUR_METHODS, METHOD_MODULES, strict=True):
        for loss in replaced_losses(module):
            assert f"def {loss}(self, *args: Any" in texts[f"solo.methods.{name}"]


def test_nothing_needs_a_python_that_solo_learn_does_not_ask_for(texts):
    for place, text in texts.items():
        assert "from __future__ import annotations" in text, place
        assert "strict=True" not in text, place
        assert "ParamSpec" not in text, place


def test_every_repair_has_a_test_of_its_own():
    from solo_margins.upstream.repairs import TESTS

    assert {f"test_{repair.name}.py" for repair in REPAIRS} == {
        path.name for path in TESTS.glob("test_*.py") if path.name != "test_table.py"
    }


def test_the_documentation_lists_every_repair():
    text = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text()
    for repair in REPAIRS:
        assert f"| `{repair.name}` | {repair.symptoms} |" in text


MODULE = '''"""A module."""

import os
from solo.losses.byol import byol_loss_func


class BYOL:
    def training_step(self, x):
        return byol_loss_func(x) + byol_loss_func(x)


METHODS = {
    "base": 1,
    "byol": BYOL,
    "simclr": 2,
}
'''


def test_a_loss_becomes_a_member_once():
    once = host_files.with_loss_as_member(MODULE, "BYOL", "byol_loss_func")
    assert once.count("self.byol_loss_func(x)") == 2
    assert "byol_loss_func = staticmethod(byol_loss_func)" in once
    assert host_files.with_loss_as_member(once, "BYOL", "byol_loss_func") == once
    with pytest.raises(ValueError, match="does not call"):
        host_files.with_loss_as_member(MODULE, "BYOL", "other_loss_func")


def test_an_entry_goes_to_its_place_once():
    once = host_files.with_entry(MODULE, "METHODS", "byol_curv", "BYOLCurv")
    assert '"byol": BYOL,\n    "byol_curv": BYOLCurv,\n    "simclr"' in once
    assert host_files.with_entry(once, "METHODS", "byol_curv", "BYOLCurv") == once


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (("solo.losses.byol", "other"), "from solo.losses.byol import byol_loss_func, other\n"),
        (("solo.losses.aaa", "a"), "from solo.losses.aaa import a\nfrom solo.losses.byol"),
        (("re",), "import os\nimport re\n"),
        (("torch.nn.functional", "", "F"), "import torch.nn.functional as F\n"),
    ],
)
def test_an_import_goes_to_its_place_once(entry, expected):
    once = host_files.with_import(MODULE, *entry)
    ast.parse(once)
    assert expected in once
    assert host_files.with_import(once, *entry) == once
