"""Every program explains itself, and so does the form for reporting that one does not work."""

import ast
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from solo_margins import recipes

ROOT = Path(__file__).resolve().parents[1]
SCREEN = 45  # lines


def is_program(path):
    """Tell whether a module has ``if __name__ == "__main__"``."""
    parts = ast.parse(path.read_text()).body
    return any(isinstance(part, ast.If) and "__name__" in ast.unparse(part.test) for part in parts)


FILES = [path for path in (ROOT / "solo_margins").rglob("*.py") if is_program(path)]
NAMES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES]
# Hydra prints their help; it is tested below.
OF_HYDRA = ("solo_margins.pretrain", "solo_margins.linear")
MODULES = sorted(name.removesuffix(".__main__") for name in NAMES if name not in OF_HYDRA)


def test_the_programs_are_found():
    commands = ("evaluation.knn", "evaluation.probe", "export", "lens")
    assert {f"solo_margins.{name}" for name in commands} <= set(MODULES)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("module", MODULES)
def test_a_module_prints_its_help(module, option, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module, option])
    code = None
    try:
        # As `python -m` does, without the seconds that importing torch takes.
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    assert not code
    said = capsys.readouterr().out
    assert f"python -m {module}" in said
    assert 3 < len(said.splitlines()) <= SCREEN


def run(*words, folder=ROOT):
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ["main_pretrain.py"],
        ["-m", "solo_margins.pretrain"],
        ["-m", "solo_margins.linear"],
        ["main_pretrain.py", "--config-name", "byol_curv.yaml"],
        ["main_linear.py", "--config-name", "linear.yaml"],
    ],
    ids=" ".join,
)
def test_a_program_prints_its_help(words, tmp_path):
    named = [ROOT / word if word.startswith("main_") else word for word in words]
    done = run(sys.executable, *named, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == help_text()
    assert not list(tmp_path.iterdir())


def help_text():
    page = yaml.safe_load((ROOT / "configs" / "solo_margins" / "help.yaml").read_text())
    return page["hydra"]["help"]["template"]


def test_the_help_names_every_choice():
    lines = help_text().splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 100
    # "data=   digits (default), …", and what follows it further to the right.
    sections = re.findall(r"^([\w-]+)=? {2,}(.*(?:\n {10,}.*)*)", help_text(), re.MULTILINE)
    words = {name: set(re.findall(r"\w+", text)) for name, text in sections}
    for group in ("data", "variant", "backbone", "optimizer", "launcher"):
        options = {path.stem for path in (ROOT / "configs" / group).glob("*.yaml")}
        assert options <= words[group], f"{group}: {options - words[group]}"
    assert words["--config-name"] >= {*recipes.RECIPES, "linear"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["variant=pos"], "variant=pos is not defined for byol_curv on digits: choose one of "),
        (["data=nonsense"], "data=nonsense is not defined for byol_curv: choose one of cifar10, "),
    ],
)
def test_an_undefined_choice_ends_with_one_sentence(words, sentence, tmp_path):
    program = [sys.executable, "-W", "ignore", ROOT / "main_pretrain.py"]
    command = [*program, "--config-name", "byol_curv.yaml"]
    done = run(*command, *words, folder=tmp_path)
    first, *others = [line for line in done.stderr.splitlines() if line]
    assert first.startswith(sentence)
    assert done.returncode == 1
    # Hydra says how to see a stack trace.
    assert [line for line in others if "HYDRA_FULL_ERROR" not in line] == []


def test_the_form_for_bugs_names_a_command_that_runs():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yaml").read_text())
    [asked] = [
        part["attributes"]["description"] for part in form["body"] if part["id"] == "versions"
    ]
    python, *words = shlex.split(asked.removeprefix("The output of: "))
    assert python == "python"
    done = run(sys.executable, *words)
    assert done.returncode == 0, done.stderr
    assert "'solo_margins': " in done.stdout
    assert "'torch': " in done.stdout
