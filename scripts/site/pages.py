"""Pages of the site that are files elsewhere, and links that leave docs/.

README.md is the home page: one text for who reads the repository and for who reads the site.
"""

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the files at the top of the repository to those of docs/."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page with links that lead to the right place on the site."""
    sources = {target: source for source, target in ELSEWHERE.items()}
    place = page.file.src_uri
    source = sources.get(place, f"docs/{place}")
    return relinked(markdown, source, place, config.repo_url or "")


def relinked(markdown: str, source: str, place: str, repository: str) -> str:
    """Return Markdown whose relative links hold on the site.

    Args:
        markdown: the text of a file.
        source: where the file is in the repository.
        place: where its page is, from the root of docs/.
        repository: address of the repository, or "" where it has none.
    """

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = ELSEWHERE.get(path) or (path[5:] if path.startswith("docs/") else None)
        if inside is None or (ROOT / path).is_dir():
            if not repository:
                return found["text"]
            new = f"{repository.rstrip('/')}/blob/main/{path}"
        else:
            new = os.path.relpath(inside, posixpath.dirname(place) or ".")
        anchor = f"#{anchor}" if anchor else ""
        return f"{found['picture']}[{found['text']}]({new}{anchor})"

    # Every second part is a block of code.
    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)
