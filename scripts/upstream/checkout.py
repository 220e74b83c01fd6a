"""A checkout of solo-learn: read as it is, changed in memory, shown or written."""

from __future__ import annotations

import difflib
import os
import subprocess
from pathlib import Path

from solo_margins.files import complete_file


class UpstreamError(ValueError):
    """An export that is not possible; the message is one sentence for the user."""


class Checkout:
    """Files of a checkout, with changes that are kept in memory until they are written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        for name in ("solo/methods/__init__.py", "solo/losses/__init__.py", "LICENSE"):
            if not (self.folder / name).is_file():
                raise UpstreamError(
                    f"{self.folder} is not a checkout of solo-learn's repository: it has no {name}."
                )
        if not (self.folder / "solo/args/pretrain.py").is_file():
            raise UpstreamError(
                f"{self.folder} is too old a solo-learn: its solo/args/pretrain.py is missing, "
                "1.0.6 of its repository has it."
            )
        self._changed: dict[str, str] = {}

    def has(self, path: str | Path) -> bool:
        """Tell whether there is a file, written or about to be."""
        return str(path) in self._changed or (self.folder / path).is_file()

    def read(self, path: str | Path) -> str:
        """Return a file as it will be."""
        if str(path) in self._changed:
            return self._changed[str(path)]
        try:
            return (self.folder / path).read_text()
        except FileNotFoundError:
            raise UpstreamError(f"{self.folder} has no {path}.") from None

    def put(self, path: str | Path, text: str) -> None:
        """Give a file another content."""
        self._changed[str(path)] = text

    def files(self, pattern: str) -> list[Path]:
        """Return the files that match a pattern, from the top of the checkout."""
        return sorted(path.relative_to(self.folder) for path in self.folder.glob(pattern))

    def changes(self) -> dict[str, str]:
        """Return the new content of every file whose content differs from the one on disk."""
        return {
            path: text
            for path, text in sorted(self._changed.items())
            if not (self.folder / path).is_file() or (self.folder / path).read_text() != text
        }

    def diff(self) -> str:
        """Return all changes as a patch."""
        parts: list[str] = []
        for path, text in self.changes().items():
            file = self.folder / path
            old = file.read_text().splitlines(keepends=True) if file.is_file() else []
            source = f"a/{path}" if file.is_file() else os.devnull
            new = text.splitlines(keepends=True)
            parts += difflib.unified_diff(old, new, source, f"b/{path}")
        return "".join(parts)

    def write(self) -> list[str]:
        """Write every changed file, each completely or not at all, and return their names."""
        changes = self.changes()
        try:
            for path, text in changes.items():
                with complete_file(self.folder / path) as unfinished:
                    unfinished.write_text(text)
        except OSError as error:
            raise UpstreamError(f"{self.folder} cannot be written: {error}.") from error
        return list(changes)

    def uncommitted(self) -> list[str]:
        """Return the files that differ from the last commit, and unknown ones that would change.

        Raises:
            UpstreamError: the folder is not under git.
        """
        status = ["git", "-C", str(self.folder), "status", "--porcelain"]
        try:
            known, unknown = (
                subprocess.run([*status, *more], check=True, capture_output=True, text=True).stdout
                for more in (["--untracked-files=no"], ["--ignored", "--", *self.changes()])
            )
        except (OSError, subprocess.CalledProcessError):
            raise UpstreamError(
                f"{self.folder} is not under git, so that an export could not be undone: commit "
                "its files to a repository, or add --dirty."
            ) from None
        return list(dict.fromkeys(line[3:] for line in (known + unknown).splitlines()))
