"""Which of several processes that train together this one is."""

import os

# Lightning, torchrun and Slurm number their processes by these; rank 0 has 0 in all that are set.
VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")


def is_rank_zero() -> bool:
    """Tell whether this process is rank 0, which prints and writes files.

    It can be asked before there is a trainer. A process that trains alone is rank 0.
    """
    return all(os.environ.get(name, "0") == "0" for name in VARIABLES)
