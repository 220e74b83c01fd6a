"""Changes of solo-learn as data: what they do, and that the repairs can be written as text."""

import ast
import inspect
import sys
import types
from pathlib import Path

import pytest

from solo_margins import host
from solo_margins.host import changes
from solo_margins.host.changes import Repair, Replace, Wrap
from solo_margins.host.repairs import load

ROOT = Path(__file__).resolve().parents[2]
TESTS = Path(__file__).parent / "repairs"
REPAIRS = load()
CHANGES = [
    pytest.param(change, id=f"{repair.name}-{change.target}")
    for repair in REPAIRS
    for change in repair.changes
]
WITH_FUNCTIONS = [p for p in CHANGES if callable(p.values[0].function)]


class Parent:
    """What a class of solo-learn derives from."""


class Better(Parent):
    """What it should derive from."""


class Patient(Parent):
    """Stands for a class of solo-learn."""

    def method(self, x):
        return [self, x]

    @staticmethod
    def static(x):
        return [x]


@pytest.fixture
def solo(monkeypatch):
    """Two modules of a solo-learn: one has imported a function of the other by name."""
    first, second = types.ModuleType("solo.first"), types.ModuleType("solo.second")
    first.Class = type("Class", (Parent,), dict(vars(Patient)))
    first.function = second.function = lambda x: [x]
    for module in (first, second):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return first, second


def again(original, *args):
    return ["again", *original(*args)]


def louder(original, *args):
    return ["louder", *original(*args)]


def again_with_one(original, x):
    return ["again", *original(x)]


def with_another(self, x, y):
    return [self, x, y]


def new(self):
    return "new"


def test_wrappers_are_put_on_once_each_in_their_order(solo):
    first, second = solo
    for _ in range(2):
        Wrap("first", "Class.method", again).apply()
        Wrap("first", "Class.method", louder).apply()
        Wrap("first", "Class.static", again).apply()
        Wrap("first", "function", again).apply()
    patient = first.Class()
    assert patient.method(3) == ["louder", "again", patient, 3]
    assert patient.static(3) == first.Class.static(3) == ["again", 3]
    assert first.function(3) == ["again", 3]
    assert second.function(3) == [3]
    assert first.Class.method.__name__ == "method"


def test_a_function_can_be_wrapped_wherever_it_was_imported(solo):
    first, second = solo
    for _ in range(2):
        Wrap("first", "function", again, everywhere=True).apply()
    assert first.function(3) == second.function(3) == ["again", 3]


def test_members_are_replaced_or_added_and_may_be_wrapped_then(solo):
    first, _ = solo
    for _ in range(2):
        Replace("first", "Class.method", new).apply()
        Replace("first", "Class.added", new).apply()
        Wrap("first", "Class.added", again).apply()
    assert first.Class().method() == "new"
    assert first.Class().added() == ["again", *"new"]


def test_a_class_gets_another_base(solo):
    first, _ = solo
    for _ in range(2):
        Replace("first", "Class.__bases__", (Better,)).apply()
    assert first.Class.__bases__ == (Better,)


@pytest.mark.parametrize(
    "missing",
    [
        Wrap("nowhere", "function", again),
        Wrap("first", "Class.absent", again),
        Replace("first", "Absent.method", new),
        Wrap("first", "Class.method", again_with_one),
        Replace("first", "Class.method", with_another),
    ],
    ids=lambda change: f"{type(change).__name__}-{change.module}-{change.target}",
)
def test_a_repair_that_does_not_fit_is_noted_and_left_out_as_a_whole(solo, missing, monkeypatch):
    first, _ = solo
    monkeypatch.setattr(changes, "left_out", [])
    fitting = Wrap("first", "function", again_with_one)
    changes.apply([Repair("torn", "None.", (fitting, missing))])
    (sentence,) = changes.left_out
    assert sentence.startswith("This solo-learn runs without the repair torn: ")
    assert first.function(3) == [3]
    changes.apply([Repair("whole", "None.", (fitting,))])
    assert first.function(3) == ["again", 3]
    assert len(changes.left_out) == 1


def written(function):
    """Return the syntax of a function that stands at the top level of its module."""
    module = ast.parse(Path(inspect.getsourcefile(function)).read_text())
    [found] = [n for n in module.body if getattr(n, "name", None) == function.__name__]
    return found


@pytest.mark.parametrize("change", WITH_FUNCTIONS)
def test_functions_of_repairs_can_be_written_elsewhere(change):
    syntax = written(change.function)
    assert isinstance(syntax, ast.FunctionDef)
    inner = [n for n in ast.walk(syntax) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    assert inner == [syntax], "a function inside of it"
    names = [argument.arg for argument in syntax.args.args]
    wanted = ["original"] if isinstance(change, Wrap) else []
    if "." in change.target:
        wanted.append("self")
    assert names[: len(wanted)] == wanted
    assert ast.get_docstring(syntax)


@pytest.mark.skipif(host.FORM != "main", reason="the release is adapted, not repaired")
@pytest.mark.parametrize("change", [p for p in CHANGES if isinstance(p.values[0], Wrap)])
def test_wrappers_have_the_parameters_of_what_they_wrap(change):
    host.load()
    wrapped = inspect.signature(inspect.unwrap(getattr(*change.place())))
    [_, *parameters] = inspect.signature(change.function).parameters.values()
    kept = [(p.name, p.kind, p.default) for p in parameters]
    assert kept == [(p.name, p.kind, p.default) for p in wrapped.parameters.values()]


def imports_of(path):
    """Return the modules of ours that a file imports, whole or names of them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("solo_margins"):
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                file = ROOT / (name.replace(".", "/") + ".py")
                yield file if file.is_file() else ROOT / (node.module.replace(".", "/") + ".py")


def test_repairs_depend_on_nothing_that_our_configurations_say():
    folder = ROOT / "solo_margins" / "host"
    seen, waiting = set(), [folder / "repairs" / f"{repair.name}.py" for repair in REPAIRS]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            waiting.extend(imports_of(path))
    others = {path for path in seen if path.parent.name != "repairs"}
    assert others == {
        folder / "changes.py",
        ROOT / "solo_margins" / "checkpoints.py",
        ROOT / "solo_margins" / "same_run.py",
    }


def test_every_repair_has_symptoms_and_a_test_that_knows_solo_learn_alone():
    files = {path.stem.removeprefix("test_"): path for path in TESTS.glob("test_*.py")}
    assert sorted(files) == sorted(repair.name for repair in REPAIRS)
    assert all(repair.symptoms.endswith(".") for repair in REPAIRS)
    allowed = {"solo", "torch", "lightning", "omegaconf", "pytest"} | sys.stdlib_module_names
    for path in files.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                assert node.module.split(".")[0] in allowed, path
