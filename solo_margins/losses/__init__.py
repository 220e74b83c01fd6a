"""Contrastive losses with margins. They need torch and nothing else.

Each is imported when it is first used; ``__init__.pyi`` says from where.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
_PLACES = {
    imported.name: str(statement.module)
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for imported in statement.names
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
