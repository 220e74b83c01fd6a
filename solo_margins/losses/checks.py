"""Checks of arguments; an error names the argument, its range and the value received."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def is_compiling() -> bool:
    """Return whether ``torch.compile`` is tracing, where values of tensors are unknown."""
    # torch 2.1 and 2.2 have it under a private name only.
    is_tracing = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
    return bool(is_tracing())


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``, and how an error message describes them."""

    described: str
    low: float = 0.0
    high: float = math.inf
    excluded: tuple[float, ...] = (math.inf,)


NON_NEGATIVE = Range("a number >= 0")
POSITIVE = Range("a number > 0", excluded=(0.0, math.inf))
UP_TO_ONE = Range("a number in [0, 1]", high=1.0)
BELOW_ONE = Range("a number in [0, 1)", high=1.0, excluded=(1.0,))
BAND = Range("a number with 0 < lower < upper < 1", high=1.0, excluded=(0.0, 1.0))


def require_number(name: str, value: Any, allowed: Range) -> float:
    """Return ``value`` as a float, or raise ``ValueError`` unless it is in its range."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
        # By comparisons, which torch.compile can guard and which a NaN fails.
        if allowed.low <= number <= allowed.high and number not in allowed.excluded:
            return number
    raise ValueError(f"{name} must be {allowed.described}, got {value!r}")


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value``, or raise ``ValueError`` if it is not one of ``choices``."""
    if value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be {listed}, got {value!r}")
    return value


def require_flag(name: str, value: Any) -> bool:
    """Return ``value``, or raise ``ValueError`` unless it is true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def require_count(name: str, value: Any, optional: bool = False) -> None:
    """Raise ``ValueError`` unless ``value`` is a whole number above 0, or None if ``optional``."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        allowed = "a whole number above 0" + (" or None" if optional else "")
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def require_band(lower: Any, upper: Any) -> None:
    """Raise ``ValueError`` unless 0 < lower < upper < 1."""
    require_number("lower", lower, BAND)
    require_number("upper", upper, BAND)
    if lower >= upper:
        raise ValueError(
            "lower and upper must be numbers with 0 < lower < upper < 1, "
            f"got {lower!r} and {upper!r}"
        )


def require_embeddings(name: str, value: Any, height: str = "N", width: str = "D") -> None:
    """Raise ``ValueError`` unless ``value`` is a non-empty floating point tensor of two axes."""
    shape = f"({height}, {width})"
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor of shape {shape}, got {type(value).__name__}")
    if value.dtype not in FLOATING:
        listed = ", ".join(str(dtype) for dtype in FLOATING)
        raise ValueError(f"{name} must have one of the dtypes {listed}, got {value.dtype}")
    if value.dim() != 2 or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape {shape} with {height} >= 1 and {width} >= 1, "
            f"got {tuple(value.shape)}"
        )


def require_same_shape(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ``ValueError`` unless both are (N, D) tensors of one shape on one device."""
    require_embeddings(name, value)
    require_embeddings(other_name, other)
    if value.shape != other.shape:
        raise ValueError(
            f"{name} and {other_name} must have the same shape, "
            f"got {tuple(value.shape)} and {tuple(other.shape)}"
        )
    _require_same_device(name, value, other_name, other)


def _require_same_device(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    if value.device != other.device:
        raise ValueError(
            f"{name} and {other_name} must be on the same device, "
            f"got {value.device} and {other.device}"
        )


def require_width(name: str, value: Any, axes: str, other_name: str, other: Tensor) -> None:
    """Raise ``ValueError`` unless ``value``, with axes such as "PD", is as wide as ``other``."""
    require_embeddings(name, value, *axes)
    if value.shape[axes.index("D")] != other.shape[1]:
        raise ValueError(
            f"{name} must have shape ({', '.join(axes)}) with D = {other.shape[1]}, "
            f"the width of {other_name}, got {tuple(value.shape)}"
        )
    _require_same_device(name, value, other_name, other)


def require_integers(name: str, what: str, value: Any, z: Tensor) -> None:
    """Raise ``ValueError`` unless ``value`` holds one integer for each row of ``z``."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor of shape (N,), got {type(value).__name__}")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise ValueError(f"{name} must have an integer dtype, got {value.dtype}")
    if value.dim() != 1 or value.shape[0] != z.shape[0]:
        raise ValueError(
            f"{name} must hold one {what} for each of the {z.shape[0]} rows of z, "
            f"got shape {tuple(value.shape)}"
        )
    _require_same_device(name, value, "z", z)


def require_assignments(assignments: Any, z: Tensor, prototypes: Tensor) -> None:
    """Raise ``ValueError`` unless ``assignments`` holds a prototype's number or -1 for each row."""
    require_integers("assignments", "prototype", assignments, z)
    if is_compiling():
        return
    smallest, largest = (int(number) for number in torch.aminmax(assignments))
    if smallest < -1 or largest >= prototypes.shape[0]:
        wrong = smallest if smallest < -1 else largest
        raise ValueError(
            f"assignments must be integers in [0, {prototypes.shape[0] - 1}], "
            f"or -1 for a row to leave out, got {wrong}"
        )
