"""The package stays lighter than its host: lines, changes made to solo-learn, modules of a run."""

import ast
import io
import json
import tokenize
from pathlib import Path

import pytest
from solo.methods.base import BaseMethod
from solo_margins.host import repairs

from solo_margins import registry
from solo_margins.files import digits_folder
from solo_margins.methods.linear import LinearClassifier

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "solo_margins"
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "configs" not in path.parts]
RELEASE = [*(PACKAGE / "host" / "solo_1_0_2").rglob("*.py")]

CODE_LINES = 8000
CODE_LINES_FOR_THE_RELEASE = 800
LINES_OF_A_FILE = 400
CHANGES = 20
MODULES_OF_A_RUN = 70

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text):
    """Return the number of lines that hold code: no docstrings, comments and empty lines."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def test_lines_are_counted_as_people_do():
    text = '"""Module.\n\nDocs."""\n\nx = """\ntext\n"""  # why\n\n\n# A comment.\n'
    text += 'def f(\n    a,\n):\n    """Function."""\n    return a\n'
    assert code_lines(text) == 3 + 4


def test_the_package_is_small():
    assert sum(code_lines(path.read_text()) for path in SOURCES) <= CODE_LINES


def test_what_the_release_needs_is_small():
    assert len(RELEASE) > 5
    assert sum(code_lines(path.read_text()) for path in RELEASE) <= CODE_LINES_FOR_THE_RELEASE


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= LINES_OF_A_FILE


def test_few_things_of_solo_learn_are_changed_and_each_is_a_bug():
    loaded = repairs.load()
    in_repairs = [change for repair in loaded for change in repair.changes]
    # The doors that registry opens for our callbacks.
    doors = [
        model
        for model in (BaseMethod, LinearClassifier)
        if getattr(model.configure_callbacks, registry.OPENED, False)
    ]
    assert len(doors) == 2
    assert len(in_repairs) + len(doors) <= CHANGES
    assert all(len(repair.symptoms) > 30 for repair in loaded)


RUN = """
import json, runpy, sys
sys.argv = [{program!r}, *{arguments!r}]
try:
    runpy.run_path({program!r}, run_name="__main__")
finally:
    print()
    print(json.dumps(sorted(sys.modules)))
"""

# Packages that a plain run has no use for. Others bring some of the same weight themselves:
# solo-learn imports timm with all its models, torchmetrics imports matplotlib and the root of
# scipy, torchvision imports torch's compiler with sympy.
NOT_FOR_A_PLAIN_RUN = """
    IPython h5py lightly numba nvidia.dali onnx onnxruntime pandas plotly pyarrow
    scipy.optimize scipy.signal scipy.stats seaborn sklearn tensorboard transformers umap wandb
"""


def test_a_default_run_imports_little(python, tmp_path):
    # Made by scikit-learn if they are not there.
    digits_folder("train")
    # Found by whoever looks for it.
    (tmp_path / "wandb.py").touch()
    arguments = [
        "--config-name",
        "mocov3_margin.yaml",
        "max_epochs=1",
        "limit_train_batches=1",
        "limit_val_batches=1",
        f"checkpoint.dir={tmp_path / 'runs'}",
    ]
    code = RUN.format(program=str(ROOT / "main_pretrain.py"), arguments=arguments)
    out = python("-W", "ignore", "-c", code)
    loaded = json.loads(out.splitlines()[-1])
    modules = [name for name in loaded if name.split(".")[0] == "solo_margins"]
    assert list((tmp_path / "runs").rglob("*.ckpt")), out
    assert {"solo_margins.training.trainer", "solo_margins.data.datamodule"} <= set(modules)
    assert len(modules) <= MODULES_OF_A_RUN, modules
    assert "torchmetrics" in loaded
    assert [name for name in loaded if name in NOT_FOR_A_PLAIN_RUN.split()] == []
