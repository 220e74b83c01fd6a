"""Linear probe, kNN and recall@1 of a pretrained backbone on several data sets, as one table.

    python -m solo_margins.transfer pretrained_feature_extractor=<checkpoint> \\
        data=[cifar10,cifar100,flowers] cifar10.train_path=<folder> \\
        cifar100.train_path=<folder> flowers.train_path=<folder>

    pretrained_feature_extractor=…  a pretraining checkpoint, or the folder of its run
    data=[…]                        digits, cifar10, cifar100, stl10, tinyimagenet, imagenet,
                                    imagenet100; any other name is that of an image folder
    <name>.train_path=…             where the images of a data set are; any setting of data can be
    <name>.val_path=…               given to one data set so
    passes=0                        the centre view, which all three measures share; more: augmented
                                    passes for the linear layer, as in the fast probe
    results=…                       a file that a line of JSON is added to for every data set

All other settings are those of the fast probe, and apply to every data set. Features of a data set
are extracted once. docs/evaluation.md explains every setting.
"""

import time
from collections.abc import Sequence

from solo_margins.data.dataset_paths import OURS
from solo_margins.evaluation.knn import neighbour_figures
from solo_margins.evaluation.probe import PROTOCOL, load_probe, probe_features, protocol
from solo_margins.evaluation.task import parse

OWN = {"passes": 0}
# Figures of a results line and their columns.
COLUMNS = {"linear_acc1": "linear", "knn_acc1": "kNN", "recall_at_1": "recall@1"}


def transfer(arguments: Sequence[str], progress: bool = True) -> dict[str, dict[str, float]]:
    """Return the figures of a checkpoint by data set, and print them as a table.

    Args:
        arguments: ``key=value`` each, as in the example of this module.
        progress: whether there are progress bars.

    Raises:
        ValueError: an argument or a data set cannot be used, which is found before the first of
            them is evaluated; the message is one sentence.
    """
    tasks = {}
    for name, of_one in arguments_by_data(arguments).items():
        try:
            cfg, options = parse(of_one, OWN, PROTOCOL)
            tasks[name] = load_probe(cfg, **options, progress=progress)
        except ValueError as error:
            raise ValueError(f"{name} (data.* is {name}.* here): {error}") from None
    passes = options["passes"]
    figures: dict[str, dict[str, float]] = {}
    for name in list(tasks):
        began = time.perf_counter()
        # Without the reference its images and features can be freed.
        task = tasks.pop(name)
        layer = probe_features(task, passes)
        neighbours = neighbour_figures(task)
        figures[name] = {
            "linear_acc1": layer.acc1,
            "linear_acc5": layer.acc5,
            "knn_acc1": neighbours["acc1"],
            "knn_acc5": neighbours["acc5"],
            "recall_at_1": neighbours["recall_at_1"],
        }
        seconds = time.perf_counter() - began
        task.record("transfer", {"passes": passes}, figures[name], seconds)
    print(f"Linear layer: {protocol(layer)}; kNN: k=20. Percent of the validation images:\n")
    print(table(figures))
    return figures


def arguments_by_data(arguments: Sequence[str]) -> dict[str, list[str]]:
    """Return the arguments of the fast probe for each data set that ``data=[…]`` names.

    Examples:
        >>> arguments_by_data(["data=[digits,pets]", "pets.train_path=/pets", "passes=1"])
        {'digits': ['data=digits', 'passes=1'], 'pets': ['data=folder', \
'data.train_path=/pets', 'passes=1']}
    """
    names: list[str] = []
    shared = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "data":
            names = [name.strip() for name in value.strip("[]").split(",") if name.strip()]
        else:
            shared.append(argument)
    if not names:
        raise ValueError("Name the data sets to evaluate on: data=[cifar10,cifar100].")
    by_data = {}
    for name in names:
        own = [argument for argument in shared if argument.startswith(f"{name}.")]
        if name not in OURS and not own:
            raise ValueError(
                f"data={name} is neither one of {', '.join(OURS)} nor an image folder with "
                f"{name}.train_path=<folder>."
            )
        by_data[name] = [f"data={name if name in OURS else 'folder'}"]
        by_data[name] += [f"data.{argument.removeprefix(f'{name}.')}" for argument in own]
    for argument in shared:
        if argument.partition(".")[0] not in names:
            for of_one in by_data.values():
                of_one.append(argument)
    return by_data


def table(figures: dict[str, dict[str, float]]) -> str:
    """Return figures by data set as a table in Markdown."""
    lines = [["data", *COLUMNS.values()], ["---"] + ["---:"] * len(COLUMNS)]
    for name, measured in figures.items():
        lines.append([name, *(f"{measured[figure]:.2f}" for figure in COLUMNS)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
