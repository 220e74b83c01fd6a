"""Names that solo-learn 1.0.2 imports and that today's environments lack."""

from __future__ import annotations

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
    from solo_margins.host.repairs.warmup_cosine import WarmupCosineLR

    bolts_scheduler = ModuleType("pl_bolts.optimizers.lr_scheduler")
    bolts_scheduler.LinearWarmupCosineAnnealingLR = WarmupCosineLR  # type: ignore[attr-defined]
    wanted = {
        "pl_bolts": ModuleType("pl_bolts"),
        "pl_bolts.optimizers": ModuleType("pl_bolts.optimizers"),
        "pl_bolts.optimizers.lr_scheduler": bolts_scheduler,
        "pytorch_lightning": pl,
        "pytorch_lightning.callbacks": pl.callbacks,
    }
    ours = {name: module for name, module in wanted.items() if name not in sys.modules}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name, module in ours.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
