"""Every message that docs/troubleshooting.md explains can still appear as it is quoted there."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
from documented import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
ENTRY = re.compile(
    r"^### `(?P<message>.+)`\n\n```text\n(?P<quoted>(?:.*\n)+?)```\n\n(?P<rest>.)", re.M
)
# Messages of others, and the file of theirs that has the fixed part of it, if there is one.
OF_OTHERS = {
    "No module named 'pkg_resources'": None,  # Python's own words
    "operator torchvision::nms does not exist": None,  # in torch's compiled part
    "Key 'angulr' is not in struct": ("omegaconf", "is not in struct"),
    "Cannot find primary config": ("hydra", "Cannot find primary config"),
    "Choose from dict_keys": None,  # solo-learn's main_pretrain.py
    "No supported gpu backend found!": ("lightning", "No supported gpu backend found!"),
}


def entries():
    return [
        pytest.param(found, id=found["message"][:40]) for found in ENTRY.finditer(PAGE.read_text())
    ]


def one_line(text):
    return " ".join(text.split())


def strings(path):
    """Strings of a file that are no docstrings, the constant parts of f-strings each by itself."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and ast.unparse(body[:1]).startswith(('"', "'")):
            del body[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def ours():
    """Everything that this package can say."""
    files = [*(ROOT / "solo_margins").rglob("*.py"), *(ROOT / "hydra_plugins").glob("*.py")]
    said = [text for file in files for text in strings(file)]
    said += [one_line(file.read_text()) for file in (ROOT / "solo_margins").rglob("*.yaml")]
    return "\n".join(said)


def test_every_heading_is_an_entry():
    headings = re.findall(r"^### .*", PAGE.read_text(), re.M)
    assert len(headings) == len(entries()) >= 40
    messages = [entry.values[0]["message"] for entry in entries()]
    assert len(set(messages)) == len(messages)
    assert set(OF_OTHERS) <= set(messages)


@pytest.mark.parametrize("entry", entries())
def test_a_message_still_exists(entry, ours):
    message = entry["message"]
    if message not in OF_OTHERS:
        assert message in ours, "this package does not say that any more"
        assert message in one_line(entry["quoted"]) + " "
    elif OF_OTHERS[message] is not None:
        package, fixed = OF_OTHERS[message]
        [folder] = importlib.util.find_spec(package).submodule_search_locations
        assert any(fixed in file.read_text() for file in Path(folder).rglob("*.py"))
