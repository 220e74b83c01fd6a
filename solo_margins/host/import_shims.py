"""Names that solo-learn 1.0.2 imports and that today's environments lack."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def import_shims() -> Iterator[None]:
    """Make solo-learn 1.0.2 importable beside Lightning 2, for the time of the import only.

    It imports a scheduler from ``pl_bolts``, which cannot be installed beside Lightning 2, and the
    Lightning of ``pytorch_lightning``, whose modules a trainer of ``lightning.pytorch`` refuses.
    """
    from solo_margins.host.lightning import pl

    bolts_scheduler = ModuleType("pl_bolts.optimizers.lr_scheduler")
    # Methods are given a scheduler of ours.
    bolts_scheduler.LinearWarmupCosineAnnealingLR = None  # type: ignore[attr-defined]
    wanted = {
        "pl_bolts": ModuleType("pl_bolts"),
        "pl_bolts.optimizers": ModuleType("pl_bolts.optimizers"),
        "pl_bolts.optimizers.lr_scheduler": bolts_scheduler,
        "pytorch_lightning": pl,
        "pytorch_lightning.callbacks": pl.callbacks,
    }
    # Also where pytorch_lightning is loaded: classes of both cannot be mixed.
    before = {name: sys.modules.get(name) for name in wanted}
    sys.modules.update(wanted)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is not None:
                sys.modules[name] = module
            else:
                sys.modules.pop(name, None)
