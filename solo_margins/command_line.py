"""Checks of a command line before Hydra reads it, whose own messages say little of two mistakes."""

import argparse
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from solo_margins.cli import end
from solo_margins.config import nearest

# Options of Hydra that take a value, with the short form of each.
OPTIONS_WITH_VALUE = (
    ("--config-name", "-cn"),
    ("--config-path", "-cp"),
    ("--config-dir", "-cd"),
    ("--cfg", "-c"),
    ("--package", "-p"),
    ("--info", "-i"),
    ("--experimental-rerun", "-er"),
)


def check_or_exit(arguments: Sequence[str], program: str | Path) -> None:
    """End the program with one sentence where its command line has such a mistake."""
    try:
        check(arguments, program)
    except ValueError as error:
        end(error, job=None)


def check(arguments: Sequence[str], program: str | Path) -> None:
    """Raise ``ValueError`` for a configuration that is not there, or a value that needs quotes.

    Args:
        arguments: the command line, without the program.
        program: the file of the program; Hydra looks for ``--config-path`` beside it.
    """
    if "-sc" in arguments or "--shell-completion" in arguments:
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, short in OPTIONS_WITH_VALUE:
        # Hydra itself complains about a missing value.
        parser.add_argument(name, short, nargs="?")
    options, rest = parser.parse_known_args(list(arguments))
    _check_configuration(options, Path(program).resolve().parent)
    _check_overrides([argument for argument in rest if not argument.startswith("-")])


def _check_configuration(options: argparse.Namespace, beside: Path) -> None:
    name = options.config_name
    if name is None or "://" in str(options.config_path):
        return
    folders: list[Any] = [resources.files("solo_margins.configs")]
    if options.config_path is not None:
        folders.insert(0, beside / options.config_path)
    if options.config_dir is not None:
        folders.insert(0, Path(options.config_dir))
    file = f"{name.removesuffix('.yaml')}.yaml"
    if any(folder.joinpath(file).is_file() for folder in folders):
        return
    there: list[str] = []
    for folder in folders:
        if folder.is_dir():
            there += sorted(x.name for x in folder.iterdir() if x.name.endswith(".yaml"))
    near = nearest(Path(name).stem, [known.removesuffix(".yaml") for known in there])
    question = "." if near is None else f"; did you mean {near}.yaml?"
    raise ValueError(f"There is no configuration {name}{question} There are {', '.join(there)}.")


def _check_overrides(overrides: Sequence[str]) -> None:
    before = ""
    for override in overrides:
        if not _is_readable(override):
            raise ValueError(_advice(override, before))
        before = override


def _is_readable(override: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_overrides([override])
    except HydraException:
        return False
    return True


def _advice(override: str, before: str) -> str:
    """Return what to write instead of an argument that Hydra cannot read."""
    sentence = f"{override} is not a setting of the form key=value that Hydra can read"
    if "=" not in override and "=" in before:
        # The shell has cut a value at its spaces.
        override = f"{before} {override}"
    key, _, value = override.partition("=")
    text = value.strip("'\"").replace("'", r"\'")
    quoted = f"{key}='{text}'"
    if not value or not _is_readable(quoted):
        return f"{sentence}."
    return (
        f"{sentence}: a value with spaces, quotes, umlauts or other special characters needs "
        f'quotes of Hydra and around them those of the shell, "{quoted}".'
    )
