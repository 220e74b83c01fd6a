"""Batches that depend only on seed, epoch, position and rank."""

import random

import numpy as np
import pytest
import torch

from solo_margins.data.deterministic import PILBatches, seed_cpu

IMAGES, BATCH = 23, 4


class Noise(torch.utils.data.Dataset):
    """Items that draw from every generator."""

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        return index, torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002


def epoch(batches):
    return [torch.stack([part.double() for part in batch]) for batch in batches]


@pytest.fixture
def batches(at):
    """All batches of an epoch on one rank."""

    def read(seed=1, rank=0, ranks=1, completed=0, workers=0):
        loader = PILBatches(Noise(), BATCH, seed, workers)
        loader.trainer = at(rank, ranks, completed)
        return epoch(loader)

    return read


def test_the_same_position_has_the_same_batches(batches):
    first = batches()
    assert len(first) == IMAGES // BATCH
    for again in (batches(), batches(workers=2)):
        assert all(map(torch.equal, first, again))
    for other in (batches(seed=2), batches(completed=IMAGES // BATCH)):
        assert not any(map(torch.equal, first, other))
        assert torch.cat(other, 1)[0].tolist() != torch.cat(first, 1)[0].tolist()
        assert not torch.isin(torch.cat(other, 1)[1:], torch.cat(first, 1)[1:]).any()
    # Every image has random numbers of its own.
    assert all(len(set(drawn)) == BATCH * len(first) for drawn in torch.cat(first, 1).tolist())


def test_a_run_resumed_within_an_epoch_goes_on_where_it_was(batches):
    whole = batches(completed=5)
    assert all(map(torch.equal, whole[3:], batches(completed=8)))
    assert len(batches(completed=8)) == 2


def test_ranks_see_together_what_one_process_would(batches):
    one = torch.cat(batches(), 1)[0].tolist()
    two = [torch.cat(batches(rank=rank, ranks=2), 1)[0].tolist() for rank in range(2)]
    assert len(two[0]) == len(two[1]) == 12
    together = [index for pair in zip(*two, strict=True) for index in pair]
    assert together[: len(one)] == one[: len(together)]


def test_the_generators_of_the_steps_are_left_alone(batches):
    seed_cpu(5)
    expected = torch.rand(()), np.random.rand(), random.random()  # noqa: NPY002
    seed_cpu(5)
    batches()
    assert (torch.rand(()), np.random.rand(), random.random()) == expected  # noqa: NPY002
