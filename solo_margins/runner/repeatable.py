"""Random numbers that depend on where a training is, not on how it came there.

The order of images, their augmentations and whatever draws numbers inside a step are functions of
the seed and of the place in the training. A training that is resumed at any step therefore goes on
exactly as it would have, without a generator's state in the checkpoint, and with any number of
workers that load data.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from solo_margins import host
from solo_margins.runner.interruption import outlive_the_groups_signals

ORDER, IMAGE, STEP, EPOCH = range(4)
"""What numbers are drawn for; each has a stream of its own."""


def mixed(*numbers: int) -> int:
    """Return a seed of 64 bits that has nothing in common with that of other numbers.

    >>> mixed(5, 0, 1) == mixed(5, 0, 1), mixed(5, 0, 1) == mixed(5, 1, 0)
    (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _seed_cpu(seed: int) -> None:
    """Seed all that transforms of images draw from."""
    # Not torch.manual_seed(), which would seed the GPUs too.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the one that transforms use
    random.seed(seed)


@contextmanager
def _generators_kept() -> Iterator[None]:
    torchs, numpys, pythons = (
        torch.default_generator.get_state(),
        np.random.get_state(),  # noqa: NPY002
        random.getstate(),
    )
    try:
        yield
    finally:
        torch.default_generator.set_state(torchs)
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)


class _SeededImages(Dataset[Any]):
    """A data set whose items are asked for by their place in the training and their index."""

    def __init__(self, images: Any, seed: int, epoch: int) -> None:
        self.images = images
        self.seed = seed
        self.epoch = epoch

    def __getitem__(self, place_and_index: tuple[int, int]) -> Any:
        place, index = place_and_index
        seed = mixed(self.seed, IMAGE, self.epoch, place)
        if get_worker_info() is not None:
            # A worker has nothing else to draw numbers for.
            _seed_cpu(seed)
            return self.images[index]
        with _generators_kept():
            _seed_cpu(seed)
            return self.images[index]


class RepeatableBatches:
    """Shuffled batches of a loader, the same ones at the same place of a training.

    Of several processes each gets its share of every batch of the training: together they see what
    one process would see with their batches joined.

    Args:
        loader: whose images, batch size, workers … to use.
        seed: of the run.
    """

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        self.loader = loader
        self.seed = seed
        self.trainer: Any = None
        """Knows which place the training is at, and how many processes there are."""

    @property
    def dataset(self) -> Any:
        """The images."""
        return self.loader.dataset

    def _processes(self) -> tuple[int, int]:
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def __len__(self) -> int:
        """Return the number of batches that this process gets in an epoch."""
        _, world = self._processes()
        images, size = -(-len(self.dataset) // world), self.loader.batch_size or 1
        return images // size if self.loader.drop_last else -(-images // size)

    def _place(self) -> tuple[int, int]:
        """Return the epoch and the number of its batches that are behind us."""
        if self.trainer is None:
            return 0, 0
        taken = self.trainer.fit_loop.epoch_loop.batch_progress.total.completed
        limit = self.trainer.num_training_batches
        return divmod(taken, int(limit) if 0 < limit < float("inf") else len(self))

    def _share(self, epoch: int, first: int) -> Iterator[list[tuple[int, int]]]:
        """Return place and index of the images in each of this process's batches of an epoch."""
        generator = torch.Generator().manual_seed(mixed(self.seed, ORDER, epoch))
        order: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        rank, world = self._processes()
        # As many for each process: the first images are seen again where the last ones are missing.
        places = range(rank, -(-len(order) // world) * world, world)
        size = self.loader.batch_size or 1
        for batch in range(first, len(self)):
            own = places[size * batch : size * (batch + 1)]
            yield [(place, order[place % len(order)]) for place in own]

    def __iter__(self) -> Iterator[Any]:
        # Lightning asks for an iterator before it has restored a checkpoint; all of this runs when
        # the first batch is wanted.
        epoch, first = self._place()
        loader = self.loader
        batches = iter(
            DataLoader(
                _SeededImages(loader.dataset, self.seed, epoch),
                batch_sampler=self._share(epoch, first),
                num_workers=loader.num_workers,
                collate_fn=loader.collate_fn,
                pin_memory=loader.pin_memory,
                timeout=loader.timeout,
                worker_init_fn=outlive_the_groups_signals,
                multiprocessing_context=loader.multiprocessing_context,
                # Its own, lest starting workers draws from the generator of the steps.
                generator=torch.Generator(),
                prefetch_factor=loader.prefetch_factor,
            )
        )
        try:
            yield from batches
        finally:
            # Left to the collection of garbage, workers are waited for in vain, seconds for each.
            shut_down = getattr(batches, "_shutdown_workers", None)
            if shut_down is not None:
                shut_down()


class RepeatableSteps(host.pl.Callback):
    """Seeds whatever draws numbers inside a step, such as drop path, by the step's number.

    Processes that train together draw different numbers.

    Args:
        seed: of the run.
        batches: the training batches, which are told the place; None where others make them.
    """

    def __init__(self, seed: int, batches: RepeatableBatches | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.batches = batches

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Tell the batches which training they are for."""
        if self.batches is not None:
            self.batches.trainer = trainer

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Bring a loader that does not know the place, such as DALI's, to it within its epoch.

        It begins an epoch anew only behind its last batch: otherwise the next one would be short.
        """
        loader, number = trainer.train_dataloader, trainer.num_training_batches
        if self.batches is None and hasattr(loader, "__next__") and number < float("inf"):
            taken = trainer.fit_loop.epoch_loop.batch_progress.total.completed
            for _ in range(taken % number):
                next(loader)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Seed what a method draws between two epochs, such as the first centres of clusters."""
        self._seed(trainer, EPOCH, trainer.fit_loop.epoch_loop.batch_progress.total.completed)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, index: int) -> None:
        """Seed a step."""
        self._seed(trainer, STEP, trainer.fit_loop.epoch_loop.batch_progress.total.completed)

    def _seed(self, trainer: Any, purpose: int, place: int) -> None:
        seed = mixed(self.seed, purpose, place, trainer.global_rank)
        _seed_cpu(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
