"""The papers' experiments by method, data set and variant, as configurations Hydra can select.

The config group ``recipe/<method>`` has one entry ``<data>-<variant>`` for each defined pair.
Asking for any other pair fails and says which there are.
"""

from pathlib import Path
from typing import Any

Values = dict[str, Any]
Variants = dict[str, Values]


def _read(source: str) -> dict[str, dict[str, Variants]]:
    """Return method to data to variant to its settings, from the rows of a source."""
    lines = Path(__file__).with_suffix(".txt").read_text().splitlines()
    columns, *rows = [line.split() for line in lines if line and not line.startswith("#")]
    recipes: dict[str, dict[str, Variants]] = {}
    for of_source, method, data, *cells in rows:
        if of_source != source:
            continue
        variants: Variants = {"baseline": {"margins": {}}}
        for column, cell in zip(columns[3:], cells, strict=True):
            variant, field = column.split(".")
            if cell != "-":
                variants.setdefault(variant, {"margins": {}})["margins"][field] = float(cell)
        recipes.setdefault(method, {})[data] = variants
    return recipes


_PAPER, _OURS = _read("paper"), _read("ours")

# Large-Margin Contrastive Learning with Distance Polarization Regularizer: SimCLR, debiased and
# hard negatives, each without and with the regulariser (dp). The paper's text gives no values.
# Temperature, τ⁺ and β are those of the papers on debiased and on hard negatives; band and weight
# are values to begin with.
POLARIZATION = {"weight": 10.0, "lower": 0.2, "upper": 0.4}
_DEBIASED = {"kind": "debiased", "tau_plus": 0.1}
_HARD = {"kind": "hard", "tau_plus": 0.1, "beta": 1.0}
_SECOND_PAPER: dict[str, Values] = {
    "dp": {"temperature": 0.5, "polarization": POLARIZATION},
    "debiased": {"temperature": 0.5, "negatives": _DEBIASED},
    "debiased_dp": {"temperature": 0.5, "negatives": _DEBIASED, "polarization": POLARIZATION},
    "hard": {"temperature": 0.5, "negatives": _HARD},
    "hard_dp": {"temperature": 0.5, "negatives": _HARD, "polarization": POLARIZATION},
}

# Decoupled Contrastive Learning (arXiv 2110.06848): its gradient is that of α = 1, type I.
_DECOUPLED: Variants = {"decoupled": {"margins": {"attenuation": 1.0}}}

# The other methods take the margins of the one that is most like them.
_RELATIVES = {
    "mocov3_margin": ["mocov2plus_margin"],
    "simclr_margin": ["nnclr_margin", "supcon_margin", "deepclusterv2_margin"],
    "byol_curv": ["simsiam_curv", "nnsiam_curv", "nnbyol_curv", "wmse_curv"],
}

# Method to data to variant to its settings in ``method_kwargs``. Users' own images start with what
# works on the small data here.
RECIPES = {
    method: {**by_data, **_OURS[method], "folder": _OURS[method]["digits"]}
    for method, by_data in _PAPER.items()
}
for _method, _relatives in _RELATIVES.items():
    if _method != "byol_curv":  # it has no negatives
        RECIPES[_method] = {data: {**cell, **_DECOUPLED} for data, cell in RECIPES[_method].items()}
    RECIPES |= dict.fromkeys(_relatives, RECIPES[_method])
# The second paper has SimCLR alone; the same values for the others are ours.
for _method in ("simclr_margin", "mocov3_margin", "mocov2plus_margin", "nnclr_margin"):
    RECIPES[_method] = {
        data: {**by_variant, **_SECOND_PAPER} for data, by_variant in RECIPES[_method].items()
    }


def is_from_paper(method: str, data: str, variant: str) -> bool:
    """Return whether a paper gives the values of a recipe; otherwise they are ours."""
    return variant in _PAPER.get(method, {}).get(data, {})


def are_data_of_papers(data: str) -> bool:
    """Return whether a paper gives margins for a data set."""
    return any(data in by_data for by_data in _PAPER.values())


def default_variant(method: str, data: str) -> str:
    """Return the default variant of a method on a data set.

    For data that no paper uses it is the paper's margins for CIFAR-10, because no study supports a
    scale there.

    Example:
        >>> default_variant("mocov3_margin", "stl10"), default_variant("byol_curv", "stl10")
        ('pos_curv', 'curv')
        >>> default_variant("mocov3_margin", "folder"), default_variant("byol_curv", "folder")
        ('margins', 'curv')
    """
    if "curv" in RECIPES[method]["cifar10"]:
        return "curv"
    return "pos_curv" if are_data_of_papers(data) else "margins"


# The margins paper probes ImageNet as MoCo v3 does (its main_lincls.py), with crops from 0.08
# independent of the crops in pretraining.
_PROBE_ON = {"imagenet": {"max_epochs": 90, "lr": 0.1, "crop_min_scale": 0.08}}


def probe_setting(data: str | None, name: str, default: Any) -> Any:
    """Return a setting of the linear probe on a data set, or the default for all other data.

    Example:
        >>> probe_setting("imagenet", "max_epochs", 100), probe_setting("cifar10", "lr", 1.0)
        (90, 1.0)
    """
    return _PROBE_ON.get(data or "", {}).get(name, default)


def cell_name(method: str, data: str, variant: str | None) -> str:
    """Return the name of a recipe in the group ``recipe/<method>``; None is the default variant.

    The name of an undefined recipe is a sentence that says what is wrong: Hydra lets a resolver
    raise no error of its own, but loading a recipe of that name does.

    Example:
        >>> cell_name("byol_curv", "cifar10", "curv")
        'cifar10-curv'
        >>> cell_name("byol_curv", "cifar10", "pos")
        'variant=pos is not defined for byol_curv on cifar10: choose one of baseline, curv.'
    """
    by_data = RECIPES[method]
    if data not in by_data:
        return f"data={data} is not defined for {method}: choose one of {', '.join(by_data)}."
    variant = variant or default_variant(method, data)
    if variant not in by_data[data]:
        options = ", ".join(by_data[data])
        return f"variant={variant} is not defined for {method} on {data}: choose one of {options}."
    return f"{data}-{variant}"
