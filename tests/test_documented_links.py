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


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose ``!ENV`` plain YAML does not know."""


_Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node))


def test_every_page_is_in_the_navigation():
    def pages(entries):
        for entry in entries:
            for value in entry.values():
                yield from pages(value) if isinstance(value, list) else [value]

    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)
    shown = list(pages(settings["nav"]))
    written = {
        str(page.relative_to(ROOT / "docs"))
        for page in (ROOT / "docs").rglob("*.md")
        if not page.is_relative_to(ROOT / "docs" / "results")
    }
    assert len(shown) == len(set(shown))
    # scripts/site/pages.py makes these of files at the top of the repository.
    assert set(shown) == written | {"index.md", "contributing.md", "changelog.md"}
