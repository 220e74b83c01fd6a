"""The values of margins by method, data set and variant, as configurations that Hydra can select.

A recipe names its data and its variant; ``margins/<method>`` has one entry for each pair that is
defined, called ``<data>-<variant>``. Selecting any other pair fails and lists those that exist.
"""

from typing import Any

Values = dict[str, Any]

# method -> data -> variant -> fields of Margins. No paper has the digits or a folder of one's own:
# scale and curvature of MoCo v3 are from scripts/sweep_digits.py (docs/results/digits_sweep.csv),
# by which a larger scale hurts at this short budget; the others are small values of the same kind.
CELLS: dict[str, dict[str, dict[str, Values]]] = {
    "mocov3_margin": {
        "digits": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.4},
            "pos": {"positive_scale": 1.25},
            "pos_curv": {"positive_scale": 1.25, "curvature": 1.0},
        },
    },
    "simclr_margin": {
        "digits": {
            "baseline": {},
            "margins": {"angular": 0.1, "subtractive": 0.2},
            "pos": {"positive_scale": 1.125},
            "pos_curv": {"positive_scale": 1.25, "curvature": 1.0},
        },
    },
    "byol_curv": {
        "digits": {"baseline": {}, "curv": {"curvature": 2.5}},
    },
}
for _cells in CELLS.values():
    # Somebody's own images: begin with what works on the small data here.
    _cells["folder"] = dict(_cells["digits"])


def store_recipes() -> None:
    """Make every cell selectable as ``margins/<method>: <data>-<variant>``."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for method, by_data in CELLS.items():
        for data, by_variant in by_data.items():
            for variant, values in by_variant.items():
                store.store(
                    group=f"margins/{method}",
                    name=f"{data}-{variant}",
                    node=values,
                    package="method_kwargs.margins",
                    provider="solo-margins",
                )
