"""Checks of arguments; an error names the argument, its range and the value received."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from solo_margins.losses.gather import is_alone

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def is_compiling() -> bool:
    """Return whether ``torch.compile`` is tracing, where values of tensors are unknown."""
    # torch 2.1 and 2.2 have it under a private name only.
    is_tracing = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
    return bool(is_tracing())


def is_transforming() -> bool:
    """Return whether a transformation of ``torch.func`` runs, such as ``grad`` or ``vmap``."""
    # torch has it under a private name only; its own autograd.Function asks the same.
    return bool(torch._C._are_functorch_transforms_active())


def is_traced() -> bool:
    """Return whether torch traces what is computed, where only shapes of tensors can be checked."""
    return is_compiling() or is_transforming()


def is_readable(value: Tensor) -> bool:
    """Return whether numbers can be read without waiting for a device, nor being traced."""
    return value.device.type == "cpu" and not is_traced()


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
WIDTH = Range("a number in [0.001, 1000]", low=1e-3, high=1e3)
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


def require_number_or_rows(name: str, value: Any, allowed: Range) -> float | Tensor:
    """Return a number as a float, or a tensor of one number for each row, in their range.

    The numbers of a tensor are checked where they can be read.

    Raises:
        ValueError: it is neither, or a number leaves its range.
    """
    if not isinstance(value, Tensor):
        return require_number(name, value, allowed)
    if value.dim() != 1 or value.dtype not in FLOATING or value.requires_grad:
        raise ValueError(
            f"{name} must be {allowed.described}, or a tensor with one such number for each row "
            f"that requires no gradient, got {described(value)}"
        )
    if len(value) > 0 and is_readable(value):
        # π, rounded to the tensor's dtype, may be more than π.
        low, high = torch.tensor([allowed.low, allowed.high], dtype=value.dtype).tolist()
        rounded = Range(allowed.described, low, high, allowed.excluded)
        for extreme in torch.stack(value.aminmax()).tolist():
            require_number(name, extreme, rounded)
    return value


def require_temperature(value: Any) -> float | Tensor:
    """Return a number above 0 as a float; where torch traces it, a tensor stays a tensor.

    Raises:
        ValueError: it is neither a number above 0 nor a tensor that holds one, without gradient.
    """
    if not isinstance(value, Tensor):
        return require_number("temperature", value, POSITIVE)
    if value.dim() != 0 or value.dtype not in FLOATING or value.requires_grad:
        raise ValueError(
            f"temperature must be {POSITIVE.described}; a tensor must be one of no dimensions that "
            f"requires no gradient, got {described(value)}"
        )
    if not is_readable(value):
        return value
    return require_number("temperature", value.tolist(), POSITIVE)


def require_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return ``value``, or raise ``ValueError`` if it is not one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
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
        raise ValueError(f"lower must be {BAND.described}, got {lower!r} and upper {upper!r}")


def described(value: Any) -> str:
    """Return what an error message says about an argument that should be a tensor."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype} of shape {tuple(value.shape)} on {value.device}"


def require_embeddings(name: str, value: Any, axes: str = "ND") -> None:
    """Raise ``ValueError`` unless ``value`` is a non-empty floating point tensor of two axes."""
    is_matrix = isinstance(value, Tensor) and value.dtype in FLOATING and value.dim() == 2
    if not is_matrix or 0 in value.shape:
        raise ValueError(
            f"{name} must be a tensor of shape ({', '.join(axes)}), not empty, of float64, "
            f"float32, bfloat16 or float16, got {described(value)}"
        )


def require_same_shape(name: str, value: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ``ValueError`` unless both are (N, D) tensors of one shape on one device."""
    require_embeddings(name, value)
    require_embeddings(other_name, other)
    if (value.shape, value.device) != (other.shape, other.device):
        raise ValueError(
            f"{name} and {other_name} must have the same shape on the same device, "
            f"got {described(value)} and {described(other)}"
        )


def require_width(name: str, value: Any, axes: str, other_name: str, other: Tensor) -> None:
    """Raise ``ValueError`` unless ``value``, with axes such as "PD", is as wide as ``other``."""
    require_embeddings(name, value, axes)
    width = value.shape[axes.index("D")]
    if (width, value.device) != (other.shape[1], other.device):
        raise ValueError(
            f"{name} must have shape ({', '.join(axes)}) with D = {other.shape[1]} on "
            f"{other.device}, as {other_name} has, got {described(value)}"
        )


def require_integers(name: str, what: str, value: Any, z: Tensor) -> None:
    """Raise ``ValueError`` unless ``value`` holds one integer for each row of ``z``."""
    is_integer = isinstance(value, Tensor) and value.dtype in INTEGERS
    if not is_integer or (value.shape, value.device) != (z.shape[:1], z.device):
        raise ValueError(
            f"{name} must be an integer tensor on {z.device} that holds one {what} for each of "
            f"the {z.shape[0]} rows of z, got {described(value)}"
        )


def require_assignments(assignments: Any, z: Tensor, prototypes: Tensor) -> None:
    """Raise ``ValueError`` unless ``assignments`` holds a prototype's number or -1 for each row."""
    require_integers("assignments", "prototype", assignments, z)
    if not is_readable(assignments):
        # Indexing finds those that are too large, on the device.
        return
    numbers = assignments.tolist()
    smallest, largest = min(numbers), max(numbers)
    if smallest < -1 or largest >= prototypes.shape[0]:
        wrong = smallest if smallest < -1 else largest
        raise ValueError(
            f"assignments must be integers in [0, {prototypes.shape[0] - 1}], "
            f"or -1 for a row to leave out, got {wrong}"
        )


def require_indexes(indexes: Any, z: Tensor) -> Tensor | int:
    """Return ids of the rows of ``z``, or a number of views of distinct samples.

    Ids that can be read and are those of several views are returned as the number of views.

    Raises:
        ValueError: they are neither an integer for each row nor a number that divides the rows.
    """
    if isinstance(indexes, int) and not isinstance(indexes, bool):
        if indexes < 2 or len(z) % indexes:
            raise ValueError(
                f"indexes must be ids, or a number of views >= 2 that divides the {len(z)} rows "
                f"of z, got {indexes}"
            )
        return indexes
    require_integers("indexes", "id", indexes, z)
    if is_readable(indexes) and is_alone():
        return number_of_views(indexes.tolist()) or indexes
    return indexes


def number_of_views(ids: list[int]) -> int:
    """Return how often one list of distinct ids is repeated, 0 unless at least twice."""
    views = ids.count(ids[0])
    samples = ids[: len(ids) // views]
    if views < 2 or len(set(samples)) < len(samples) or ids != samples * views:
        return 0
    return views
