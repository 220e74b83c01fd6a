"""The example with sentences: what it reads of WordNet, what it learns and what it says."""

import json
import re
import runpy
import statistics
import sys
from pathlib import Path

import pytest
import torch

from solo_margins.losses import distance_polarization_loss_func

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
    for name in ("wordnet", "sentences"):
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
        ('used up; gone; "no fuel; no food"', "used up; gone", ("no fuel; no food",)),
        ('wild; "a; b"- John Poet; "c"--Ann Other; (rare)', "wild; (rare)", ("a; b", "c")),
        ('begin, "they start" "it begins";', "begin", ("they start", "it begins")),
        ('as in "make strides"; "big strides"', 'as in "make strides"', ("big strides",)),
        ('"only a usage"', "", ("only a usage",)),
    ],
)  # fmt: skip
def test_glosses(examples, gloss, definition, quoted):
    from wordnet import split_gloss

    assert split_gloss(f"{gloss}  \n") == (definition, quoted)


def test_files_in_wordnets_format(examples, tmp_path):
    from wordnet import Synset, find, read

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


@pytest.mark.parametrize("bad", ["00001740 45 n | x\n", "00001740 03 n no gloss\n", "words | x\n"])
def test_other_files(examples, tmp_path, bad):
    from wordnet import WordNetError, read

    write_files(tmp_path, lambda part: [bad])
    with pytest.raises(WordNetError, match=r"data\.noun, line 2"):
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


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["sentences.py", *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / "sentences.py"), run_name="__main__")


ROWS = ("untrained", "qt", "debiased", "hard", "qt+dp", "debiased+dp", "hard+dp")


@pytest.fixture
def settings(small_wordnet, tmp_path):
    """Settings by which all rows are trained in seconds."""
    short = ["--epochs", 5, "--batch-size", 32, "--lr", "5e-3", "--temperature", 0.1]
    folders = ["--wordnet", small_wordnet, "--output", tmp_path]
    return [*folders, *short, "--weight", 10, "--seeds", 1, 2]


def test_every_row_learns_and_has_its_line_in_the_table(
    examples, settings, tmp_path, monkeypatch, capsys
):
    run(monkeypatch, *settings)
    printed = capsys.readouterr().out
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    models = {(one["row"], one["seed"]): one for one in map(json.loads, lines)}
    assert list(models) == [(row, seed) for row in ROWS for seed in (1, 2)]
    for (row, seed), model in models.items():
        numbers = model["numbers"]
        if row != "untrained":
            assert model["losses"][-1] < model["losses"][0]
            assert numbers["D pair"] < numbers["D other file"] - 0.05
            untrained = models["untrained", seed]["numbers"]
            assert numbers["pair closer"] > untrained["pair closer"] + 10
            assert numbers["definitions"] > 90
    assert len({json.dumps(model["numbers"]) for model in models.values()}) == len(models)
    table = (tmp_path / "table.md").read_text()
    assert table in printed
    head, _, *body = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
    )
    assert [cells[0] for cells in body] == list(ROWS)
    differences = [
        models["hard", seed]["numbers"]["examples"] - models["qt", seed]["numbers"]["examples"]
        for seed in (1, 2)
    ]
    mean, deviation = statistics.mean(differences), statistics.stdev(differences)
    assert body[3][head.index("examples − qt")] == f"{mean:.2f} ± {deviation:.2f}"
    assert (tmp_path / "distances.png").read_bytes().startswith(b"\x89PNG")


def test_an_interrupted_example_goes_on(examples, settings, tmp_path, monkeypatch, capsys):
    two_rows = [*settings, "--rows", "untrained", "qt"]
    run(monkeypatch, *two_rows)
    results = tmp_path / "results.jsonl"
    lines = results.read_text().splitlines()
    # Stopped in its last run: that alone is made again, and the same seed gives the same numbers.
    results.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:50])
    capsys.readouterr()
    run(monkeypatch, *two_rows)
    assert re.findall(r"^(\S+), seed (\d)", capsys.readouterr().out, re.M) == [("qt", "2")]
    again = results.read_text().splitlines()
    assert again[:-2] == lines[:-1]
    assert json.loads(again[-1])["numbers"] == json.loads(lines[-1])["numbers"]
    # Other settings are other runs.
    run(monkeypatch, *settings, "--epochs", 1, "--rows", "untrained", "--seeds", 1)
    assert len(results.read_text().splitlines()) == len(again) + 1


def test_rows_differ_by_their_settings_alone(examples):
    from sentences import contrast, parsed

    query, key = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))

    def value(row, *words):
        return contrast(query, key, row, parsed([*words, "--lower", "0.3", "--upper", "0.6"]))

    assert value("debiased", "--tau-plus", "0") == value("qt") != value("debiased")
    assert value("hard", "--beta", "0") == value("debiased") != value("hard")
    penalty = distance_polarization_loss_func(torch.cat([query, key]), 0.3, 0.6)
    for row in ("qt", "debiased", "hard"):
        polarized = value(f"{row}+dp", "--weight", "3")
        torch.testing.assert_close(polarized, value(row) + 3 * penalty)


def test_wordnet_is_missing(examples, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="wordnet") as caught:
        run(monkeypatch, "--wordnet", tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows", "qt", "mine"], "--rows"),
        (["--epochs", "0"], "epochs"),
        (["--tau-plus", "1"], "tau_plus"),
        (["--lower", "0.5", "--upper", "0.4"], "lower"),
    ],
)
def test_impossible_settings(examples, capsys, arguments, named):
    from sentences import parsed

    with pytest.raises(SystemExit):
        parsed(arguments)
    assert named in capsys.readouterr().err
