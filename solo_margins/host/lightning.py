"""The one Lightning namespace that models, trainers, callbacks and loggers must share."""

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl  # type: ignore[no-redef]

__all__ = ["pl"]
