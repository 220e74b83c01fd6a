"""Scalings of one's own by configuration: ``method_kwargs.margins.scaling``.

A scaling is a function ``weight(angle, q) -> Tensor``, see `solo_margins.losses.Margins`. A
configuration names it in one of two ways:

- by the name that `scaling` gave it; the module that does so has to be imported before the
  run starts, so that this is for scripts that call ``pretrain(cfg)``:

      @scaling("focal")
      def focal(angle, q):
          return (1 - q) ** 2

- by where Python finds it, in any program: ``scaling: {_target_: my_package.focal, power: 2}``. The
  further entries are keyword arguments of the function; a class is instantiated with them, and its
  ``__call__(angle, q)`` is the scaling.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from hydra.errors import HydraException
from hydra.utils import get_method, instantiate

from solo_margins.config import unknown_setting
from solo_margins.losses.margins import Margins, Scaling

SETTING = "method_kwargs.margins.scaling"

# Names to functions.
SCALINGS: dict[str, Scaling] = {}


def scaling(name: str) -> Callable[[Scaling], Scaling]:
    """Return a decorator that makes a function known to configurations by a name.

    Raises:
        ValueError: another function has the name.
    """

    def add(function: Scaling) -> Scaling:
        present = SCALINGS.setdefault(name, function)
        if present is not function:
            raise ValueError(f"The name {name!r} of a scaling is already taken by {present!r}")
        return function

    return add


def read_scaling(written: Any) -> Scaling | None:
    """Return the function that a configuration names, None where it names none.

    Args:
        written: a name, a mapping with ``_target_``, or None.

    Raises:
        ValueError: there is no such function, or it cannot be called with angles and probabilities.
    """
    if written is None:
        return None
    if isinstance(written, Mapping):
        function = _by_target(written)
    elif isinstance(written, str) and written in SCALINGS:
        function = SCALINGS[written]
    else:
        known = ", ".join(SCALINGS) or "none: nothing has imported a module that registers one"
        raise ValueError(
            f"{SETTING} must be a mapping with _target_ or a registered name ({known}), "
            f"got {written!r}"
        )
    _try(function, written)
    return function


def _by_target(written: Mapping[str, Any]) -> Scaling:
    if "_target_" not in written:
        raise ValueError(unknown_setting(SETTING, next(iter(written), ""), ["_target_"]))
    name = written["_target_"]
    if not isinstance(name, str):
        raise ValueError(f"{SETTING}._target_ must be the path of a function, got {name!r}")
    try:
        target = get_method(name)
        if inspect.isclass(target):
            return instantiate(written)
        return instantiate(written, _partial_=True)
    except (HydraException, ImportError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{SETTING}._target_={name}: {reason}") from error


def _try(function: Scaling, written: Any) -> None:
    """Raise ``ValueError`` unless a function weights two positives."""
    angles, q = torch.tensor([0.0, math.pi / 2]), torch.tensor([0.5, 0.25])
    try:
        Margins(scaling=function).own_weight(angles, q)
    except ValueError as error:
        raise ValueError(f"{SETTING}={written}: {error}") from error
    # Whatever it raises, it is no scaling.
    except Exception as error:
        raise ValueError(
            f"{SETTING}={written} cannot be called with (angle, q): {type(error).__name__}: {error}"
        ) from error
