"""The documentation as a site is built without a warning."""

import os
import subprocess
import sys

import pytest
from documented import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        # Material advertises its successor at every start.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_equations_are_marked_for_mathjax(site):
    theory = (site / "theory" / "index.html").read_text()
    assert theory.count('class="arithmatex"') > 30
    assert "$$" not in theory


def test_docstrings_are_on_the_site(site):
    page = (site / "api" / "losses" / "index.html").read_text()
    assert 'id="solo_margins.losses.Margins"' in page
    assert "added to the angle of positives" in page
