"""Keeps a probe from running on other images than anybody asked for."""

from __future__ import annotations

from collections.abc import Iterable

from omegaconf import DictConfig, OmegaConf

from solo_margins.checkpoint_settings import read_settings
from solo_margins.configuration import running_program

DEFAULT = "digits"
"""What ``linear.yaml`` probes on where nothing is said."""

CHOICES = ("data", "data.name", "data.dataset", "data.train_path")
"""Settings that say which images are meant."""


def check_data_were_chosen(cfg: DictConfig, overrides: Iterable[str] | None = None) -> None:
    """Refuse a probe on the default data of a backbone that was pretrained on others.

    Its accuracy would look like one on the pretraining's data.

    Args:
        cfg: a linear configuration.
        overrides: what it was composed with; None means the command line of Hydra's program, and
            checks nothing where there is none.

    Raises:
        ValueError: nobody has chosen the data; the message is one sentence.
    """
    if overrides is None:
        program = running_program()
        overrides = () if program is None else program.overrides.task
    named = {text.lstrip("+~").partition("=")[0] for text in overrides}
    if "pretrained_feature_extractor" not in named or named & set(CHOICES):
        return
    if OmegaConf.select(cfg, "data.name") != DEFAULT:
        return
    checkpoint = cfg.pretrained_feature_extractor
    trained = read_settings(checkpoint)
    name = None if trained is None else OmegaConf.select(trained, "data.name")
    if name in (None, DEFAULT):
        return
    raise ValueError(
        f"pretrained_feature_extractor={checkpoint} was pretrained on {name}, and no data to probe "
        f"it on are named: add data={name} data.train_path=<folder>, or data={DEFAULT}."
    )
