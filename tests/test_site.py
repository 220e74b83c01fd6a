"""The documentation as a site: built without a warning, read without the network."""

import os
import re
import runpy
import subprocess
import sys

import pytest
from documented import ROOT


def test_links_of_the_readme_hold_on_the_site():
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    relinked = runpy.run_path(str(ROOT / "scripts" / "site" / "pages.py"))["relinked"]
    text = "[a](docs/guide.md#ramps) ![b](docs/images/x.png) [c](LICENSE) [d](CONTRIBUTING.md)"
    text += "\n```bash\n[e](docs/guide.md)\n```\n"
    code = text.partition("\n")[2]
    assert relinked(text, "README.md", "index.md", "") == (
        f"[a](guide.md#ramps) ![b](images/x.png) c [d](contributing.md)\n{code}"
    )
    assert relinked("[a](../scripts) [b](../LICENSE)", "docs/x.md", "x.md", "") == "a b"
    there = relinked("[a](../../README.md) [c](../../LICENSE)", "docs/api/x.md", "api/x.md", "u/")
    assert there == "[a](../index.md) [c](u/blob/main/LICENSE)"


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    as_markdown = runpy.run_path(str(ROOT / "scripts" / "site" / "docstrings.py"))["as_markdown"]
    text = """Return :math:`a_b` of :class:`Margins`, as ``x``.

    .. math::
        a = b, \\
        c

    Example:
        >>> 1
    """
    written = as_markdown(text)
    assert "$a_b$" in written
    assert (
        '<autoref optional identifier="Margins"><code>Margins</code></autoref>, as `x`.' in written
    )
    assert "    $$\n    a = b, \\\n    c\n    $$\n" in written
    assert "    Examples:\n" in written


def test_equations_become_pictures():
    pytest.importorskip("ziamath", reason="the extra docs is not installed")
    equations = runpy.run_path(str(ROOT / "scripts" / "site" / "equations.py"))
    page = r'<p><span class="arithmatex">\(a &lt; \frac{1}{2}\)</span></p>'
    drawn = equations["on_page_content"](page)
    assert 'role="math" aria-label="a &lt; \\frac{1}{2}"' in drawn
    assert "<svg" in drawn
    assert "currentColor" in drawn
    with pytest.raises(ValueError, match="cannot be drawn"):
        equations["drawn"](r"\frac{", "span")


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


@pytest.mark.full
def test_the_site_asks_for_nothing_and_leaves_no_equation_out(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text()
        assert "arithmatex" not in text, page
        assert not re.findall(r'<(?:script|img)[^>]+src="https?:', text), page
        assert not re.findall(r'<link[^>]+rel="stylesheet"[^>]+href="https?:', text), page
        # Roles of reStructuredText that no rule has rewritten.
        assert not re.findall(r":(?:class|func|math|mod):`|\.\. math::", text), page
    assert (site / "theory" / "index.html").read_text().count('role="math"') > 30
