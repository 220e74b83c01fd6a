"""The release's other methods, put on base classes with the repository form's contract.

They keep the release's own losses: numerically they are not the repository's methods of that name.
"""

from __future__ import annotations

import inspect
from typing import Any

import solo.methods
from omegaconf import DictConfig
from solo.methods import base as release
from torch import Tensor

from solo_margins.host import clusters, patches
from solo_margins.host.pypi_form.base import BaseMethod, BaseMomentumMethod
from solo_margins.host.pypi_form.config import require

BASES = {release.BaseMethod: BaseMethod, release.BaseMomentumMethod: BaseMomentumMethod}

ADAPTED = (
    "barlow_twins",
    "deepclusterv2",
    "mocov2plus",
    "nnbyol",
    "nnclr",
    "nnsiam",
    "ressl",
    "simsiam",
    "swav",
    "vicreg",
)

BROKEN = {
    "dino": "fails on today's PyTorch",
    "wmse": "needs an operator that PyTorch has removed",
}
ABSENT = ("all4one", "mae", "supcon", "vibcreg")


class Methods(dict[str, Any]):
    """Methods by name; one that this form lacks answers with the form that has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._withheld = {name: _unavailable(name, reason) for name, reason in BROKEN.items()}
        self._withheld |= {name: _unavailable(name, "is absent") for name in ABSENT}

    def withhold(self, name: str, reason: str) -> None:
        """Note why a method is not available."""
        self._withheld[name] = f"The method {name!r} is not available: {reason}"

    def __missing__(self, name: str) -> Any:
        if name in self._withheld:
            raise NotImplementedError(self._withheld[name])
        raise KeyError(name)


def _unavailable(name: str, reason: str) -> str:
    return (
        f"The method {name!r} {reason} in solo-learn 1.0.2 from the package registry; "
        "solo-learn's repository (1.0.6 or later) has it."
    )


def adapt(released: Any) -> Any:
    """Return a class with the contract ``Method(cfg)`` around one of the release's methods.

    The method's own class is put on our base classes; whatever its constructor does not know it
    hands on to them, and that is the configuration.
    """
    released.__bases__ = tuple(BASES.get(base, base) for base in released.__bases__)
    parameters = inspect.signature(released.__init__).parameters.values()
    wanted = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    needed = [f"method_kwargs.{p.name}" for p in wanted if p.default is p.empty]
    [our_base] = released.__bases__

    class Adapted(released):
        def __init__(self, cfg: DictConfig) -> None:
            given = self.add_and_assert_specific_cfg(cfg).method_kwargs
            known = {p.name: given[p.name] for p in wanted if p.name in given}
            super().__init__(**known, cfg=cfg)

        @staticmethod
        def add_and_assert_specific_cfg(cfg: DictConfig) -> DictConfig:
            cfg = our_base.add_and_assert_specific_cfg(cfg)
            require(cfg, needed)
            return cfg

        def base_training_step(self, X: Tensor, targets: Tensor) -> dict[str, Any]:
            # The release's training steps project the features themselves; doing it in the forward
            # pass too would update batch statistics twice.
            return our_base._base_shared_step(_FeaturesOnly(self), X, targets)

    Adapted.__name__ = Adapted.__qualname__ = released.__name__
    Adapted.__doc__ = released.__doc__ or f"{released.__name__} of the release, adapted."
    return Adapted


class _FeaturesOnly:
    """A view of a method whose call stops at features and logits."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def __call__(self, X: Tensor) -> dict[str, Any]:
        return BaseMethod.forward(self._method, X)


def adapted_methods() -> dict[str, Any]:
    """Return the release's methods that work, adapted, by name."""
    methods = {name: adapt(solo.methods.METHODS[name]) for name in ADAPTED}
    for hook in (clusters.on_train_start, clusters.on_save_checkpoint, clusters.on_load_checkpoint):
        patches.wrap(methods["deepclusterv2"], hook.__name__, hook)
    return methods
