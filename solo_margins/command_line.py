"""Programs of Hydra's, whose command line is checked first: Hydra says little of some mistakes."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from solo_margins.cli import end, exit_on_interrupt
from solo_margins.config import nearest, unknown_setting
from solo_margins.losses.margins import FIELDS

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


def run_program(program: Callable[[], Any]) -> None:
    """Run a program of Hydra's; a mistake in its command line ends it with one sentence."""
    # A launcher may wait here for jobs that run elsewhere.
    with exit_on_interrupt():
        try:
            check(sys.argv[1:])
        except ValueError as error:
            end(error, job=None)
        program()


def check(arguments: Sequence[str]) -> None:
    """Raise ``ValueError`` for a file or an option that is not there, or a value without quotes.

    Args:
        arguments: the command line, without the program.
    """
    if "-sc" in arguments or "--shell-completion" in arguments:
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, short in OPTIONS_WITH_VALUE:
        # Hydra itself complains about a missing value.
        parser.add_argument(name, short, nargs="?")
    options, rest = parser.parse_known_args(list(arguments))
    overrides = [argument for argument in rest if not argument.startswith("-")]
    folders = _folders(options)
    if options.config_name is not None and "://" not in str(options.config_path):
        _check_configuration(options.config_name, folders)
    before = ""
    for override in overrides:
        if not _is_readable(override):
            raise ValueError(_advice(override, before))
        before = override
    # Configurations may also be in folders that hydra.searchpath names.
    if "://" not in str(options.config_path) and "hydra.searchpath" not in str(overrides):
        for override in overrides:
            _check_choice(override, folders)
    for override in overrides:
        _check_margin(override)


def _folders(options: argparse.Namespace) -> list[Any]:
    """Return the folders in which Hydra looks for configurations."""
    folders: list[Any] = [resources.files("solo_margins.configs")]
    path = options.config_path
    if path is not None and "://" not in path:
        if not os.path.isabs(path):
            raise ValueError(
                f"--config-path {path} must be an absolute path; --config-dir {path} looks in a "
                "folder below the current one."
            )
        folders.insert(0, Path(path))
    if options.config_dir is not None:
        folders.insert(0, Path(options.config_dir))
    return folders


def _names(folders: Iterable[Any], group: str = ".") -> list[str]:
    """Return the names of the configurations in folders, or of those in a group of them."""
    names = []
    for folder in folders:
        part = folder / group
        if part.is_dir():
            files = sorted(file.name for file in part.iterdir())
            names += [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
    return names


def _check_configuration(name: str, folders: Sequence[Any]) -> None:
    """Raise ``ValueError`` where there is no configuration of a name."""
    stem = name.removesuffix(".yaml")
    if any((folder / f"{stem}.yaml").is_file() for folder in folders):
        return
    there = _names(folders)
    near = nearest(Path(name).stem, there)
    question = "." if near is None else f"; did you mean {near}.yaml?"
    listed = ", ".join(f"{known}.yaml" for known in there)
    raise ValueError(f"There is no configuration {name}{question} There are {listed}.")


def _check_choice(override: str, folders: Sequence[Any]) -> None:
    """Raise ``ValueError`` where ``data=…``, ``backbone=…`` or another group has no such option."""
    group, _, chosen = override.lstrip("+").partition("=")
    options = _names(folders, group) if re.fullmatch(r"\w+", group) else []
    for option in chosen.split(","):
        is_name = re.fullmatch(r"[\w-]+", option) and option != "null"
        if options and is_name and option not in options:
            raise ValueError(f"{group} must be one of {', '.join(options)}, got {option!r}.")


def _check_margin(override: str) -> None:
    """Raise ``ValueError`` for a margin that there is not; Hydra's own advice is to add it."""
    key = override.lstrip("+~").partition("=")[0]
    known = (*FIELDS, "scaling")
    # In our configurations margins.* is short for method_kwargs.margins.*.
    for group in ("margins", "method_kwargs.margins"):
        if not key.startswith(f"{group}."):
            continue
        name = key.removeprefix(f"{group}.").partition(".")[0]
        if name not in known:
            raise ValueError(f"{unknown_setting(group, name, known)}.")


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
