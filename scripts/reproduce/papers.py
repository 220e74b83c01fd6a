"""Accuracies that the papers report, to set one's own beside; the numbers are in papers.yaml."""

from typing import NamedTuple

from reproduce import read_yaml


class Accuracy(NamedTuple):
    """An accuracy in percent, and its standard deviation over several runs if it is known."""

    mean: float
    std: float | None = None


_REPORTED = read_yaml("papers.yaml")

# What the papers call methods, variants and data sets.
TITLES: dict[str, str] = _REPORTED["titles"]

# Table 3: (method, data, variant) to the accuracy of a linear probe on the same data.
LINEAR_PROBING = {
    (method, data, variant): Accuracy(*accuracy)
    for method, variants in _REPORTED["linear_probing"].items()
    for variant, row in variants.items()
    for data, accuracy in row.items()
}

# Table 4: (method, source, target, variant) to the accuracy of a linear probe on other data.
TRANSFER = {
    (method, *names.split(), variant): Accuracy(*accuracy)
    for method, variants in _REPORTED["transfer"].items()
    for variant, row in variants.items()
    for names, accuracy in row.items()
}

# Table 2: (method, data, α, type) to the accuracy of a linear probe on the same data.
ATTENUATION = {
    (method, data, *setting.split()): Accuracy(mean)
    for method, settings in _REPORTED["attenuation"].items()
    for setting, row in settings.items()
    for data, mean in row.items()
}
