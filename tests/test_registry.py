"""Our methods appear in solo-learn's table when they are registered, and hide nobody's."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from solo.methods import METHODS
from solo.methods.base import BaseMethod

import solo_margins
from solo_margins import registry
from solo_margins.backbones import BACKBONES
from solo_margins.method_names import ALIASES
from solo_margins.versions import form, host_folder

ROOT = Path(__file__).resolve().parents[1]
# Release 1.0.2 is adapted for these alone.
ON_THE_RELEASE = {"mocov3_margin", "simclr_margin", "byol_curv"}
AVAILABLE = set(registry.METHOD_NAMES) if form() == "main" else ON_THE_RELEASE
HEAVY = ("torch", "solo", "lightning", "pytorch_lightning", "hydra", "omegaconf", "timm")

TRY = """
import solo_margins
try:
    solo_margins.register()
except ImportError as error:
    print(error)
"""


def test_importing_the_package_imports_nothing_heavy_and_adds_no_hook(answer):
    loaded, hooks = answer(
        "import json, sys; before = list(sys.meta_path);"
        "import solo_margins, solo_margins.versions;"
        f"loaded = [m for m in {HEAVY!r} if m in sys.modules];"
        "print(json.dumps([loaded, len(sys.meta_path) - len(before)]))"
    )
    assert (loaded, hooks) == ([], 0)


def test_the_form_is_found_without_importing_solo_learn(answer):
    found, loaded = answer(
        "import json, sys; from solo_margins.versions import form;"
        "print(json.dumps([form(), 'solo' in sys.modules]))"
    )
    assert found == form()
    assert not loaded


@pytest.mark.parametrize(
    "code",
    [
        "import solo_margins; solo_margins.register()",
        "import solo_margins.methods",
        "from solo_margins.methods.mocov3_margin import MoCoV3Margin",
    ],
)
def test_registration_adds_all_of_our_methods(answer, code):
    found = answer(
        f"{code}\nimport json\nfrom solo.methods import METHODS\nprint(json.dumps(list(METHODS)))"
    )
    assert set(registry.METHOD_NAMES) & set(found) == AVAILABLE
    assert {"simclr", "byol", "mocov3"} <= set(found)


def test_other_names_are_the_same_methods():
    aliases = {alias for alias, name in ALIASES.items() if name in AVAILABLE}
    assert aliases == ALIASES.keys() & METHODS.keys()
    assert "byol_margin" in aliases
    for alias in aliases:
        assert METHODS[alias] is METHODS[ALIASES[alias]]
        assert registry.method_class(alias) is METHODS[alias]


def test_the_tables_hold_classes_and_constructors():
    assert METHODS.keys() >= AVAILABLE
    assert all(isinstance(METHODS[name], type) for name in METHODS)
    for name in AVAILABLE:
        assert METHODS[name].__module__ == f"solo_margins.methods.{name}"
        assert registry.method_class(name) is METHODS[name]
    assert BACKBONES.keys() <= BaseMethod._BACKBONES.keys()
    assert type(METHODS) is type(BaseMethod._BACKBONES) is dict


def test_a_second_registration_changes_nothing():
    methods, backbones = dict(METHODS), dict(BaseMethod._BACKBONES)
    solo_margins.register()
    assert (methods, backbones) == (METHODS, BaseMethod._BACKBONES)


def test_a_foreign_method_of_our_name_is_an_error(monkeypatch):
    class Stranger:
        pass

    monkeypatch.setitem(METHODS, "byol_curv", Stranger)
    monkeypatch.delitem(METHODS, "mocov3_margin")
    for _ in range(2):
        with pytest.raises(registry.MethodNameClashError, match=r"'byol_curv'.*Stranger"):
            registry.register()
    assert METHODS["byol_curv"] is Stranger
    assert "mocov3_margin" not in METHODS


def test_an_unknown_method_is_refused_with_a_list():
    with pytest.raises(ValueError, match="mocov3_margin"):
        registry.method_class("nonsense")


def isolated(python, code, *folders):
    """Run Python with the standard library and the given folders alone."""
    paths = [str(folder) for folder in folders]
    return python("-I", "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}").strip()


def test_without_solo_learn_one_sentence_says_how_to_install_it(python):
    message = isolated(python, TRY, ROOT)
    assert "pip install --no-deps solo-learn==1.0.2" in message
    assert message.startswith("solo-learn is not installed")
    assert len(message.splitlines()) == 1


def test_without_packages_for_training_one_sentence_names_the_extra(python, tmp_path):
    (tmp_path / "solo").symlink_to(host_folder())
    message = isolated(python, TRY, ROOT, tmp_path)
    [named] = re.findall(r"^solo-learn needs (\w+), which is not installed: run ", message)
    assert find_spec(named), "installed here, but not in that process"
    assert message.endswith('`pip install ".[train]"` in the folder of solo-margins.')


def test_a_foreign_package_called_solo_is_left_alone_and_named(python, tmp_path):
    (tmp_path / "solo").mkdir()
    (tmp_path / "solo" / "__init__.py").write_text("answer = 42")
    message = isolated(
        python, f"import solo_margins, solo\nassert solo.answer == 42\n{TRY}", tmp_path, ROOT
    )
    assert str(tmp_path / "solo") in message
    assert "not a supported solo-learn" in message


PLUGIN = """
import json, sys
{before}
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
path = ConfigSearchPathImpl()
for plugin in Plugins.instance().discover(SearchPathPlugin):
    if plugin.__name__ == "SoloMarginsSearchPathPlugin":
        plugin().manipulate_search_path(path)
methods = sys.modules.get("solo.methods")
registered = methods is not None and "mocov3_margin" in methods.METHODS
found = any("solo_margins" in str(element.path) for element in path.get_path())
print(json.dumps([registered, found, "torch" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        # Another application of Hydra.
        ("", [False, False, False]),
        ("import solo_margins", [False, True, False]),
        pytest.param("import solo.methods", [True, True, True], marks=pytest.mark.repository),
    ],
)
def test_the_plugin_registers_in_programs_of_solo_learn_alone(answer, before, expected):
    assert answer(PLUGIN.format(before=before)) == expected


@pytest.mark.repository
def test_the_plugin_can_be_switched_off(answer):
    code = PLUGIN.format(before="import solo.methods")
    assert answer(code, env={"SOLO_MARGINS_DISABLE": "1"})[:2] == [False, False]
    assert answer(code, env={"SOLO_MARGINS_DISABLE": "0"})[:2] == [True, True]


@pytest.mark.repository
def test_a_fork_that_lacks_a_parent_runs_its_own_methods_and_is_told(python, tmp_path):
    """The plugin says in one sentence what is missing, and ends nothing."""
    before = (
        "import warnings, solo.methods\n"
        "sys.modules['solo.methods.wmse'] = None\n"
        "warnings.showwarning = lambda message, *_: print(message)"
    )
    out = python("-c", PLUGIN.format(before=before))
    assert "solo.methods.wmse" in out
    assert json.loads(out.splitlines()[-1])[:2] == [False, True]
