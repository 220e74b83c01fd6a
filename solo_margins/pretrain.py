"""Pretrains a backbone: ``python -m solo_margins.pretrain --config-name mocov3_margin.yaml …``.

``main_pretrain.py`` in a checkout is the same program.
"""

import hydra
from omegaconf import DictConfig

from solo_margins import resolvers
from solo_margins.cli import run_cli
from solo_margins.command_line import run_program
from solo_margins.training import pretrain


# Without --config-name there is nothing to run, but --help has something to print.
@hydra.main(
    version_base=None, config_path="pkg://solo_margins.configs", config_name="solo_margins/help"
)
def program(cfg: DictConfig) -> None:
    """Pretrain as the configuration says."""
    run_cli(pretrain, cfg, module="solo_margins.pretrain")


def main() -> None:
    """Run the program as the command line says."""
    # What the configurations call, ${solo_margins.recipe:…} and others.
    resolvers.install()
    run_program(program)


if __name__ == "__main__":
    main()
