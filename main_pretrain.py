"""Pretrains a backbone: ``python main_pretrain.py --config-name mocov3_margin.yaml``."""

import hydra
from omegaconf import DictConfig

from solo_margins import runner


@hydra.main(version_base="1.2")
def main(cfg: DictConfig) -> None:
    """Pretrain as the configuration says."""
    runner.run_as_program(runner.pretrain, cfg, program=__file__)


if __name__ == "__main__":
    # A launcher may wait here for jobs that run elsewhere.
    with runner.tidy_interruption():
        main()
