"""Pretrains a backbone: ``python main_pretrain.py --config-name mocov3_margin.yaml``."""

from solo_margins.pretrain import main

if __name__ == "__main__":
    main()
