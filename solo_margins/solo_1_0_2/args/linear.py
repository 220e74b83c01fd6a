"""Configurations of linear evaluation, parsed as ``solo.args.linear`` does."""

from omegaconf import DictConfig

from solo_margins.solo_1_0_2.config import complete


def parse_cfg(cfg: DictConfig) -> DictConfig:
    """Return a configuration for linear evaluation or fine-tuning, completed and scaled."""
    return complete(cfg, "linear")
