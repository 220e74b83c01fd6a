"""The papers' experiments by method, data set and variant, as configurations Hydra can select.

A recipe names its data and its variant; ``recipe/<method>`` has one entry for each pair that is
defined, called ``<data>-<variant>``. Asking for any other pair fails and lists those that exist.
"""

import copy
from typing import Any

Values = dict[str, Any]

# Understanding Contrastive Learning Through the Lens of Margins, appendix A: m1 and m2, s, and s
# with c. ImageNet: appendix B.2.
_PAPER: dict[str, dict[str, dict[str, Values]]] = {
    "mocov3_margin": {
        "cifar10": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.4},
            "pos": {"positive_scale": 20.0},
            "pos_curv": {"positive_scale": 20.0, "curvature": 0.7},
        },
        "cifar100": {
            "baseline": {},
            "margins": {"angular": 0.5, "subtractive": 0.7},
            "pos": {"positive_scale": 20.0},
            "pos_curv": {"positive_scale": 40.0, "curvature": 1.0},
        },
        "stl10": {
            "baseline": {},
            "margins": {"angular": 0.4, "subtractive": 0.6},
            "pos": {"positive_scale": 40.0},
            "pos_curv": {"positive_scale": 40.0, "curvature": 2.5},
        },
        "tinyimagenet": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.4},
            "pos": {"positive_scale": 20.0},
            "pos_curv": {"positive_scale": 40.0, "curvature": 2.5},
        },
        "imagenet": {
            "baseline": {},
            "pos_curv": {"positive_scale": 10.0, "curvature": 1.5},
        },
    },
    "simclr_margin": {
        "cifar10": {
            "baseline": {},
            "margins": {"angular": 0.5, "subtractive": 0.4},
            "pos": {"positive_scale": 1.125},
            "pos_curv": {"positive_scale": 2.5, "curvature": 0.7},
        },
        "cifar100": {
            "baseline": {},
            "margins": {"angular": 0.6, "subtractive": 0.6},
            "pos": {"positive_scale": 1.0625},
            "pos_curv": {"positive_scale": 2.0, "curvature": 0.7},
        },
        "stl10": {
            "baseline": {},
            "margins": {"angular": 0.0, "subtractive": 0.2},
            "pos": {"positive_scale": 1.0625},
            "pos_curv": {"positive_scale": 1.25, "curvature": 0.7},
        },
        "tinyimagenet": {
            "baseline": {},
            "margins": {"angular": 0.0, "subtractive": 0.8},
            "pos": {"positive_scale": 1.0625},
            "pos_curv": {"positive_scale": 1.125, "curvature": 1.0},
        },
        "imagenet": {
            "baseline": {},
            "pos_curv": {"positive_scale": 2.0, "curvature": 1.0},
        },
    },
    "byol_curv": {
        "cifar10": {"baseline": {}, "curv": {"curvature": 1.0}},
        "cifar100": {"baseline": {}, "curv": {"curvature": 2.5}},
        "stl10": {"baseline": {}, "curv": {"curvature": 5.0}},
        "tinyimagenet": {"baseline": {}, "curv": {"curvature": 2.5}},
    },
}

# No paper has these data. Margins, and the curvature of methods without negatives, are the paper's
# for CIFAR-10. Scales on the digits are small, because training there is short. ImageNet-100 takes
# ImageNet's scales.
_OURS: dict[str, dict[str, dict[str, Values]]] = {
    "mocov3_margin": {
        "digits": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.4},
            "pos": {"positive_scale": 1.25},
            "pos_curv": {"positive_scale": 1.25, "curvature": 1.0},
        },
        "imagenet100": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.4},
            "pos": {"positive_scale": 10.0},
            "pos_curv": {"positive_scale": 10.0, "curvature": 1.5},
        },
    },
    "simclr_margin": {
        "digits": {
            "baseline": {},
            "margins": {"angular": 0.5, "subtractive": 0.4},
            "pos": {"positive_scale": 1.125},
            "pos_curv": {"positive_scale": 1.25, "curvature": 1.0},
        },
        "imagenet100": {
            "baseline": {},
            "margins": {"angular": 0.5, "subtractive": 0.4},
            "pos": {"positive_scale": 1.0625},
            "pos_curv": {"positive_scale": 2.0, "curvature": 1.0},
        },
    },
    "byol_curv": {
        "digits": {"baseline": {}, "curv": {"curvature": 1.0}},
        "imagenet100": {"baseline": {}, "curv": {"curvature": 1.0}},
    },
}

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

# The other methods take the margins of the one that is most like them.
_LIKE = {
    "mocov2plus_margin": "mocov3_margin",
    "nnclr_margin": "simclr_margin",
    "supcon_margin": "simclr_margin",
    "deepclusterv2_margin": "simclr_margin",
    "simsiam_curv": "byol_curv",
    "nnsiam_curv": "byol_curv",
    "nnbyol_curv": "byol_curv",
    "wmse_curv": "byol_curv",
}


def _cells() -> dict[str, dict[str, dict[str, Values]]]:
    found: dict[str, dict[str, dict[str, Values]]] = {}
    for method, by_data in _PAPER.items():
        by_data = {**by_data, **_OURS[method]}
        # Somebody's own images: begin with what works on the small data here.
        by_data["folder"] = by_data["digits"]
        found[method] = {
            data: {variant: {"margins": margins} for variant, margins in by_variant.items()}
            for data, by_variant in by_data.items()
        }
    for method, relative in _LIKE.items():
        found[method] = copy.deepcopy(found[relative])
    for by_variant in found["simclr_margin"].values():
        by_variant.update(copy.deepcopy(_SECOND_PAPER))
    return found


CELLS = _cells()
"""Method to data to variant to the settings in ``method_kwargs`` that make this cell."""


def is_from_paper(method: str, data: str, variant: str) -> bool:
    """Tell whether a paper gives the values of a cell; otherwise they are ours."""
    return variant in _PAPER.get(method, {}).get(data, {})


def are_data_of_papers(data: str) -> bool:
    """Tell whether a paper gives margins for a data set."""
    return any(data in by_data for by_data in _PAPER.values())


def default_variant(method: str, data: str) -> str:
    """Return the variant of a method and data where none is chosen.

    Where the papers define no cell that is their margins for CIFAR-10: no study supports a scale
    there.

    Example:
        >>> default_variant("mocov3_margin", "stl10"), default_variant("byol_curv", "stl10")
        ('pos_curv', 'curv')
        >>> default_variant("mocov3_margin", "folder"), default_variant("byol_curv", "folder")
        ('margins', 'curv')
    """
    if "curv" in CELLS[method]["cifar10"]:
        return "curv"
    return "pos_curv" if are_data_of_papers(data) else "margins"


# The margins paper probes ImageNet as MoCo v3 does (its main_lincls.py), with crops from 0.08
# whatever those of the pretraining were.
_PROBE_ON = {"imagenet": {"max_epochs": 90, "lr": 0.1, "crop_min_scale": 0.08}}


def probe_setting(data: str | None, name: str, default: Any) -> Any:
    """Return a setting of the linear probe on some data, or the default for all other data.

    Example:
        >>> probe_setting("imagenet", "max_epochs", 100), probe_setting("cifar10", "lr", 1.0)
        (90, 1.0)
    """
    return _PROBE_ON.get(data or "", {}).get(name, default)


def cell_name(method: str, data: str, variant: str | None) -> str:
    """Return the name of a cell in the group ``recipe/<method>``; no variant means the default.

    Hydra answers a name that does not exist with a list of those that do; so the name of a cell
    that is not defined says why.

    Example:
        >>> cell_name("byol_curv", "cifar10", "curv")
        'cifar10-curv'
        >>> cell_name("byol_curv", "cifar10", "pos")
        'cifar10-pos (a combination that neither the papers nor solo-margins define)'
    """
    variant = variant or default_variant(method, data)
    name = f"{data}-{variant}"
    if variant in CELLS[method].get(data, {}):
        return name
    return f"{name} (a combination that neither the papers nor solo-margins define)"


def store_recipes() -> None:
    """Make every cell selectable as ``recipe/<method>: <data>-<variant>``.

    A cell says which variant it is, because that of the default depends on the data.
    """
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    if CELLS.keys() <= store.repo.get("recipe", {}).keys():
        return
    for method, by_data in CELLS.items():
        for data, by_variant in by_data.items():
            for variant, values in by_variant.items():
                store.store(
                    group=f"recipe/{method}",
                    name=f"{data}-{variant}",
                    node={"variant": variant, "method_kwargs": values},
                    package="_global_",
                    provider="solo-margins",
                )
