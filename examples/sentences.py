"""Quick thoughts with debiased and hard negatives and distance polarization, on WordNet.

apt install wordnet-base
python examples/sentences.py --seeds 1 2 3 --output sentences

Two encoders, f and g, learn to find the partner of a sentence in the batch, as quick thoughts do
(https://arxiv.org/abs/1803.02893): the definition of a synset and an example of its use. A linear
probe then finds the lexicographer file of other synsets. Finished runs are not repeated.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from wordnet import SPLITS, Synset, Vocabulary, WordNetError, find, read, split

from solo_margins.files import append_line, complete_file, read_lines
from solo_margins.lens.measures import separation
from solo_margins.lens.records import Histogram
from solo_margins.losses import distance_polarization_loss_func, nnclr_margin_loss_func
from solo_margins.losses.checks import POSITIVE, require_count, require_number

LONGEST = 24  # words; 99 of 100 definitions are shorter
WIDTH = 128
BEFORE = "untrained"
PROBES = ("definitions", "examples")
ROWS = (BEFORE, "qt", "debiased", "hard", "qt+dp", "debiased+dp", "hard+dp")
WHAT_TO_RUN = ("wordnet", "output", "rows", "seeds")  # and not how
GROUPS = {"pair": "C0", "same file": "C2", "other file": "C1"}  # of distances, and their colours


@dataclass(frozen=True)
class Sentences:
    """Synsets as numbers of words, padded with zeros."""

    definitions: Tensor
    every_example: Tensor  # of all synsets, one after the other
    first: Tensor  # where the examples of each synset begin
    number: Tensor  # how many examples each synset has
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

    @property
    def examples(self) -> Tensor:
        """The first example of each synset."""
        return self.every_example[self.first]

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return definitions and an example of each, drawn at random."""
        drawn = (torch.rand(len(rows)) * self.number[rows]).long()
        return self.definitions[rows], self.every_example[self.first[rows] + drawn]


def bag_of_words(words: int) -> nn.Module:
    """Return an encoder of sentences: the mean of their words' vectors, and a layer."""
    vectors = nn.EmbeddingBag(words, WIDTH, mode="mean", padding_idx=Vocabulary.FILLER)
    return nn.Sequential(vectors, nn.Linear(WIDTH, WIDTH), nn.Tanh())


class QuickThoughts(nn.Module):
    """The encoder f of a sentence and the encoder g of its candidates."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.f, self.g = bag_of_words(words), bag_of_words(words)

    @torch.no_grad()
    def features(self, sentences: Tensor) -> Tensor:
        """Return what a downstream task gets: both encodings of each sentence."""
        return torch.cat([self.f(sentences), self.g(sentences)], dim=1)

    @torch.no_grad()
    def distances(self, data: Sentences) -> dict[str, Tensor]:
        """Return D = (1 − cos)/2 of f(definition) and g(example), by group."""
        cosine = normalize(self.f(data.definitions)) @ normalize(self.g(data.examples)).t()
        distance = (1 - cosine) / 2
        own = torch.eye(len(data.labels), dtype=torch.bool)
        same = data.labels == data.labels.unsqueeze(1)
        groups = (distance[own], distance[same & ~own], distance[~same])
        return dict(zip(GROUPS, groups, strict=True))


def contrast(query: Tensor, key: Tensor, row: str, settings: argparse.Namespace) -> Tensor:
    """Return the loss of a row of the table; key i is the partner of query i."""
    negatives, _, polarized = row.partition("+")
    tau_plus = 0.0 if negatives == "qt" else settings.tau_plus
    beta = settings.beta if negatives == "hard" else 0.0
    loss = nnclr_margin_loss_func(query, key, settings.temperature, tau_plus=tau_plus, beta=beta)
    if polarized:
        both = torch.cat([query, key])
        penalty = distance_polarization_loss_func(both, settings.lower, settings.upper)
        loss = loss + settings.weight * penalty
    return loss


def train(
    model: QuickThoughts, data: Sentences, row: str, settings: argparse.Namespace, title: str
) -> list[float]:
    """Train a model and return the mean loss of every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, fused=True)
    batch_size = min(settings.batch_size, len(data.labels))
    steps = len(data.labels) // batch_size
    means = []
    with tqdm(total=settings.epochs * steps, desc=title, unit="step", mininterval=1.0) as bar:
        for _ in range(settings.epochs):
            losses = []
            for rows in torch.randperm(len(data.labels))[: steps * batch_size].split(batch_size):
                definitions, examples = data.pairs(rows)
                loss = contrast(model.f(definitions), model.g(examples), row, settings) / 2
                loss = loss + contrast(model.f(examples), model.g(definitions), row, settings) / 2
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                bar.update()
            means.append(statistics.mean(losses))
            bar.set_postfix(loss=f"{means[-1]:.3f}")
    return means


def probe(model: QuickThoughts, data: Sentences, held_out: Sentences, texts: str) -> float:
    """Return the accuracy, in percent, of a logistic regression on frozen features."""
    x, held_out_x = (model.features(getattr(part, texts)) for part in (data, held_out))
    mean, deviation = x.mean(dim=0), x.std(dim=0).clamp_min(1e-6)
    x, held_out_x = (x - mean) / deviation, (held_out_x - mean) / deviation
    classifier = LogisticRegression(C=0.01, max_iter=300, tol=1e-3)
    classifier.fit(x.numpy(), data.labels.numpy())
    return 100 * float(classifier.score(held_out_x.numpy(), held_out.labels.numpy()))


def measure(
    model: QuickThoughts, data: Sentences, held_out: Sentences, settings: argparse.Namespace
) -> dict[str, Any]:
    """Return the numbers of the table and the counts of distances of each group."""
    groups = model.distances(held_out)
    pair, *others = groups.values()
    every = torch.cat([pair, *others])
    in_band = (every > settings.lower) & (every < settings.upper)
    numbers = {
        **{texts: probe(model, data, held_out, texts) for texts in PROBES},
        "pair closer": 100 * separation(pair, torch.cat(others)),
        "in band": 100 * in_band.double().mean().item(),
        **{f"D {name}": distances.mean().item() for name, distances in groups.items()},
    }
    counts = {name: Histogram.of(one, 0.0, 1.0, 50).counts for name, one in groups.items()}
    return {"numbers": {key: round(n, 4) for key, n in numbers.items()}, "counts": counts}


def as_markdown(results: Sequence[dict[str, Any]]) -> str:
    """Return the table: means over seeds ± their deviation, also of differences to QT."""
    plain = {one["seed"]: one["numbers"] for one in results if one["row"] == "qt"}
    rows: dict[str, dict[str, list[float]]] = {}
    for one in results:
        columns = rows.setdefault(one["row"], defaultdict(list))
        for key, value in one["numbers"].items():
            columns[key].append(value)
            if key in PROBES and plain:
                columns[f"{key} − qt"].append(value - plain[one["seed"]][key])
    head = ["", *next(iter(rows.values()))]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row, columns in rows.items():
        cells = [row]
        for key, values in columns.items():
            digits = 3 if key.startswith("D ") else 2 if "−" in key else 1
            deviation = statistics.stdev(values) if len(values) > 1 else float("nan")
            cells.append(f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}")
        lines.append(cells)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def draw(results: Sequence[dict[str, Any]], band: tuple[float, float], path: Path) -> None:
    """Draw the distances of each row, all seeds together, and dotted those of the first row."""
    rows = list(dict.fromkeys(one["row"] for one in results if one["row"] != BEFORE)) or [BEFORE]
    lines = -(-len(rows) // 3)
    figure = Figure(figsize=(12.6, 2.9 * lines + 0.6))
    axes = figure.subplots(lines, 3, sharex=True, sharey=True, squeeze=False)
    first: dict[str, Tensor] = {}
    for axis, row in zip(axes.flat, rows, strict=False):
        axis.axvspan(*band, color="gold", alpha=0.25, lw=0, label="band of dp")
        for group, colour in GROUPS.items():
            counts = torch.tensor([r["counts"][group] for r in results if r["row"] == row]).sum(0)
            shares = counts / counts.sum()
            edges = torch.linspace(0, 1, len(counts) + 1)
            axis.stairs(shares, edges, color=colour, lw=1.8, label=group)
            axis.stairs(first.setdefault(group, shares), edges, color=colour, ls=":")
        axis.set(title=row, xlim=(0.12, 0.88))
    axes[0, 0].legend(fontsize=9, frameon=False)
    figure.supxlabel(f"D = (1 − cos θ)/2 of a definition and an example; dotted: {rows[0]}")
    figure.supylabel("share")
    figure.tight_layout()
    with complete_file(path) as partial:
        figure.savefig(partial, dpi=110)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the settings of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--wordnet", type=Path, help="folder of WordNet's data files; found by itself if installed")
    add("--output", type=Path, default=Path("sentences"), help="folder for results and figure")
    add("--rows", nargs="+", default=ROWS, choices=ROWS, help="of the table")
    add("--seeds", nargs="+", type=int, default=[1])
    add("--probe-on", choices=SPLITS[1:], default="test", help="settings: choose by validation")
    add("--epochs", type=int, default=8)
    add("--batch-size", type=int, default=256)
    add("--lr", type=float, default=3e-3)
    add("--temperature", type=float, default=0.05)
    add("--tau-plus", type=float, default=0.01, help="share of false negatives")
    add("--beta", type=float, default=0.25, help="preference of hard negatives")
    add("--weight", type=float, default=100.0, help="λ of distance polarization (dp)")
    add("--lower", type=float, default=0.3, help="δ⁺, where its band begins")
    add("--upper", type=float, default=0.45, help="δ⁻, where its band ends")
    settings = parser.parse_args(words)
    try:
        require_count("epochs", settings.epochs)
        require_count("batch_size", settings.batch_size)
        require_number("lr", settings.lr, POSITIVE)
        require_number("weight", settings.weight, POSITIVE)
        for row in ROWS[1:]:  # the losses check their own settings
            contrast(torch.eye(2), torch.eye(2), row, settings)
    except ValueError as error:
        parser.error(str(error))
    return settings


def main() -> None:
    """Train and probe every row with every seed, and write table and figure."""
    settings = parsed()
    try:
        parts = split(read(find(settings.wordnet)))
    except WordNetError as error:
        sys.exit(str(error))
    texts = (text for one in parts["train"] for text in (one.definition, *one.examples))
    vocabulary = Vocabulary(texts)
    data = Sentences.of(parts["train"], vocabulary)
    held_out = Sentences.of(parts[settings.probe_on], vocabulary)
    majority = (held_out.labels == data.labels.mode().values).double().mean().item()
    print(
        *(f"{len(synsets)} synsets {part}," for part, synsets in parts.items()),
        f"{len(vocabulary)} words; largest file: {majority:.1%} of {settings.probe_on}",
        flush=True,
    )
    described = {key: value for key, value in vars(settings).items() if key not in WHAT_TO_RUN}
    path = settings.output / "results.jsonl"
    finished = read_lines(path, json.loads)[0] if path.exists() else []
    results = []
    for row in settings.rows:
        for seed in settings.seeds:
            run: dict[str, Any] = {"row": row, "seed": seed, "settings": described}
            result = next((one for one in finished if run.items() <= one.items()), None)
            if result is None:
                began = time.process_time()
                torch.manual_seed(seed)
                model = QuickThoughts(len(vocabulary))
                title = f"{row}, seed {seed}"
                losses = [] if row == BEFORE else train(model, data, row, settings, title)
                result = run | {"losses": losses} | measure(model, data, held_out, settings)
                result["seconds"] = round(time.process_time() - began)
                append_line(path, json.dumps(result))
                print(f"{title}: {result['numbers']}", flush=True)
            results.append(result)
    table = as_markdown(results)
    with complete_file(settings.output / "table.md") as partial:
        partial.write_text(table)
    draw(results, (settings.lower, settings.upper), settings.output / "distances.png")
    print(table)


if __name__ == "__main__":
    main()
