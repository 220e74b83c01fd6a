"""What a checkpoint was trained with, from the ``args.json`` that its run wrote beside it."""

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf


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
        raise ValueError(f"{file} should hold the settings of a run, but is no JSON object.")
    return OmegaConf.create(settings)


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
        raise ValueError(
            f"{args_file(checkpoint)} should say what {checkpoint} was trained with, but does not "
            f"exist: {key} is not known, set what needs it on the command line."
        )
    value = OmegaConf.select(settings, key)
    if value is None and default:
        return default[0]
    if value is None and "pretrained_feature_extractor" in settings:
        raise ValueError(
            f"{checkpoint} is a checkpoint of a linear probe, which does not know {key}: name the "
            f"one of the pretraining, {settings.pretrained_feature_extractor}."
        )
    if value is None:
        raise ValueError(
            f"{args_file(checkpoint)} holds no setting {key}; set what needs it on the command "
            "line."
        )
    return value


def check_exists(checkpoint: str | Path, named: str = "pretrained_feature_extractor=") -> None:
    """Raise ``ValueError`` if there is neither such a checkpoint nor a folder of that name.

    Args:
        checkpoint: the path.
        named: how the error names it, in front of the path.
    """
    if not Path(checkpoint).exists():
        raise ValueError(f"{named}{checkpoint} does not exist.")


def args_file(checkpoint: str | Path) -> Path:
    """Return where the run of a checkpoint, or of a run's folder, has written its settings."""
    path = Path(checkpoint)
    # A run's folder stands for its newest checkpoint.
    return (path if path.is_dir() else path.parent) / "args.json"
