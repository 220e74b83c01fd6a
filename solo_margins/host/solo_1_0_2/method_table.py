"""Methods by name on the registry's release, which is adapted for three of them."""

from __future__ import annotations

from typing import Any

ELSEWHERE = (
    "all4one",
    "barlow_twins",
    "deepclusterv2",
    "dino",
    "mae",
    "mocov2plus",
    "nnbyol",
    "nnclr",
    "nnsiam",
    "ressl",
    "simsiam",
    "supcon",
    "swav",
    "vibcreg",
    "vicreg",
    "wmse",
)
"""Methods of solo-learn's repository that are not offered on its release."""


class Methods(dict[str, Any]):
    """Methods by name; one that is not offered here answers with who has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._withheld = {
            name: f"The method {name!r} is not offered with solo-learn 1.0.2 from the package "
            "registry; solo-learn's repository (1.0.6 or later) has it."
            for name in ELSEWHERE
        }

    def withhold(self, name: str, reason: str) -> None:
        """Note why a method is not available."""
        self._withheld[name] = f"The method {name!r} is not available: {reason}"

    def __missing__(self, name: str) -> Any:
        if name in self._withheld:
            raise NotImplementedError(self._withheld[name])
        raise KeyError(name)
