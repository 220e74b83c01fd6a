"""Pretrains a backbone: ``python main_pretrain.py --config-name mocov3_margin.yaml``."""

import sys

import hydra
from omegaconf import DictConfig

from solo_margins.cli import exit_on_interrupt, run_cli
from solo_margins.command_line import check_or_exit
from solo_margins.training import pretrain


# hydra_plugins/solo_margins_searchpath.py adds configs/ to where Hydra looks for configurations.
# Without --config-name there is nothing to run, but --help has something to print.
@hydra.main(version_base=None, config_name="solo_margins/help")
def main(cfg: DictConfig) -> None:
    """Pretrain as the configuration says."""
    run_cli(pretrain, cfg, program=__file__)


if __name__ == "__main__":
    # A launcher may wait here for jobs that run elsewhere.
    with exit_on_interrupt():
        check_or_exit(sys.argv[1:], __file__)
        main()
