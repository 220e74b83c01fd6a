"""Links of README and docs lead somewhere, and the site shows every page."""

import re

import pytest
import yaml
from documented import PAGES, ROOT, headings, links

IDS = {"ids": lambda page: str(page.relative_to(ROOT))}


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_links_lead_to_files_and_headings(page):
    for line, target in links(page):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            assert path.startswith(("https://", "http://")), f"{page}:{line}: {target}"
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page}:{line}: {target} does not exist"
        assert file.is_relative_to(ROOT), f"{page}:{line}: {target} is not in this repository"
        if anchor:
            assert anchor in set(headings(file)), f"{page}:{line}: {target} has no such heading"


def test_every_page_is_in_the_navigation():
    def pages(entries):
        for entry in entries:
            if isinstance(entry, str):
                yield entry
                continue
            for value in entry.values():
                yield from pages(value) if isinstance(value, list) else [value]

    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shown = list(pages(settings["nav"]))
    docs = ROOT / "docs"
    written = {
        str(page.relative_to(docs))
        for page in docs.rglob("*.md")
        # Measurements, and what is for who works on this package.
        if page.relative_to(docs).parts[0] not in ("results", "development", "architecture.md")
    }
    assert len(shown) == len(set(shown))
    assert set(shown) == written


def test_the_readme_is_short():
    """Nobody reads a long one; a limit on lines alone would reward long lines."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
