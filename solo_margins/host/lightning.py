"""The one Lightning namespace that models, trainers, callbacks and loggers must share."""

try:
    import lightning.pytorch as pl
except ModuleNotFoundError as missing:
    if missing.name not in ("lightning", "lightning.pytorch"):
        raise
    try:
        import pytorch_lightning as pl  # type: ignore[no-redef]
    except ModuleNotFoundError:
        raise missing from None

__all__ = ["pl"]
