"""Batches whose images, order and augmentations depend only on seed, epoch, position and rank.

A run that is resumed at any step therefore continues exactly as it would have, without the state of
a random generator in the checkpoint and with any number of workers.
"""

import hashlib
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch.utils.data import DataLoader, Dataset, get_worker_info

# Purposes of random numbers; each has its own stream.
ORDER, IMAGE, STEP, EPOCH, PIPELINE = range(5)


def derive_seed(*numbers: int) -> int:
    """Return a seed of 64 bits that is unrelated to that of any other numbers.

    >>> derive_seed(5, 0, 1) == derive_seed(5, 0, 1), derive_seed(5, 0, 1) == derive_seed(5, 1, 0)
    (True, False)
    """
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def seed_cpu(seed: int) -> None:
    """Seed the random generators that transforms of images draw from."""
    # Not torch.manual_seed(), which would seed the GPUs too.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the one that transforms use
    random.seed(seed)


class EpochBatches:
    """Shuffled complete batches, the same ones at the same position of a run.

    Of several ranks each gets its share of the common order: together they see what one process
    would see with their batches joined.

    Args:
        dataset: the images.
        batch_size: images per batch and rank.
        seed: of the run.
    """

    def __init__(self, dataset: Any, batch_size: int, seed: int) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        # Knows the position in the run, and the ranks; without it there is one rank.
        self.trainer: Any = None

    def ranks(self) -> tuple[int, int]:
        """Return the rank of this process and the number of ranks."""
        if self.trainer is None:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        return batches_per_epoch(len(self.dataset), self.batch_size, self.ranks()[1])

    def _position(self) -> tuple[int, int]:
        """Return the epoch and the number of its batches that are done."""
        if self.trainer is None:
            return 0, 0
        completed = self.trainer.fit_loop.epoch_loop.batch_progress.total.completed
        limit = self.trainer.num_training_batches
        return divmod(completed, int(limit) if 0 < limit < float("inf") else len(self))

    def share(self, epoch: int, first: int = 0) -> Iterator[list[tuple[int, int]]]:
        """Yield position in the epoch and index of the images in each batch of this rank."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, ORDER, epoch))
        order: list[int] = torch.randperm(len(self.dataset), generator=generator).tolist()
        rank, world = self.ranks()
        # As many for each rank: the first images are repeated where the last ones are missing.
        positions = range(rank, -(-len(order) // world) * world, world)
        for batch in range(first, len(self)):
            own = positions[self.batch_size * batch : self.batch_size * (batch + 1)]
            yield [(position, order[position % len(order)]) for position in own]

    def __iter__(self) -> Iterator[Any]:
        # Lightning asks for an iterator before it has restored a checkpoint; as a generator, this
        # runs when the first batch is taken.
        yield from self.batches(*self._position())

    def batches(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning with batch ``first``."""
        raise NotImplementedError


def batches_per_epoch(images: int, batch_size: int, ranks: int) -> int:
    """Return the number of complete batches of each rank in an epoch."""
    return -(-images // ranks) // batch_size


class _SeededImages(Dataset[Any]):
    """A data set whose items are asked for by position in the epoch and index."""

    def __init__(self, images: Any, seed: int, epoch: int) -> None:
        self.images = images
        self.seed = seed
        self.epoch = epoch

    def __getitem__(self, position_and_index: tuple[int, int]) -> Any:
        position, index = position_and_index
        seed = derive_seed(self.seed, IMAGE, self.epoch, position)
        if get_worker_info() is not None:
            # A worker draws random numbers for nothing else.
            seed_cpu(seed)
            return self.images[index]
        with isolate_rng(include_cuda=False):
            seed_cpu(seed)
            return self.images[index]


def ignore_group_signals(worker: int) -> None:
    """Let a worker continue when all processes of a run are signalled at once.

    The main process needs its workers for the step that it finishes before it stops. A worker obeys
    the second SIGTERM, with which the main process ends workers that are still alive.
    """
    received: list[int] = []

    def exit_on_second(number: int, frame: Any) -> None:
        if received:
            os._exit(0)
        received.append(number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, exit_on_second)


class PILBatches(EpochBatches):
    """Deterministic batches of a data set that reads and augments single images.

    Args:
        dataset: the images.
        batch_size: images per batch and rank.
        seed: of the run.
        num_workers: processes that load images.
    """

    def __init__(self, dataset: Any, batch_size: int, seed: int, num_workers: int) -> None:
        super().__init__(dataset, batch_size, seed)
        self.num_workers = num_workers

    def batches(self, epoch: int, first: int) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning with batch ``first``."""
        batches = iter(
            DataLoader(
                _SeededImages(self.dataset, self.seed, epoch),
                batch_sampler=self.share(epoch, first),
                num_workers=self.num_workers,
                pin_memory=torch.cuda.is_available(),
                worker_init_fn=ignore_group_signals,
                # Its own generator, so that starting workers draws nothing from that of the steps.
                generator=torch.Generator(),
            )
        )
        try:
            yield from batches
        finally:
            # Left to garbage collection, each worker is waited for until a timeout.
            shut_down = getattr(batches, "_shutdown_workers", None)
            if shut_down is not None:
                shut_down()
