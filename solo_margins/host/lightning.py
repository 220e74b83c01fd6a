"""The one Lightning namespace that models, trainers, callbacks and loggers must share."""

import lightning.pytorch as pl

__all__ = ["pl"]
