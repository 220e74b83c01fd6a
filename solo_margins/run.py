"""Runs a program of solo-learn, untouched, with our methods registered.

    python -m solo_margins.run main_knn.py --pretrained_checkpoint_dir <folder> …

For programs that do not start Hydra, such as ``main_knn.py`` and ``main_umap.py``, and as well for
those that do. A program that is not found here is looked for beside the installed solo-learn.
"""

import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from solo_margins import host
from solo_margins.checkpoints import read_settings, safe_loading
from solo_margins.cli import SetupError, run_cli, user_errors
from solo_margins.data.image_spec import image_spec


def run(arguments: Sequence[str]) -> None:
    """Run a Python program by its path, as if it had been started itself."""
    with user_errors():
        program = _find(*arguments[:1])
        host.load()
        _use_image_size_of(arguments[1:])
    sys.argv[:] = [str(program), *arguments[1:]]
    sys.path[0] = str(program.parent)
    try:
        with safe_loading():
            runpy.run_path(str(program), run_name="__main__")
    except (AssertionError, RuntimeError) as error:
        if torch.cuda.is_available() or not re.search(r"CUDA|NVIDIA", str(error)):
            raise
        raise SetupError(
            f"{program.name} needs a CUDA device, and there is none; "
            "`python -m solo_margins.evaluation.knn` computes kNN accuracies on the CPU."
        ) from error


def _find(given: str = "") -> Path:
    from solo_margins.host.detect import host_folder

    beside_host = host_folder().parent / given
    for candidate in (Path(given), beside_host):
        if candidate.is_file():
            return candidate.resolve()
    place = f"neither here nor at {beside_host}; python -m solo_margins.run --help explains it"
    raise ValueError(f"There is no program {given!r}, {place}.")


def _use_image_size_of(arguments: Sequence[str]) -> None:
    """Let a program that reads a checkpoint's folder see images as the pretraining did.

    Such a program asks solo-learn for transforms by the name of the data set alone, which shows
    custom data at 224 pixels.
    """
    option = "--pretrained_checkpoint_dir"
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, value = argument.partition("=")
        settings = read_settings(value or following) if name == option else None
        images = image_spec(settings) if settings is not None else None
        if images is not None and host.FORM == "main":
            host.use_classification_transforms(*images.transforms())


if __name__ == "__main__":
    run_cli(run, sys.argv[1:])
