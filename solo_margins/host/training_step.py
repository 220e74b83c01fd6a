"""A host method's own training step, with another loss in the place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

# The release of the package registry calls the same loss otherwise.
OTHER_NAMES = {"mocov2plus_loss_func": "moco_loss_func"}


def step_with_losses(method: Any, losses: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return ``method.training_step`` as a function that calls other losses than its own.

    A method of solo-learn looks its loss up by name in its module. The returned function is the
    same code with that name bound to another loss; the method and its module stay as they are, and
    whatever else the step does (queues, neighbours, metrics) is done by solo-learn itself.

    Args:
        method: a class of methods.
        losses: name of the loss in solo-learn's repository to what is called instead.

    Raises:
        NotImplementedError: the training step uses no such loss.
    """
    step = method.training_step
    used = set(_names_in(step.__code__))
    bound = {}
    for name, loss in losses.items():
        found = name if name in used else OTHER_NAMES.get(name)
        if found not in used:
            raise NotImplementedError(
                f"The training step of the installed solo-learn's {method.__name__} uses no "
                f"{name}, so it cannot be given margins; 1.0.6 of its repository does."
            )
        bound[found] = loss
    changed = FunctionType(
        step.__code__,
        {**step.__globals__, **bound},
        step.__name__,
        step.__defaults__,
        step.__closure__,
    )
    members = {name: loss for name, loss in bound.items() if hasattr(method, name)}
    return _step_with_members(changed, members) if members else changed


def _step_with_members(
    step: Callable[..., Any], losses: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a training step that finds other losses as members of its method.

    A solo-learn that has methods of ours itself calls losses so.
    """

    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        vars(self).update(losses)
        try:
            return step(self, *args, **kwargs)
        finally:
            for name in losses:
                vars(self).pop(name, None)

    return changed


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield every global name that a function uses, in nested functions too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
