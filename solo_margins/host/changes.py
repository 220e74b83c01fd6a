"""Changes of solo-learn as data: what is changed, where, and by which function.

A program such as solo-learn's ``main_pretrain.py`` has bound its names before a plugin is loaded,
so every change is made in place: in classes, in lists, and in names that solo-learn looks up in its
own modules when they are called. Making a change again changes nothing.

Places are given as strings and functions stand at the top level of their modules, so that the same
table can be written into solo-learn's files.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_WRAPPED_BY = "_solo_margins_wrapped_by"


@dataclass(frozen=True)
class _Change:
    """A place in solo-learn.

    Args:
        module: relative to ``solo``: ``"methods.base"``.
        target: ``"function"``, ``"Class"`` or ``"Class.member"``.
        function: what is put there, or calls what is there.
    """

    module: str
    target: str
    function: Any

    def place(self) -> tuple[Any, str]:
        """Return the module or class that holds the target, and the target's name there."""
        owner: Any = importlib.import_module(f"solo.{self.module}")
        *outer, name = self.target.split(".")
        for part in outer:
            owner = getattr(owner, part)
        return owner, name

    def check(self) -> None:
        """Raise AttributeError or ImportError where solo-learn has no such target.

        A function with other parameters is another target: the change would break its callers.
        """
        target = getattr(*self.place())
        if callable(target):
            taken, known = (list(inspect.signature(f).parameters) for f in (target, self.function))
            if taken != known[isinstance(self, Wrap) :]:
                raise AttributeError(f"{self.target} takes ({', '.join(taken)})")


@dataclass(frozen=True)
class Wrap(_Change):
    """Calls ``function(original, *arguments)`` instead of a function or method.

    Args:
        function: of the original and then of the original's own parameters, ``self`` first for a
            method.
        everywhere: whether modules of solo-learn that have imported the original by name get the
            new one.
    """

    everywhere: bool = False

    def apply(self) -> None:
        """Make the change, unless it was made before."""
        owner, name = self.place()
        original = getattr(owner, name)
        before = getattr(original, _WRAPPED_BY, ())
        if self.function in before:
            return

        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            return self.function(original, *args, **kwargs)

        setattr(changed, _WRAPPED_BY, (*before, self.function))
        is_static = isinstance(vars(owner).get(name), staticmethod)
        setattr(owner, name, staticmethod(changed) if is_static else changed)
        if self.everywhere:
            for other_name, other in list(sys.modules.items()):
                if other_name.startswith("solo.") and getattr(other, name, None) is original:
                    setattr(other, name, changed)


@dataclass(frozen=True)
class Replace(_Change):
    """Puts a function (or whatever else) in the place of another, or where there was none."""

    def check(self) -> None:
        """Raise AttributeError or ImportError where solo-learn has nothing to hold the target."""
        if hasattr(*self.place()):
            super().check()

    def apply(self) -> None:
        """Make the change."""
        owner, name = self.place()
        present: Any = getattr(owner, name, None)
        # It may have been wrapped since.
        if inspect.unwrap(present) is not self.function:
            setattr(owner, name, self.function)


Change = Wrap | Replace


@dataclass(frozen=True)
class Repair:
    """Changes that belong together; ``symptoms`` says in sentences what happens without them."""

    name: str
    symptoms: str
    changes: tuple[Change, ...]


# A sentence for each repair that was left out. Runs of our methods show them; a fork's do not.
left_out: list[str] = []


def apply(repairs: Iterable[Repair]) -> None:
    """Apply repairs in their order; one that does not fit altogether is left out and noted."""
    for repair in repairs:
        try:
            for change in repair.changes:
                change.check()
        except (AttributeError, ImportError) as reason:
            left_out.append(f"This solo-learn runs without the repair {repair.name}: {reason}.")
        else:
            for change in repair.changes:
                change.apply()
