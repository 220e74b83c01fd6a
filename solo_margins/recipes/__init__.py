"""The papers' values, and ours, by method, data set and variant.

They are in the YAML files beside this one: a file for each method, and ``every_data.yaml`` for
variants that are the same on every data set. Our configurations ask for single values by the
resolver ``${solo_margins.recipe:<method>,<data>,<variant>,<key>,<default>}``.
"""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from solo_margins.method_names import canonical_name

FOLDER = Path(__file__).parent
OPTIMIZERS = FOLDER.parent / "configs" / "optimizer"

Values = dict[str, Any]
Variants = dict[str, Values]

# Whose values are not ours: what a run prints.
PAPER = "values of arXiv 2306.11526, appendix A and B.2"


def _read(file: Path) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(file))
    return content


def _variants_of_every_data() -> Variants:
    """Return the variants of ``every_data.yaml``, with the settings of their optimizers."""
    variants = _read(FOLDER / "every_data.yaml")
    for values in variants.values():
        if "optimizer" in values:
            values["optimizer"] = _read(OPTIMIZERS / f"{values['optimizer']}.yaml")
    return variants


def _recipes_of(method: str) -> dict[str, Variants]:
    """Return data to variant to its settings, for a method."""
    content = _read(FOLDER / f"{method}.yaml")
    # A method without values of its own names the one whose values it takes.
    source = _read(FOLDER / f"{content.get('values_of', method)}.yaml")
    of_every_data = _variants_of_every_data()
    by_data: dict[str, Variants] = {}
    for whose in ("paper", "ours"):
        for data, cells in source[whose].items():
            variants = by_data.setdefault(data, {"baseline": {"margins": {}}})
            for variant, fields in cells.items():
                variants[variant] = {"margins": fields}
    for variants in by_data.values():
        for variant in content.get("every_data", ()):
            variants[variant] = of_every_data[variant]
    return by_data


def _methods() -> list[str]:
    """Return the methods that have a file; those with values of their own come first."""
    names = [file.stem for file in sorted(FOLDER.glob("*.yaml")) if file.stem != "every_data"]
    return sorted(names, key=lambda name: "values_of" in _read(FOLDER / f"{name}.yaml"))


# Method to data to variant to its settings: groups of ``method_kwargs``, and ``optimizer``.
RECIPES: dict[str, dict[str, Variants]] = {method: _recipes_of(method) for method in _methods()}


def recipe_value(method: str, data: str, variant: str, key: str, default: Any = None) -> Any:
    """Return one value of a recipe, or a default where the recipe does not set it.

    ``baseline`` sets nothing, so that it is defined for every method and for all data.

    Args:
        method: the method.
        data: the data set.
        variant: the variant.
        key: the setting, such as ``"margins.angular"``.
        default: the value without the variant.

    Raises:
        ValueError: there is no such recipe; the message lists those that there are.

    Examples:
        >>> recipe_value("mocov3_margin", "cifar10", "pos", "margins.positive_scale", 1.0)
        20
        >>> recipe_value("mocov3_margin", "cifar10", "pos", "margins.angular", 0.0)
        0.0
        >>> recipe_value("byol_curv", "cifar10", "pos", "margins.angular", 0.0)
        Traceback (most recent call last):
        ...
        ValueError: variant=pos is not defined for byol_curv on cifar10: choose one of baseline, \
curv.
    """
    if variant == "baseline":
        return default
    value: Any = _recipe(canonical_name(method), data, variant)
    for name in key.split("."):
        if name not in value:
            return default
        value = value[name]
    # OmegaConf resolves to lists of its own alone.
    return OmegaConf.create(value) if isinstance(value, list) else value


def _recipe(method: str, data: str, variant: str) -> Values:
    """Return the settings of a recipe, or raise ``ValueError`` with those that there are."""
    if method not in RECIPES:
        raise ValueError(
            f"variant={variant} is not defined for method={method}, which has no recipes: use "
            "variant=baseline and set method_kwargs.margins.*."
        )
    by_data = RECIPES[method]
    if data not in by_data:
        raise ValueError(
            f"variant={variant} is not defined for {method} on data.name={data}: choose the data "
            f"from {', '.join(by_data)}, or use variant=baseline."
        )
    if variant not in by_data[data]:
        raise ValueError(
            f"variant={variant} is not defined for {method} on {data}: choose one of "
            f"{', '.join(by_data[data])}."
        )
    return by_data[data][variant]


def is_from_paper(method: str, data: str, variant: str) -> bool:
    """Return whether the margins paper gives the values of a recipe; otherwise they are ours."""
    if method not in RECIPES:
        return False
    of_paper = _read(FOLDER / f"{method}.yaml").get("paper", {})
    return data in of_paper and (variant == "baseline" or variant in of_paper[data])


# The margins paper probes ImageNet as MoCo v3 does (its main_lincls.py), with crops from 0.08
# independent of the crops in pretraining.
_PROBE_ON = {"imagenet": {"max_epochs": 90, "lr": 0.1, "crop_min_scale": 0.08}}


# SimCLR's fine-tuning (arXiv 2002.05709, appendix B.5), by percent of the labels.
_FEW_LABELS = {
    "1": {"fraction": 0.01, "max_epochs": 60},
    "10": {"fraction": 0.1, "max_epochs": 30},
}


def few_labels_setting(labels: Any, name: str) -> Any:
    """Return a setting of fine-tuning on a percentage of the labels.

    Raises:
        ValueError: SimCLR has no values for this percentage.

    Examples:
        >>> few_labels_setting(1, "fraction"), few_labels_setting(10, "max_epochs")
        (0.01, 30)
    """
    if str(labels) not in _FEW_LABELS:
        raise ValueError(
            f"labels must be 1 or 10, in percent of the training images, got {labels!r}: for "
            "another share set data.fraction and max_epochs."
        )
    return _FEW_LABELS[str(labels)][name]


def probe_setting(data: str | None, name: str, default: Any) -> Any:
    """Return a setting of the linear probe on a data set, or the default for all other data.

    Examples:
        >>> probe_setting("imagenet", "max_epochs", 100), probe_setting("cifar10", "lr", 1.0)
        (90, 1.0)
    """
    return _PROBE_ON.get(data or "", {}).get(name, default)
