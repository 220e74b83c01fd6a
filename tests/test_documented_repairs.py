"""The documentation names and counts the repairs that there are."""

import re

import pytest
from documented import ROOT

from solo_margins.host import repairs


def test_every_repair_is_listed_with_its_symptom():
    text = (ROOT / "docs" / "upstream.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (.{20,}) \|$", text.partition("| `--repair` |")[2], re.M)
    assert [name for name, _ in listed] == list(repairs.NAMES)


@pytest.mark.parametrize("page", ["docs/installation.md", "docs/architecture.md"])
def test_repairs_are_counted(page):
    counts = set(re.findall(r"\b(\d+) repairs\b", (ROOT / page).read_text()))
    assert counts == {str(len(repairs.NAMES))}


def test_changes_are_counted():
    changes = sum(len(repair.changes) for repair in repairs.load())
    assert f"with {changes} changes" in (ROOT / "docs" / "architecture.md").read_text()
