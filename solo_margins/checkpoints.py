"""Checkpoints: which file a path means, whether it is whole, what it was trained with, its content.

Nothing that a file holds is executed by these functions, and so by no program of this package. The
installed torch and Lightning decide whether solo-learn's own programs execute it.
"""

import contextlib
import json
import logging
import math
import os
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from solo_margins.files import complete_file
from solo_margins.ranks import is_rank_zero
from solo_margins.same_run import (
    SETTINGS_IN_CHECKPOINT,
    are_the_same_run,
    compared_settings,
)

# Ends the name of the checkpoint before the newest, after .ckpt.
PREVIOUS = ".previous"
ENDINGS = (".ckpt", ".pth", ".pt")
# How args.json spells numbers that JSON does not have: as YAML does.
WORDS_OF_NUMBERS = {".inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}

log = logging.getLogger("solo_margins.checkpoints")


# What a checkpoint was trained with: the args.json that its run wrote beside it.


def args_file(checkpoint: str | Path) -> Path:
    """Return the file with the settings of a checkpoint, or of a run's folder."""
    path = Path(checkpoint)
    return (path if path.is_dir() else path.parent) / "args.json"


def read_settings(checkpoint: str | Path) -> DictConfig | None:
    """Return the configuration of the run that wrote a checkpoint, None where it left none.

    Args:
        checkpoint: a checkpoint, or the folder of its run.

    Raises:
        ValueError: the file is there but cannot be read.
    """
    file = args_file(checkpoint)
    try:
        settings = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as reason:
        raise ValueError(
            f"{file} should say what {checkpoint} was trained with, but cannot be read ({reason})."
        ) from None
    if not isinstance(settings, dict):
        raise ValueError(f"{file} should hold the settings of a run, but is not a JSON object.")
    return OmegaConf.create(_with_numbers(settings))


def write_settings(file: Path, settings: Any, indent: int | None = None) -> None:
    """Write the configuration of a run as strict JSON, which has no infinity: that is ``".inf"``.

    `read_settings` returns it as it was.
    """
    text = json.dumps(
        _with_words(settings),
        allow_nan=False,
        indent=indent,
        default=lambda _: "<not serializable>",
    )
    with complete_file(file) as unfinished:
        unfinished.write_text(text)


def _with_words(value: Any) -> Any:
    """Return settings with words for the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _with_words(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_words(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    if math.isnan(value):
        return ".nan"
    return ".inf" if value > 0 else "-.inf"


def _with_numbers(value: Any) -> Any:
    """Return settings with numbers for the words that `write_settings` wrote."""
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return WORDS_OF_NUMBERS.get(value, value) if isinstance(value, str) else value


def settings_in(checkpoint: Path, content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the `solo_margins.same_run.compared_settings` of the run of a checkpoint.

    None where neither the checkpoint nor an ``args.json`` beside it says so.

    Args:
        checkpoint: its path.
        content: what it holds.
    """
    settings: dict[str, Any] | None = content.get(SETTINGS_IN_CHECKPOINT)
    if settings is not None:
        return settings
    args = read_settings(checkpoint)
    if args is None:
        return None
    plain: Any = OmegaConf.to_container(args, resolve=True)
    return compared_settings(plain)


def checkpoint_setting(checkpoint: str, key: str, *default: Any) -> Any:
    """Return one setting of the run that wrote a checkpoint.

    Args:
        checkpoint: a checkpoint, or the folder of its run.
        key: the setting.
        default: what to return where the run has no such setting.

    Raises:
        ValueError: the file is missing or unreadable, or holds no such setting.
    """
    settings = read_settings(checkpoint)
    if settings is None:
        check_exists(checkpoint)
        fault = "does not exist"
    else:
        value = OmegaConf.select(settings, key)
        if value is not None or default:
            return default[0] if value is None else value
        if "pretrained_feature_extractor" in settings:
            raise ValueError(
                f"{checkpoint} is a checkpoint of a linear probe, which does not know {key}: name "
                f"the one of the pretraining, {settings.pretrained_feature_extractor}."
            )
        fault = f"holds no setting {key}"
    raise ValueError(
        f"{args_file(checkpoint)} should say what {checkpoint} was trained with, but {fault}: set "
        f"what needs {key} on the command line."
    )


# Which file a path means.


def check_exists(checkpoint: str | Path, named: str = "pretrained_feature_extractor=") -> None:
    """Raise ``ValueError`` if there is neither such a checkpoint nor a folder of that name.

    Args:
        checkpoint: the path.
        named: how the error names it, before the path.
    """
    if not Path(checkpoint).exists():
        raise ValueError(f"{named}{checkpoint} does not exist.")


def find_checkpoint(path: str | Path, named: str = "pretrained_feature_extractor=") -> Path:
    """Return the checkpoint that a path means: a file, or the newest one in a run's folder.

    Args:
        path: of a file or a folder.
        named: how an error names it, before the path.
    """
    check_exists(path, named)
    path = Path(path)
    if path.is_dir():
        newest = newest_checkpoint(path)
        if newest is None:
            raise ValueError(f"{named}{path} holds no checkpoint (*.ckpt).")
        return newest
    if path.suffix not in ENDINGS:
        raise ValueError(f"{named}{path} must end with .ckpt, .pth or .pt.")
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder that was written last, if there is one."""
    return next((path for path in newest_first(folder) if path.suffix == ".ckpt"), None)


def newest_first(folder: Path) -> list[Path]:
    """Return a run's checkpoints, the newest first, those set aside last."""

    times = _times_of_checkpoints(folder)

    def age(path: Path) -> tuple[bool, float, int, str]:
        # Clocks are coarse: of two files written at once, the later epoch counts.
        return path.suffix == ".ckpt", times[path], len(path.name), path.name

    return sorted(times, key=age, reverse=True)


def _times_of_checkpoints(folder: Path) -> dict[Path, float]:
    """Return when the checkpoints in a folder were written.

    A run that trains renames and removes its own at any time.
    """
    times = {}
    for path in (*folder.glob("*.ckpt"), *folder.glob("*.ckpt" + PREVIOUS)):
        with contextlib.suppress(FileNotFoundError):
            times[path] = path.stat().st_mtime
    return times


def newest_readable(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run that is whole, and warn of those that are not."""
    for checkpoint in newest_first(folder):
        fault = fault_of(checkpoint)
        if fault is None:
            return checkpoint
        if is_rank_zero():
            log.warning("Skipped the checkpoint %s: %s.", checkpoint, fault)
    return None


def find_same_run(folder: Path, cfg: DictConfig, max_age: timedelta) -> Path | None:
    """Return the newest checkpoint of the very same run, None where there is none.

    Args:
        folder: of the run, or that holds the folders of runs.
        cfg: the configuration; runs are the same when all settings that define them are equal.
        max_age: age of a checkpoint from which on it is not considered.
    """
    settings: Any = OmegaConf.to_container(cfg, resolve=True)
    oldest = (datetime.now() - max_age).timestamp()
    runs = [args.parent for p in ("", "*/") for args in folder.glob(f"{p}args.json")]
    # A run without checkpoints is as old as time.
    written = {run: max(_times_of_checkpoints(run).values(), default=0.0) for run in runs}
    for run in sorted(runs, key=lambda run: written[run], reverse=True):
        if written[run] <= oldest:
            break
        try:
            known: Any = OmegaConf.to_container(read_settings(run), resolve=True)
        except ValueError:
            log.warning("Skipped %s for auto-resume: its args.json cannot be read.", run)
            continue
        if are_the_same_run(known, settings):
            checkpoint = newest_readable(run)
            if checkpoint is not None:
                return checkpoint
    return None


# Whether a file is whole.


def fault_of(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint's file, or None where it is whole.

    A checkpoint is a zip archive: its table of contents is at its end, and each part has a
    checksum.
    """
    try:
        with zipfile.ZipFile(checkpoint) as archive:
            if not any(name.endswith("data.pkl") for name in archive.namelist()):
                return "it is not a checkpoint of PyTorch"
            damaged = archive.testzip()
    except OSError as error:
        return reason_of(error)
    except Exception:
        # zipfile has many words for a file that is not as it was written.
        return f"it is cut off, damaged or not a checkpoint ({checkpoint.stat().st_size} bytes)"
    return None if damaged is None else f"its part {damaged} is damaged"


def check_readable(checkpoint: Path) -> None:
    """Raise ``ValueError`` if a checkpoint is damaged or holds more than tensors and plain data."""
    read_checkpoint(checkpoint, in_place=True)
    fault = fault_of(checkpoint)
    if fault is not None:
        raise ValueError(f"{checkpoint} is damaged or not a checkpoint ({fault}).")


def reason_of(error: Exception) -> str:
    """Return what went wrong, without numbers and names that the sentence has already."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split()).rstrip(".")


# Its content: tensors and plain data, never a program.


def read_checkpoint(path: str | Path, in_place: bool = False) -> dict[str, Any]:
    """Return the content of a checkpoint; nothing in the file is executed.

    Args:
        path: of the file.
        in_place: leave tensors in the file until they are used.

    Raises:
        ValueError: the file is damaged, or holds more than tensors and plain data; the message is
            one sentence.
    """
    import torch

    try:
        with _counters_allowed():
            content = torch.load(
                os.fspath(path), map_location="cpu", weights_only=True, mmap=in_place
            )
    # Damaged files make PyTorch fail in any way.
    except Exception as error:
        if in_place and "mmap can only be used" in str(error):
            return read_checkpoint(path)
        raise ValueError(_complaint(path, error)) from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a checkpoint: it holds a {type(content).__name__}.")
    return content


@contextlib.contextmanager
def safe_loading() -> Iterator[None]:
    """Let PyTorch execute nothing of a file in this process, whoever calls it."""
    force, opposite = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.get(name) for name in (force, opposite)}
    os.environ[force] = "1"
    os.environ.pop(opposite, None)
    try:
        with _counters_allowed():
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _counters_allowed() -> contextlib.AbstractContextManager[None]:
    """Let schedules by milestones be read, whose Counter torch 2.1 does not take for plain data."""
    import torch

    if hasattr(torch.serialization, "safe_globals"):
        return torch.serialization.safe_globals([Counter])
    # Before torch 2.5 there is no other way, and what is allowed stays so.
    allowed = torch._weights_only_unpickler._get_allowed_globals()
    allowed.setdefault("collections.Counter", Counter)
    return contextlib.nullcontext()


def _complaint(path: str | Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, pickle.UnpicklingError):
        # "Unsupported global: GLOBAL posix.system was not an allowed global by default.", and
        # "Unsupported class posix.system" from torch 2.1.
        named = re.search(r"(?:GLOBAL|Unsupported class) ([\w.]+)", text)
        if named is not None or _is_bare_pickle(path):
            example = f", for example {named[1]}" if named else ""
            return (
                f"{path} was not loaded: it holds more than tensors and plain data{example}, and "
                "could run a program when it is loaded."
            )
    reason = text.split(". ")[0].rstrip(".") or type(error).__name__
    return f"{path} is damaged or not a checkpoint ({reason})."


def _is_bare_pickle(path: str | Path) -> bool:
    """Tell whether a file is a pickle that PyTorch has not written, which may hold anything."""
    with open(path, "rb") as file:
        return file.read(1) == pickle.PROTO


def run_folder(trainer: Any) -> Path:
    """Return the folder that a trainer's checkpointer writes to, or else the trainer's own."""
    for callback in trainer.callbacks:
        path = getattr(callback, "path", None)
        if path is not None and hasattr(callback, "ckpt_placeholder"):
            return Path(path)
    # Lightning's own callback; by default its folder is one in that of the logger.
    folder = getattr(trainer.checkpoint_callback, "dirpath", None) or trainer.default_root_dir
    return Path(folder.removesuffix("/checkpoints"))
