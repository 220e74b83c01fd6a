"""What to say where NVIDIA DALI is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NAMES = ("PretrainDALIDataModule", "ClassificationDALIDataModule", "build_transform_pipeline_dali")
"""Names of the contract that need DALI."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn a failed import of DALI into a sentence that says what to do."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if not str(missing.name).startswith("nvidia"):
            raise
        raise ImportError(
            "data.format=dali needs NVIDIA DALI, which is not installed: in the folder of "
            'solo-margins run `pip install ".[dali]"` for CUDA 13 or '
            '`pip install ".[dali-cuda120]"` for CUDA 12, or use data.format=image_folder.'
        ) from missing
