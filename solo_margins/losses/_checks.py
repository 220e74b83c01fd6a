"""Checks of arguments; each fails with a sentence: the argument, its range, the value received."""

import math
from typing import Any

import torch

FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def require_number(
    name: str,
    value: Any,
    allowed: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    allow_infinite: bool = False,
) -> float:
    """Return ``value`` as a float, or raise ``ValueError`` if it leaves the range ``allowed``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number:
        number = float(value)
        above = number > low if open_low else number >= low
        below = number < high if open_high else number <= high
        finite = math.isfinite(number) or (allow_infinite and number == math.inf)
        if above and below and finite:
            return number
    raise ValueError(f"{name} must be {allowed}, got {value!r}")


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value``, or raise ``ValueError`` if it is not one of ``choices``."""
    if value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be {listed}, got {value!r}")
    return value


def require_temperature(temperature: Any) -> float:
    """Return the temperature as a float, or raise ``ValueError``."""
    return require_number("temperature", temperature, "a number > 0", low=0.0, open_low=True)


def require_tile_size(tile_size: Any) -> None:
    """Raise ``ValueError`` unless ``tile_size`` is None or a positive integer."""
    if tile_size is None:
        return
    if isinstance(tile_size, bool) or not isinstance(tile_size, int) or tile_size < 1:
        raise ValueError(f"tile_size must be None or an integer >= 1, got {tile_size!r}")


def require_embeddings(name: str, value: Any, height: str = "N", width: str = "D") -> None:
    """Raise ``ValueError`` unless ``value`` is a non-empty floating point tensor of two axes."""
    shape = f"({height}, {width})"
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must be a tensor of shape {shape}, got {type(value).__name__}")
    if value.dtype not in FLOATING:
        listed = ", ".join(str(dtype) for dtype in FLOATING)
        raise ValueError(f"{name} must have one of the dtypes {listed}, got {value.dtype}")
    if value.dim() != 2 or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape {shape} with {height} >= 1 and {width} >= 1, "
            f"got {tuple(value.shape)}"
        )


def require_same_shape(
    name: str, value: torch.Tensor, other_name: str, other: torch.Tensor
) -> None:
    """Raise ``ValueError`` unless both are (N, D) tensors of one shape on one device."""
    require_embeddings(name, value)
    require_embeddings(other_name, other)
    if value.shape != other.shape:
        raise ValueError(
            f"{name} and {other_name} must have the same shape, "
            f"got {tuple(value.shape)} and {tuple(other.shape)}"
        )
    _require_same_device(name, value, other_name, other)


def _require_same_device(
    name: str, value: torch.Tensor, other_name: str, other: torch.Tensor
) -> None:
    if value.device != other.device:
        raise ValueError(
            f"{name} and {other_name} must be on the same device, "
            f"got {value.device} and {other.device}"
        )


def require_queue(queue: Any, query: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``queue`` is (D, K) with the D and the device of ``query``."""
    require_embeddings("queue", queue, "D", "K")
    if queue.shape[0] != query.shape[1]:
        raise ValueError(
            f"queue must have shape (D, K) with D = {query.shape[1]}, the width of query, "
            f"got {tuple(queue.shape)}"
        )
    _require_same_device("queue", queue, "query", query)


def require_prototypes(prototypes: Any, z: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``prototypes`` is (P, D) with the D and the device of ``z``."""
    require_embeddings("prototypes", prototypes, "P", "D")
    if prototypes.shape[1] != z.shape[1]:
        raise ValueError(
            f"prototypes must have shape (P, D) with D = {z.shape[1]}, the width of z, "
            f"got {tuple(prototypes.shape)}"
        )
    _require_same_device("prototypes", prototypes, "z", z)


def _require_integers(name: str, what: str, value: Any, z: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``value`` holds one integer for each row of ``z``."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must be a tensor of shape (N,), got {type(value).__name__}")
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise ValueError(f"{name} must have an integer dtype, got {value.dtype}")
    if value.dim() != 1 or value.shape[0] != z.shape[0]:
        raise ValueError(
            f"{name} must hold one {what} for each of the {z.shape[0]} rows of z, "
            f"got shape {tuple(value.shape)}"
        )
    _require_same_device(name, value, "z", z)


def require_indexes(indexes: Any, z: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``indexes`` holds one integer id for each row of ``z``."""
    _require_integers("indexes", "id", indexes, z)


def require_assignments(assignments: Any, z: torch.Tensor, prototypes: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``assignments`` holds a prototype's number, or -1, a row."""
    _require_integers("assignments", "prototype", assignments, z)
    smallest, largest = (int(number) for number in torch.aminmax(assignments))
    if smallest < -1 or largest >= prototypes.shape[0]:
        wrong = smallest if smallest < -1 else largest
        raise ValueError(
            f"assignments must be integers in [0, {prototypes.shape[0] - 1}], "
            f"or -1 for a row to leave out, got {wrong}"
        )
