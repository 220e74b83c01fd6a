"""What the documentation says: its commands, pieces of Python, headings and links."""

import ast
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page for place in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(place)
)
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?P<title>.*)\n(?P<text>(?:.*\n)*?) *```$", re.M
)
_INLINE = re.compile(r"`([^`]+)`")
_STARTS = re.compile(r"(?:python3?|bash|sh|pip|mkdocs|pre-commit|torchrun|git|cd) \S")
_SCRIPT = re.compile(r"(scripts|examples)/\w+\.py \S")
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Command:
    """A command line of a page, and the folder that a ``cd`` before it has led to."""

    page: Path
    line: int
    text: str
    folder: str = ""

    @property
    def words(self):
        """Words of the command without variables that are set for it."""
        # A placeholder such as <other run> is one word.
        text = re.sub(r"<[\w -]+>", lambda found: found[0].replace(" ", "-"), self.text)
        words = shlex.split(text)
        while words and _ASSIGNMENT.match(words[0]):
            del words[0]
        return words

    @property
    def program(self):
        """What runs: ``main_linear.py``, ``-m solo_margins.lens``, ``bash scripts/demo.sh``."""
        words = self.words
        if words[0] in ("python", "python3"):
            return " ".join(words[1:3]) if words[1] == "-m" else words[1]
        return " ".join(words[:2])

    @property
    def arguments(self):
        """Words behind the program."""
        words = self.words
        if words[0] in ("python", "python3"):
            return words[3:] if words[1] == "-m" else words[2:]
        return words[2:]

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Block:
    """A block of code of a page; one with a title is a part of that file."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""


def blocks(page):
    """Return the fenced blocks of a page."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        lines = found["text"].splitlines(keepends=True)
        unindented = "".join(line.removeprefix(found["indent"]) for line in lines)
        line = text.count("\n", 0, found.start()) + 2
        yield Block(page, line, found["language"], unindented, found["title"].strip())


def prose(page):
    """Return a page with every line of its fenced blocks empty, so that line numbers stay."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())


def commands(page):
    """Return every command of a page or, of an example, of its docstring."""
    if page.suffix == ".py":
        docstring = ast.get_docstring(ast.parse(page.read_text())) or ""
        for number, line in enumerate(docstring.splitlines(), 1):
            if _STARTS.match(line.strip()):
                yield Command(page, number, line.strip())
        return
    for block in blocks(page):
        if block.language in ("bash", "sh", "console"):
            yield from _of_block(block)
    text = prose(page)
    for paragraph in re.finditer(r"(?:.+\n)+", text):
        for found in _INLINE.finditer(paragraph[0]):
            # A table's cell escapes what would end it.
            code = " ".join(found[1].replace("\\|", "|").split())
            if _SCRIPT.match(code):
                code = f"python {code}"
            if _STARTS.match(code):
                line = text.count("\n", 0, paragraph.start() + found.start()) + 1
                yield Command(page, line, code)


def _of_block(block):
    folder, begun, start = "", "", 0
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not begun:
            start = number
        line = re.sub(r"(^|\s+)# .*$", "", line.removeprefix("$ ")).strip()
        if line.endswith("\\"):
            begun += line[:-1]
            continue
        line, begun = " ".join((begun + line).split()), ""
        for part in filter(None, line.split(" && ")):
            if part.startswith("cd "):
                folder = part[3:]
            else:
                yield Command(block.page, start, part, folder)


def headings(page):
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    found = {}
    for title in re.findall(r"^#+ (.+)$", prose(page), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title.replace("`", ""))
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        again = found.get(slug, 0)
        found[slug] = again + 1
        yield f"{slug}-{again}" if again else slug


def links(page):
    """Return line and target of every link and picture of a page."""
    for number, line in enumerate(prose(page).splitlines(), 1):
        line = re.sub(r"`[^`]+`", "code", line)
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            yield number, target
