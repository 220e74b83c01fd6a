"""Quick thoughts with distance polarization and with margins: sentences of WordNet, no images.

apt install wordnet-base
python examples/sentences.py --seeds 1 2 --output sentences

Two encoders, f and g, learn to find the partner of a sentence among those of the batch, as quick
thoughts do (https://arxiv.org/abs/1803.02893): the definition of a synset and an example of its
use. Then a linear probe finds the lexicographer file of sentences of other synsets.
"""

import argparse
import csv
import io
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from sentence_figure import draw
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from wordnet import SPLITS, Synset, Vocabulary, WordNetError, find, read, split

from solo_margins.files import complete_file
from solo_margins.lens.curves import described
from solo_margins.lens.measures import separation
from solo_margins.lens.records import Histogram
from solo_margins.losses import (
    Margins,
    distance_polarization_loss_func,
    nnclr_margin_loss_func,
)
from solo_margins.losses.checks import require_band

LONGEST = 24  # words; 99 of 100 definitions are shorter
WIDTH, FEATURES = 128, 128
BINS = 50
NO_MARGINS = Margins()


@dataclass(frozen=True)
class Row:
    """What is added to quick thoughts."""

    name: str
    margins: Margins = NO_MARGINS
    polarization: float = 0.0
    """Weight of the regulariser."""


@dataclass(frozen=True)
class Sentences:
    """Synsets as numbers of words, padded with zeros."""

    definitions: Tensor
    examples: Tensor
    """Of all synsets, one after the other."""
    first: Tensor
    """Where the examples of each synset begin."""
    number: Tensor
    """How many examples each synset has."""
    labels: Tensor

    @classmethod
    def of(cls, synsets: Sequence[Synset], vocabulary: Vocabulary) -> "Sentences":
        """Return synsets as numbers."""

        def padded(texts: Sequence[str]) -> Tensor:
            rows = [torch.tensor(vocabulary.encode(text, LONGEST)) for text in texts]
            return pad_sequence(rows, batch_first=True)

        number = torch.tensor([len(one.examples) for one in synsets])
        return cls(
            padded([one.definition for one in synsets]),
            padded([text for one in synsets for text in one.examples]),
            number.cumsum(0) - number,
            number,
            torch.tensor([one.label for one in synsets]),
        )

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return definitions and an example of each, drawn at random."""
        drawn = (torch.rand(len(rows)) * self.number[rows]).long()
        return self.definitions[rows], self.examples[self.first[rows] + drawn]

    def __len__(self) -> int:
        return len(self.labels)


class Encoder(nn.Module):
    """A bag of words: the mean of their vectors, and a layer.

    Args:
        words: how many words there are.
    """

    def __init__(self, words: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, WIDTH, mode="mean", padding_idx=Vocabulary.FILLER)
        self.layer = nn.Sequential(nn.Linear(WIDTH, FEATURES), nn.Tanh())

    def forward(self, sentences: Tensor) -> Tensor:
        """Return one vector for each sentence."""
        encoded: Tensor = self.layer(self.vectors(sentences))
        return encoded


class QuickThoughts(nn.Module):
    """The encoder f of a sentence and the encoder g of its candidates.

    Args:
        words: how many words there are.
    """

    def __init__(self, words: int) -> None:
        super().__init__()
        self.f = Encoder(words)
        self.g = Encoder(words)

    def loss(
        self,
        definitions: Tensor,
        examples: Tensor,
        row: Row,
        temperature: float,
        band: tuple[float, float],
    ) -> Tensor:
        """Return the loss of pairs: f of each sentence against g of all possible partners."""
        f_definitions, f_examples = self.f(definitions), self.f(examples)
        g_definitions, g_examples = self.g(definitions), self.g(examples)
        total = torch.zeros(())
        for query, candidates in ((f_definitions, g_examples), (f_examples, g_definitions)):
            total = total + nnclr_margin_loss_func(query, candidates, temperature, row.margins)
            if row.polarization:
                every = torch.cat([query, candidates])
                total = total + row.polarization * distance_polarization_loss_func(every, *band)
        return total / 2

    @torch.no_grad()
    def features(self, sentences: Tensor) -> Tensor:
        """Return what a downstream task gets: both encodings of each sentence."""
        parts = [torch.cat([self.f(part), self.g(part)], dim=1) for part in sentences.split(2048)]
        return torch.cat(parts)

    @torch.no_grad()
    def distances(self, data: Sentences) -> tuple[Tensor, Tensor]:
        """Return D = (1 − cos)/2 of all pairs, and of all definitions with others' examples."""
        f_definitions = normalize(self.f(data.definitions), dim=1)
        g_examples = normalize(self.g(data.examples[data.first]), dim=1)
        distance = (1 - f_definitions @ g_examples.t()) / 2
        own = torch.eye(len(data), dtype=torch.bool)
        return distance[own], distance[~own]


def train(
    model: QuickThoughts, data: Sentences, row: Row, arguments: argparse.Namespace, title: str
) -> list[float]:
    """Train a model and return the mean loss of every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr, fused=True)
    batch_size = min(arguments.batch_size, len(data))
    steps = len(data) // batch_size
    band = (arguments.lower, arguments.upper)
    means = []
    with tqdm(total=arguments.epochs * steps, desc=title, unit="step", mininterval=1.0) as bar:
        for _ in range(arguments.epochs):
            losses = []
            for rows in torch.randperm(len(data))[: steps * batch_size].split(batch_size):
                loss = model.loss(*data.pairs(rows), row, arguments.temperature, band)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                bar.update()
            means.append(statistics.mean(losses))
            bar.set_postfix(loss=f"{means[-1]:.3f}")
    return means


def probe(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    """Return the test accuracy, in percent, of a logistic regression on frozen features."""
    mean, deviation = train[0].mean(dim=0), train[0].std(dim=0).clamp_min(1e-6)
    (x, y), (test_x, test_y) = [
        (((features - mean) / deviation).numpy(), labels.numpy())
        for features, labels in (train, test)
    ]
    classifier = LogisticRegression(C=0.01, max_iter=300, tol=1e-3).fit(x, y)
    return 100 * float(classifier.score(test_x, test_y))


@dataclass(frozen=True)
class Measured:
    """What was measured of one model."""

    row: str
    seed: int
    numbers: dict[str, float]
    pairs: Histogram
    others: Histogram


def measure(
    model: QuickThoughts, data: Sentences, held_out: Sentences, band: tuple[float, float]
) -> tuple[dict[str, float], Histogram, Histogram]:
    """Return numbers, and the histograms of distances of pairs and of non-pairs."""
    own, others = model.distances(held_out)
    every = torch.cat([own, others])
    numbers = {
        "definitions": probe(
            (model.features(data.definitions), data.labels),
            (model.features(held_out.definitions), held_out.labels),
        ),
        "examples": probe(
            (model.features(data.examples[data.first]), data.labels),
            (model.features(held_out.examples[held_out.first]), held_out.labels),
        ),
        "separation": 100 * separation(own, others),
        "pair_distance": own.mean().item(),
        "other_distance": others.mean().item(),
        "in_band": 100 * ((every > band[0]) & (every < band[1])).double().mean().item(),
    }
    return numbers, Histogram.of(own, 0.0, 1.0, BINS), Histogram.of(others, 0.0, 1.0, BINS)


def rows_of(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Return the rows of the table by their names on the command line."""
    margins = Margins(angular=arguments.angular, subtractive=arguments.subtractive)
    scaled = Margins(positive_scale=arguments.scale, curvature=arguments.curvature)
    return {
        "qt": [Row("QT")],
        "dp": [Row(f"QT + dp (λ = {one:g})", polarization=one) for one in arguments.weights],
        "margins": [Row(f"QT + margins ({described(margins)})", margins)],
        "scaled": [Row(f"QT + margins ({described(scaled)})", scaled)],
    }


def as_csv(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Return a table with its head."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return file.getvalue()


def numbers_csv(results: Sequence[Measured]) -> str:
    """Return all numbers, a line for each model."""
    return as_csv(
        ["row", "seed", *results[0].numbers],
        ([one.row, one.seed, *(f"{n:.4f}" for n in one.numbers.values())] for one in results),
    )


def histograms_csv(results: Sequence[Measured]) -> str:
    """Return the counts of distances, a line for each model and bin."""
    return as_csv(
        ["row", "seed", "distance", "pairs", "others"],
        (
            [one.row, one.seed, f"{centre:.2f}", *counts]
            for one in results
            for centre, *counts in zip(
                one.pairs.centres, one.pairs.counts, one.others.counts, strict=True
            )
        ),
    )


def as_markdown(results: Sequence[Measured], majority: float) -> str:
    """Return the table: means over seeds, with their deviation."""
    lines = [
        "| | definitions, % | usage examples, % | pair closer, % | D of pairs | D of others "
        "| in the band, % |",
        "|---|---:|---:|---:|---:|---:|---:|",
        f"| majority class | {majority:.1f} | {majority:.1f} | | | | |",
    ]
    for name in dict.fromkeys(one.row for one in results):
        of_row = [one.numbers for one in results if one.row == name]
        cells = [name]
        for key in of_row[0]:
            values = [numbers[key] for numbers in of_row]
            mean = statistics.mean(values)
            if key.endswith("distance"):
                cells.append(f"{mean:.3f}")
            elif len(values) > 1:
                cells.append(f"{mean:.1f} ± {statistics.stdev(values):.1f}")
            else:
                cells.append(f"{mean:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def whole(text: str) -> int:
    """Return a whole number above 0 of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Return a number above 0 of the command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--wordnet", type=Path, help="folder of WordNet's data files; found by itself if installed")
    add("--output", type=Path, default=Path("sentences"), help="folder for table, CSV and figure")
    add("--rows", nargs="+", default=["qt", "dp", "margins", "scaled"], help="of the table")
    add("--seeds", nargs="+", type=int, default=[1])
    add("--epochs", type=whole, default=8)
    add("--pairs", type=whole, help="train on so many synsets, not on all")
    add("--batch-size", type=whole, default=256)
    add("--lr", type=positive, default=3e-3)
    add("--temperature", type=positive, default=0.1)
    add("--probe-on", choices=SPLITS[1:], default="test", help="settings: choose by validation")
    add("--weights", nargs="+", type=positive, default=[100.0, 1000.0], help="λ, a row dp for each")
    add("--lower", type=float, default=0.2, help="δ⁺, where its band begins")
    add("--upper", type=float, default=0.4, help="δ⁻, where its band ends")
    add("--angular", type=float, default=0.1, help="m₁ of the row margins")
    add("--subtractive", type=float, default=0.1, help="m₂ of the row margins")
    add("--scale", type=float, default=2.0, help="s of the row scaled")
    add("--curvature", type=float, default=1.0, help="c of the row scaled")
    arguments = parser.parse_args(given)
    try:
        known = rows_of(arguments)
        require_band(arguments.lower, arguments.upper)
    except ValueError as error:
        parser.error(str(error))
    unknown = [name for name in arguments.rows if name not in known]
    if unknown:
        parser.error(f"--rows must be of {', '.join(known)}, got {', '.join(unknown)}")
    return arguments


def main() -> None:
    """Train and probe every row with every seed, and write table, CSV and figure."""
    arguments = parsed()
    try:
        parts = split(read(find(arguments.wordnet)))
    except WordNetError as error:
        sys.exit(str(error))
    every = parts["train"]
    number = min(arguments.pairs or len(every), len(every))
    # Evenly from all files: the first lines are nouns of one kind.
    synsets = [every[place * len(every) // number] for place in range(number)]
    vocabulary = Vocabulary(text for one in synsets for text in (one.definition, *one.examples))
    data = Sentences.of(synsets, vocabulary)
    held_out = Sentences.of(parts[arguments.probe_on], vocabulary)
    print(
        f"{len(data)} synsets train, {len(held_out)} {arguments.probe_on}; {len(vocabulary)} words",
        flush=True,
    )
    band = (arguments.lower, arguments.upper)
    known = rows_of(arguments)
    before = Row("untrained")
    results = []
    for row in [before, *(row for name in arguments.rows for row in known[name])]:
        for seed in arguments.seeds:
            torch.manual_seed(seed)
            model = QuickThoughts(len(vocabulary))
            title = f"{row.name}, seed {seed}"
            if row is not before:
                losses = train(model, data, row, arguments, title)
                title += f": loss {losses[0]:.4f} to loss {losses[-1]:.4f}"
            results.append(Measured(row.name, seed, *measure(model, data, held_out, band)))
            numbers = ", ".join(f"{key} {value:.3f}" for key, value in results[-1].numbers.items())
            print(f"{title}: {numbers}", flush=True)
    most_frequent = data.labels.bincount().argmax()
    majority = 100 * (held_out.labels == most_frequent).double().mean().item()
    table = as_markdown(results, majority)
    for file, text in (
        ("table.md", table),
        ("results.csv", numbers_csv(results)),
        ("histograms.csv", histograms_csv(results)),
    ):
        with complete_file(arguments.output / file) as partial:
            partial.write_text(text)
    draw(results, band, arguments.output / "distances.png")
    print(table)


if __name__ == "__main__":
    main()
