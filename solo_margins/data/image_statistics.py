"""Mean and standard deviation that solo-learn normalises the images of a data set with."""

from typing import Any

Channels = tuple[float, ...]

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)

# Mean and standard deviation of the channels, by data set.
STATISTICS: dict[str, tuple[Channels, Channels]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "stl10": ((0.4914, 0.4823, 0.4466), (0.247, 0.243, 0.261)),
    "imagenet100": (IMAGENET_MEAN, IMAGENET_STD),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
}


def statistics_of(dataset: str, view: Any) -> tuple[Channels, Channels]:
    """Return mean and standard deviation of a view: the data set's own, or else the configured."""
    configured = (view.get("mean") or IMAGENET_MEAN, view.get("std") or IMAGENET_STD)
    mean, std = STATISTICS.get(dataset, configured)
    return tuple(mean), tuple(std)
