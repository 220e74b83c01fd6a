"""Our methods appear in the host's table, cheaply, once, and without hiding anybody's."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from solo.methods import METHODS
from solo.methods.base import BaseMethod

from solo_margins import registry
from solo_margins.methods.linear import LinearClassifier
from solo_margins.methods.online_knn import OnlineKNN
from solo_margins.versions import form, host_folder

ROOT = Path(__file__).resolve().parents[2]
# Release 1.0.2 is adapted for these alone.
ON_THE_RELEASE = {"mocov3_margin", "simclr_margin", "byol_curv"}
AVAILABLE = set(registry.OUR_METHODS) if form() == "main" else ON_THE_RELEASE
ONLY_ON_MAIN = {"gather", "use_classification_transforms"}
HEAVY = ("torch", "solo", "lightning", "pytorch_lightning", "hydra", "omegaconf", "timm")


def test_importing_the_package_imports_nothing_heavy(answer):
    loaded = answer(
        "import json, sys, solo_margins, solo_margins.host;"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert loaded == []


def test_the_version_is_found_without_importing_it(answer):
    version, loaded = answer(
        "import json, sys; from solo_margins import host;"
        "print(json.dumps([form(), 'solo' in sys.modules]))"
    )
    assert version == form()
    assert not loaded


IMPORTS = """
import json, sys

def ours_first():
    import solo_margins
    from solo.methods import METHODS
    return list(METHODS)

def ours_last():
    from solo.methods import METHODS
    before = list(METHODS)
    import solo_margins
    return [before, list(METHODS)]

def forget():
    for name in [n for n in sys.modules if n.split(".")[0] in ("solo", "solo_margins")]:
        del sys.modules[name]
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "_HostFinder"]
"""


def test_the_package_registers_in_the_hosts_own_table_before_and_after_it(answer):
    if form() == "pypi":
        # The release cannot be imported without us.
        found = answer(f"{IMPORTS}\nprint(json.dumps(ours_first()))")
    else:
        # One process for both, as what solo-learn imports takes seconds.
        calls = "last = ours_last(); forget(); print(json.dumps([last, ours_first()]))"
        (before, after), found = answer(f"{IMPORTS}\n{calls}")
        assert not set(registry.OUR_METHODS) & set(before)
        assert set(registry.OUR_METHODS) & set(after) == AVAILABLE
    assert set(registry.OUR_METHODS) & set(found) == AVAILABLE
    assert {"simclr", "byol", "mocov3"} <= set(found)


@pytest.mark.full
def test_importing_a_method_registers_all_of_them(answer):
    found = answer(
        "from solo_margins.methods.mocov3_margin import MoCoV3Margin; "
        "from solo.methods import METHODS; import json; print(json.dumps(list(METHODS)))"
    )
    assert set(registry.OUR_METHODS) & set(found) == AVAILABLE


def test_a_second_registration_changes_nothing():
    before = dict(METHODS)
    registry.register()
    registry.register_when_host_loads()
    assert dict(METHODS) == before
    for name in AVAILABLE:
        target = registry.OUR_METHODS[name]
        method = before[name].load()
        assert f"{method.__module__}:{method.__name__}" == target


def test_a_foreign_method_of_our_name_is_an_error(monkeypatch):
    class Stranger:
        pass

    monkeypatch.setitem(METHODS, "byol_curv", Stranger)
    with pytest.raises(registry.MethodNameClashError, match=r"'byol_curv'.*Stranger"):
        registry.register()
    assert METHODS["byol_curv"] is Stranger


def test_after_a_clash_of_names_every_access_fails(monkeypatch):
    monkeypatch.setitem(METHODS, "byol_curv", type("Stranger", (), {}))
    monkeypatch.setattr(host, "_interface", None)
    for _ in range(2):
        with pytest.raises(registry.MethodNameClashError, match=r"'byol_curv'.*Stranger"):
            METHODS  # noqa: B018


def test_registration_can_be_switched_off(answer):
    code = (
        "import json, sys, solo_margins;"
        "print(json.dumps([type(f).__name__ for f in sys.meta_path]))"
    )
    assert "_HostFinder" in answer(code)
    assert "_HostFinder" in answer(code, env={"SOLO_MARGINS_DISABLE": "0"})
    assert "_HostFinder" not in answer(code, env={"SOLO_MARGINS_DISABLE": "1"})


def isolated(python, code, *folders):
    """Run Python with the standard library and the given folders alone."""
    paths = [str(folder) for folder in folders]
    return python("-I", "-S", "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}").strip()


def test_without_a_host_one_sentence_says_how_to_install_one(python):
    message = isolated(
        python,
        "from solo_margins import host\ntry: METHODS\nexcept ImportError as error: print(error)",
        ROOT,
    )
    assert "pip install --no-deps solo-learn==1.0.2" in message
    assert message.startswith("solo-learn is not installed")
    assert len(message.splitlines()) == 1


def test_without_packages_for_training_one_sentence_names_the_extra(python, tmp_path):
    (tmp_path / "solo").symlink_to(host_folder())
    message = isolated(
        python,
        "from solo_margins import host\ntry: METHODS\nexcept ImportError as error: print(error)",
        ROOT,
        tmp_path,
    )
    [named] = re.findall(r"^solo-learn needs (\w+), which is not installed: run ", message)
    assert find_spec(named), "installed here, but not in that process"
    assert message.endswith('`pip install ".[train]"` in the folder of solo-margins.')


def test_a_foreign_package_called_solo_is_left_alone_and_named(python, tmp_path):
    (tmp_path / "solo").mkdir()
    (tmp_path / "solo" / "__init__.py").write_text("answer = 42")
    message = isolated(
        python,
        "import solo_margins, solo\n"
        "assert solo.answer == 42\n"
        "from solo_margins import host\n"
        "try: METHODS\n"
        "except host.HostNotFoundError as error: print(error)",
        tmp_path,
        ROOT,
    )
    assert str(tmp_path / "solo") in message
    assert "not a supported solo-learn" in message


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        host.nonsense  # noqa: B018


@pytest.mark.parametrize("name", host.INTERFACE)
def test_every_name_of_the_interface_is_there(name):
    if name in ONLY_ON_MAIN and form() == "pypi":
        pytest.skip("of solo-learn's repository alone")
    if name == "build_transform_pipeline_dali":
        pytest.importorskip("nvidia.dali")
    assert getattr(host, name) is not None


@pytest.mark.skipif(form() != "main", reason="the release is adapted, not repaired")
def test_repairs_are_idempotent():
    from solo_margins.host import changes, repairs

    def state():
        places = [change.place() for repair in repairs.load() for change in repair.changes]
        return [getattr(*place) for place in places] + [OnlineKNN.__bases__]

    before = state()
    changes.apply(repairs.load())
    assert state() == before


def test_callbacks_come_in_once():
    before = [model.configure_callbacks for model in (BaseMethod, LinearClassifier)]
    registry.register()
    assert before == [model.configure_callbacks for model in (BaseMethod, LinearClassifier)]


QUICK = """
import gc, json, sys
from solo_margins.versions import quick_imports

{before}
frozen = gc.get_freeze_count()  # Python 3.12 begins with some
with quick_imports():
    during = [gc.isenabled(), "solo.utils.auto_umap" in sys.modules, "scipy.signal" in sys.modules]
left = [name for name in ("solo.utils.auto_umap", "scipy.signal") if name in sys.modules]
print(json.dumps([during, left, gc.isenabled(), gc.get_freeze_count() > frozen]))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", [[False, True, True], [], True, True]),
        # Whoever has switched the collector off finds it switched off.
        ("gc.disable()", [[False, True, True], [], False, True]),
        # A process that uses torch is not a program that starts.
        ("sys.modules['torch'] = None", [[True, False, False], [], True, False]),
    ],
)
def test_imports_are_quick_in_a_new_process_only(answer, before, expected):
    assert answer(QUICK.format(before=before)) == expected
