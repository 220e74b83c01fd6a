"""Every program explains itself, and says in one sentence what is not defined."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in (ROOT / "solo_margins").rglob("*.py")
    if '\nif __name__ == "__main__":' in path.read_text()
    # Hydra prints the help of these.
    and path.stem not in ("pretrain", "linear")
)


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
    assert f"python -m {module}" in capsys.readouterr().out


def run(*words, folder):
    # The release warns of itself when it is imported.
    words = [sys.executable, "-W", "ignore", *words]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "configuration"),
    [("main_pretrain.py", "byol_curv.yaml"), ("main_linear.py", "linear.yaml")],
)
def test_a_program_prints_its_help(program, configuration, tmp_path):
    done = run(ROOT / program, "--config-name", configuration, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = yaml.safe_load((ROOT / "configs" / "solo_margins" / "help.yaml").read_text())
    assert done.stdout.strip() == page["hydra"]["help"]["template"]
    assert not list(tmp_path.iterdir())


def test_an_undefined_variant_ends_with_one_sentence(tmp_path):
    words = ["--config-name", "byol_curv.yaml", "variant=pos"]
    done = run(ROOT / "main_pretrain.py", *words, folder=tmp_path)
    assert done.returncode == 1
    # Hydra says besides how to see a stack trace.
    lines = [line for line in done.stderr.splitlines() if line and "HYDRA_FULL_ERROR" not in line]
    [sentence] = lines
    assert "variant=pos" in sentence
    assert "choose one of" in sentence


def test_unknown_data_are_refused_with_those_that_there_are(tmp_path):
    words = ["--config-name", "byol_curv.yaml", "data=nonsense"]
    done = run(ROOT / "main_pretrain.py", *words, folder=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "nonsense" in done.stderr
    assert "tinyimagenet" in done.stderr
