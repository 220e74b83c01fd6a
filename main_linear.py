"""Probes a checkpoint: ``python main_linear.py --config-name linear.yaml …``."""

from solo_margins.linear import main

if __name__ == "__main__":
    main()
