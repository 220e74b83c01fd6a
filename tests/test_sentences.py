"""The example with sentences: what it reads of WordNet, what it learns and what it says."""

import csv
import doctest
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LICENCE = (
    '  1 This file is licensed; such lines begin with two spaces and have a number | "here".\n'
)
# Groups of words that go together, so that a definition tells something about its example.
TOPICS = {
    "noun": (5, "animal beast fur wild tame paw", "dog cat wolf bear horse barks"),
    "verb": (38, "move along quickly on foot ahead", "he runs walks marches to town"),
    "adj": (0, "having a bright strong vivid hue", "the red green blue golden shirt"),
    "adv": (2, "in a silent calm careful manner", "she quietly softly gently spoke up"),
}


@pytest.fixture
def examples(monkeypatch):
    """The folder of the examples, from which modules can be imported."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield EXAMPLES
    for name in ("wordnet", "sentences", "sentence_figure"):
        sys.modules.pop(name, None)


def line(offset, label, kind, gloss):
    """Return a synset in the format of wndb(5)."""
    pointers = "001 @ 00001740 n 0000"
    return f"{offset:08d} {label:02d} {kind} 02 some_word 0 other 0 {pointers} | {gloss}  \n"


def write_files(folder, lines_of):
    for part in ("noun", "verb", "adj", "adv"):
        (folder / f"data.{part}").write_text(LICENCE + "".join(lines_of(part)), encoding="utf-8")


@pytest.fixture
def small_wordnet(tmp_path):
    """Return a folder with 100 synsets of each part of speech, whose words tell their topic."""
    generator = torch.Generator().manual_seed(0)

    def some(words):
        chosen = torch.randperm(6, generator=generator)[:3]
        return " ".join(words.split()[place] for place in chosen)

    def lines_of(part):
        label, definition, example = TOPICS[part]
        for offset in range(100):
            gloss = f'{some(definition)}; "{some(example)} {offset}"; "{some(example)} {part}"'
            yield line(offset, label, part[0], gloss)

    folder = tmp_path / "wordnet"
    folder.mkdir()
    write_files(folder, lines_of)
    return folder


@pytest.mark.parametrize(
    ("gloss", "definition", "quoted"),
    [
        ("cry like a cat", "cry like a cat", ()),
        ('go; "they went"', "go", ("they went",)),
        ('used up; gone; "no fuel; no food"', "used up; gone", ("no fuel; no food",)),
        ('wild; "a; b"- John Poet; "c"--Ann Other; (rare)', "wild; (rare)", ("a; b", "c")),
        ('enough: "adequate food"; "more"', "enough", ("adequate food", "more")),
        ('begin, "they start" "it begins";', "begin", ("they start", "it begins")),
        ('as in "make strides"; "big strides"', 'as in "make strides"', ("big strides",)),
        ('"only a usage"', "", ("only a usage",)),
        ('empty; ""', "empty", ()),
    ],
)  # fmt: skip
def test_glosses(examples, gloss, definition, quoted):
    from wordnet import split_gloss

    assert split_gloss(f"{gloss}  \n") == (definition, quoted)


def test_files_in_wordnets_format(examples, tmp_path):
    from wordnet import LEXICOGRAPHER_FILES, Synset, find, read

    lines = {
        "noun": [
            line(1740, 3, "n", 'that which is; "a being; a thing"'),
            line(1930, 44, "n", "no example"),
            line(1940, 5, "n", 'quotes do not match; "a"; b"'),
        ],
        "adv": [line(7, 2, "r", 'at once; "come now"; "now!"'), line(9, 2, "r", '"no definition"')],
    }
    write_files(tmp_path, lambda part: lines.get(part, []))
    assert read(find(tmp_path)) == [
        Synset("noun:00001740", 3, "that which is", ("a being; a thing",)),
        Synset("adv:00000007", 2, "at once", ("come now", "now!")),
    ]
    assert len(LEXICOGRAPHER_FILES) == 45
    assert LEXICOGRAPHER_FILES[3] == "noun.Tops"
    assert LEXICOGRAPHER_FILES[44] == "adj.ppl"


@pytest.mark.parametrize("bad", ["00001740 45 n | x\n", "00001740 03 n no gloss\n", "words | x\n"])
def test_other_files(examples, tmp_path, bad):
    from wordnet import WordNetError, read

    write_files(tmp_path, lambda part: [bad])
    with pytest.raises(WordNetError, match=r"data\.noun, line 2: expected an offset"):
        read(tmp_path)


def test_nothing_held_out_is_trained_on(examples):
    from wordnet import Synset, split

    synsets = [
        Synset(f"noun:{place:08d}", 3, f"definition {place}", (f"a {place}", f"b {place // 2}"))
        for place in range(2000)
    ]
    parts = split(synsets)
    sizes = [len(parts[name]) for name in ("train", "validation", "test")]
    # An example is that of two synsets: where they fall apart, one is left out.
    assert 1000 < sizes[0] < 1450
    assert 130 < sizes[1] < 220
    assert 150 < sizes[2] < 250
    shared = [{one.examples[1] for one in parts[name]} for name in parts]
    assert not shared[0] & shared[1]
    assert not shared[0] & shared[2]
    assert not shared[1] & shared[2]
    some = split(synsets[500:1500])
    assert {one.id for one in some["test"]} == {
        one.id for one in parts["test"] if 500 <= int(one.id[5:]) < 1500
    }


def test_documented_examples(examples):
    import wordnet

    found = doctest.testmod(wordnet)
    assert found.attempted
    assert not found.failed


def test_numbers_of_words(examples):
    from wordnet import Vocabulary

    vocabulary = Vocabulary(["The cat, the dog", "a cat's dog", "the end"], fewest=2)
    assert vocabulary.numbers == {"the": 2, "dog": 3}
    assert len(vocabulary) == 4
    assert vocabulary.encode("The Dog of the night", longest=4) == [2, 3, 1, 2]
    assert vocabulary.encode("?", longest=4) == [1]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["sentences.py", *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / "sentences.py"), run_name="__main__")


def test_the_whole_example(examples, small_wordnet, tmp_path, monkeypatch, capsys):
    settings = ["--wordnet", small_wordnet, "--epochs", 5, "--batch-size", 32, "--lr", "5e-3"]
    settings += ["--weights", 10]
    run(monkeypatch, *settings, "--output", tmp_path / "one", "--rows", "qt", "dp", "margins")
    printed = capsys.readouterr().out
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 6
    assert all(last < first for first, last in zip(losses[::2], losses[1::2], strict=True))
    with (tmp_path / "one" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["row"].split(" (")[0] for row in rows] == [
        "untrained", "QT", "QT + dp", "QT + margins",
    ]  # fmt: skip
    for row in rows[1:]:
        assert float(row["pair_distance"]) < float(row["other_distance"]) - 0.05
        assert float(row["separation"]) > float(rows[0]["separation"]) + 10
        assert float(row["definitions"]) > 90
    assert (tmp_path / "one" / "table.md").read_text() in printed
    held_out = int(re.search(r"(\d+) test", printed)[1])
    with (tmp_path / "one" / "histograms.csv").open() as file:
        bins = [line for line in csv.DictReader(file) if line["row"] == "QT"]
    assert sum(int(line["pairs"]) for line in bins) == held_out
    assert sum(int(line["others"]) for line in bins) == held_out * (held_out - 1)
    assert (tmp_path / "one" / "distances.png").read_bytes().startswith(b"\x89PNG")
    run(monkeypatch, *settings, "--output", tmp_path / "two", "--rows", "margins")
    capsys.readouterr()
    with (tmp_path / "two" / "results.csv").open() as file:
        again = list(csv.DictReader(file))
    assert again == [rows[0], rows[3]], "the same seed gives the same numbers"
    few = ["--pairs", 40, "--epochs", 1, "--output", tmp_path / "few"]
    run(monkeypatch, "--wordnet", small_wordnet, *few, "--rows", "qt")
    assert capsys.readouterr().out.startswith("40 synsets train")


def test_polarization_empties_its_band(examples, small_wordnet):
    from sentences import QuickThoughts, Row, Sentences, parsed, train
    from wordnet import Vocabulary, read

    synsets = read(small_wordnet)
    vocabulary = Vocabulary(text for one in synsets for text in (one.definition, *one.examples))
    data = Sentences.of(synsets, vocabulary)
    arguments = parsed(["--epochs", "5", "--batch-size", "40", "--lr", "5e-3"])
    inside = []
    for weight in (0.0, 100.0):
        torch.manual_seed(0)
        model = QuickThoughts(len(vocabulary))
        train(model, data, Row("", polarization=weight), arguments, "")
        own, others = model.distances(data)
        every = torch.cat([own, others])
        inside.append(((every > 0.2) & (every < 0.4)).double().mean().item())
    assert inside[1] < 0.5 * inside[0]


def test_wordnet_is_missing(examples, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"apt install wordnet-base") as caught:
        run(monkeypatch, "--wordnet", tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rows", "qt", "mine"], "--rows must be of qt, dp, margins"),
        (["--epochs", "0"], "argument --epochs: must be a whole number above 0, got '0'"),
        (["--temperature", "nan"], "argument --temperature: must be a number above 0"),
        (["--scale", "-1"], "positive_scale must be a number > 0"),
        (["--lower", "0.5"], "0 < lower < upper < 1"),
    ],
)
def test_impossible_settings(examples, capsys, arguments, sentence):
    from sentences import parsed

    with pytest.raises(SystemExit):
        parsed(arguments)
    assert sentence in capsys.readouterr().err


def test_the_real_wordnet(examples):
    from wordnet import LEXICOGRAPHER_FILES, WordNetError, find, read

    try:
        folder = find()
    except WordNetError as missing:
        pytest.skip(str(missing))
    synsets = read(folder)
    assert len(synsets) > 30_000
    assert {one.label for one in synsets} == set(range(45))
    # Of a noun's file come nouns, and so on.
    assert all(
        LEXICOGRAPHER_FILES[one.label].partition(".")[0] == one.id.partition(":")[0]
        for one in synsets
    )
    quoted = [one for one in synsets if '"' in one.definition]
    assert len(quoted) < 50
    by_definition = {one.definition: one for one in synsets}
    meow = by_definition["cry like a cat"]
    assert meow.examples == ("the cat meowed",)
    assert LEXICOGRAPHER_FILES[meow.label] == "verb.communication"
