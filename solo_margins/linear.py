"""Probes a checkpoint: ``python -m solo_margins.linear --config-name linear.yaml …``.

The same as ``main_linear.py``, which only a checkout has.
"""

import hydra
from omegaconf import DictConfig

from solo_margins.cli import exit_on_interrupt, run_cli
from solo_margins.training import linear


# hydra_plugins/solo_margins_searchpath.py adds configs/ to where Hydra looks for configurations.
# Without --config-name there is nothing to run, but --help has something to print.
@hydra.main(version_base=None, config_name="solo_margins/help")
def main(cfg: DictConfig) -> None:
    """Train a linear classifier on the checkpoint's backbone, as the configuration says."""
    run_cli(linear, cfg, program=__file__)


if __name__ == "__main__":
    # A launcher may wait here for jobs that run elsewhere.
    with exit_on_interrupt():
        main()
