"""Accuracies that the papers report, to set one's own beside.

Understanding Contrastive Learning Through the Lens of Margins, 2023,
https://arxiv.org/abs/2306.11526: mean and standard deviation in percent.
"""

from typing import NamedTuple


class Accuracy(NamedTuple):
    """A reported accuracy, in percent."""

    mean: float
    std: float | None = None
    """Over several runs, where the paper reports it."""


SMALL_DATA = ("cifar10", "cifar100", "stl10", "tinyimagenet")
# Pretrained on the first, probed on the second.
TRANSFERS = (
    ("cifar100", "cifar10"),
    ("cifar10", "cifar100"),
    ("tinyimagenet", "stl10"),
    ("stl10", "tinyimagenet"),
)

_TABLE_3 = {
    ("mocov3_margin", "baseline"): "89.413 0.109 60.956 0.167 87.629 0.175 42.133 0.225",
    ("mocov3_margin", "margins"): "89.840 0.105 61.796 0.254 87.688 0.275 42.860 0.280",
    ("mocov3_margin", "pos"): "90.663 0.159 65.413 0.205 90.357 0.398 48.273 0.405",
    ("mocov3_margin", "pos_curv"): "90.865 0.025 66.095 0.295 90.361 0.057 48.503 0.270",
    ("simclr_margin", "baseline"): "89.653 0.207 62.655 0.277 87.188 0.145 44.184 0.220",
    ("simclr_margin", "margins"): "90.447 0.191 63.507 0.414 87.430 0.220 44.593 0.410",
    ("simclr_margin", "pos"): "89.695 0.150 62.917 0.302 87.284 0.248 44.348 0.295",
    ("simclr_margin", "pos_curv"): "90.190 0.067 63.503 0.279 87.346 0.156 44.376 0.201",
    ("byol_curv", "baseline"): "90.283 0.109 61.006 0.140 87.546 0.668 41.846 0.097",
    ("byol_curv", "curv"): "90.485 0.085 61.170 0.340 88.051 0.230 43.332 0.564",
}
_TABLE_4 = {
    ("mocov3_margin", "baseline"): "75.417 0.241 43.590 0.225 72.013 0.250 31.140 0.130",
    ("mocov3_margin", "margins"): "75.380 0.418 43.190 0.255 72.154 0.654 30.543 0.160",
    ("mocov3_margin", "pos"): "78.847 0.244 55.113 0.434 78.100 0.185 41.825 0.431",
    ("mocov3_margin", "pos_curv"): "78.600 0.042 52.940 0.750 78.734 0.040 41.777 0.690",
    ("simclr_margin", "baseline"): "77.300 0.014 48.845 0.615 75.533 0.026 35.108 0.453",
    ("simclr_margin", "margins"): "76.377 0.301 47.023 0.219 75.617 0.273 34.747 0.430",
    ("simclr_margin", "pos"): "76.893 0.220 49.090 0.262 75.675 0.194 35.067 0.380",
    ("simclr_margin", "pos_curv"): "76.620 0.190 48.683 0.107 75.571 0.220 34.280 0.215",
    ("byol_curv", "baseline"): "75.086 0.156 41.560 0.321 69.433 0.272 30.306 0.309",
    ("byol_curv", "curv"): "74.820 0.552 39.445 0.078 72.442 0.366 29.260 0.028",
}


# α and the type to the four data sets; the paper prints α = 0 once for both types.
_TABLE_2 = {
    ("mocov3_margin", 0.0, "I"): "89.413 60.956 87.629 42.133",
    ("mocov3_margin", 0.25, "I"): "89.376 60.857 87.292 42.420",
    ("mocov3_margin", 0.25, "II"): "89.713 61.217 87.455 42.460",
    ("mocov3_margin", 1.0, "I"): "89.743 60.997 87.329 42.797",
    ("mocov3_margin", 1.0, "II"): "89.633 61.263 87.442 42.510",
    ("simclr_margin", 0.0, "I"): "89.653 62.655 87.188 44.184",
    ("simclr_margin", 0.25, "I"): "89.867 62.407 87.200 44.206",
    ("simclr_margin", 0.25, "II"): "89.557 62.763 87.042 44.197",
    ("simclr_margin", 1.0, "I"): "89.735 62.840 87.300 44.260",
    ("simclr_margin", 1.0, "II"): "89.767 62.800 87.317 44.260",
}


def _accuracies(row: str) -> list[Accuracy]:
    numbers = [float(number) for number in row.split()]
    return [Accuracy(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


LINEAR_PROBING = {
    (method, data, variant): accuracy
    for (method, variant), row in _TABLE_3.items()
    for data, accuracy in zip(SMALL_DATA, _accuracies(row), strict=True)
}
"""Table 3: (method, data, variant) to the accuracy of a linear probe on the same data."""

TRANSFER = {
    (method, source, target, variant): accuracy
    for (method, variant), row in _TABLE_4.items()
    for (source, target), accuracy in zip(TRANSFERS, _accuracies(row), strict=True)
}
"""Table 4: (method, source, target, variant) to the accuracy of a linear probe on other data."""

ATTENUATION = {
    (method, data, alpha, kind): Accuracy(float(number))
    for (method, alpha, kind), row in _TABLE_2.items()
    for data, number in zip(SMALL_DATA, row.split(), strict=True)
}
"""Table 2: (method, data, α, type) to the accuracy of a linear probe on the same data."""
